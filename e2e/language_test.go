package e2e

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"rsc.io/script"
)

// run plays a scenario that needs no replica: its clients ask the upstream itself.
func run(t *testing.T, text string) error {
	t.Helper()
	w, err := newWorld("", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	state, err := script.NewState(ctx, w.dir, []string{})
	if err != nil {
		t.Fatal(err)
	}
	return (&script.Engine{Cmds: w.verbs()}).Execute(state, "scenario", bufio.NewReader(strings.NewReader(text)), io.Discard)
}

func TestLanguageSees(t *testing.T) {
	for name, text := range map[string]string{
		"answers in turn, the last repeats": `
			upstream /p 200 body=v1
			upstream /p 410 body=v2 X=a X=b
			client c upstream GET /p
			expect c 200 body=v1 Content-Type=text/plain Date Content-Length=2 !X
			client c upstream GET /p
			expect c 410 body=v2 'X=a, b' X~'^a' X!~c X!=a
			client c upstream GET /p
			expect c 410 body!~v1 size=2
			expect upstream /p 3 most=1 method=GET Host=weir.test`,
		"gates hold heads and bodies, and what came is seen": `
			upstream /p 200 hold=head holdbody=body size=100000 chunked trailer:Sum=7
			client c*3 upstream GET /p
			until upstream /p 3 most=3
			expect upstream /p >=2
			release head
			until c2 200 size=50000
			release body
			expect c* 200 size=100000 trailer:Sum=7
			expect same c*`,
		"holes are filled": `
			upstream /p 200 body='{n} {method} {Foo} {body}' Last-Modified={now-90s}
			client c upstream PUT /p Foo=bar body=text
			expect c 200 'body=1 PUT bar text' Last-Modified~'^..., .* GMT$'
			client d upstream PUT /p chunked body=longer Foo=bar
			expect d 200 'body=2 PUT bar longer'
			expect different c d`,
		"faults": `
			upstream /reset 200 fault=reset
			client c upstream GET /reset
			expect c -
			upstream /garbage 200 fault=garbage
			client c upstream GET /garbage
			expect c -
			upstream /short 200 size=1000 fault=short
			client c upstream GET /short
			expect c 200 cut size=500
			upstream /short-chunked 200 size=1000 fault=short chunked
			client c upstream GET /short-chunked
			expect c 200 cut size=500
			upstream /hang 200 size=1000 fault=hang
			client h upstream GET /hang
			until h 200 size=500
			upstream /endless 200 size=1000 fault=endless chunked
			client e upstream GET /endless
			until e 200 size~'.......'
			leave e
			expect e 200 cut
			upstream /stall 200 fault=stall
			client s upstream GET /stall
			until upstream /stall 1
			upstream down
			client r upstream GET /short
			expect r -
			expect s -
			upstream up
			client r upstream GET /short-chunked
			expect r 200 cut`,
		"interim answers, expectations, upgrades": `
			upstream /early 200 early='Link: </a.css>; rel=preload' body=x
			client c upstream GET /early
			expect c 200 interim='103 Link: </a.css>; rel=preload' body=x
			upstream /up 200 body='{body}'
			client c upstream POST /up Expect=100-continue body=wait
			expect c 200 interim=100 body=wait
			upstream /ws 101 Connection=Upgrade Upgrade=chat
			client w upstream GET /ws Connection=Upgrade Upgrade=chat
			until w 101 Upgrade=chat
			send w hello
			until w 101 body=hello`,
		"an upload can be held": `
			upstream /up 200 body='{body}'
			client c upstream PUT /up body=12345678 hold=gate
			until upstream /up 1
			release gate
			expect c 200 body=12345678`,
		"a close-delimited body, 204, HEAD, 304": `
			upstream /p 200 close body=x
			client c upstream GET /p
			expect c 200 body=x !Content-Length
			client c upstream HEAD /p
			expect c 200 body=
			upstream /n 204
			client c upstream GET /n
			expect c 204 body= !Content-Length
			upstream /m 304 ETag='"a"'
			client c upstream GET /m If-None-Match='"a"'
			expect c 304 body=
			expect upstream /m 1 If-None-Match='"a"'`,
		"Redis and its line": `
			redis start
			redis flush
			redis cut
			redis heal
			redis kill
			redis start
			redis flush
			expect redis lacks anything`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(t, text); err != nil {
				t.Error(err)
			}
		})
	}
}

// A language that cannot say no is worthless.
func TestLanguageRefuses(t *testing.T) {
	const page = `
			upstream /p 200 body=v1 X=a
			client c upstream GET /p
			expect c 200
			`
	for line, want := range map[string]string{
		"expect c 201":                    "status 200, not 201",
		"expect c 200 body=v2":            "body=v2 does not hold",
		"expect c 200 !X":                 "!X does not hold",
		"expect c 200 Y":                  "Y does not hold",
		"expect c 200 X!~a":               "X!~a does not hold",
		"expect c 200 X~(":                "missing closing",
		"expect c 200 cut":                "it was not cut",
		"expect c -":                      "status 200, not -",
		"expect upstream /p 2":            "it is 1, not 2",
		"expect upstream /p many":         "is no number",
		"expect upstream /p 1 method=PUT": "method=PUT does not hold",
		"until 100ms upstream /p 2":       "it is 1, not 2",
		"until 100ms d 200":               "there is no client d",
		"expect d 200":                    "there is no client d",
		"client d a GET /p":               "there is no replica a",
		"client d upstream GET /p loud":   "write Name=value",
		"upstream /p 200 fault=loud":      "no fault is called",
		"redis cut":                       "there is no Redis yet",
		"sleep 1s":                        "unknown command",
		"client d upstream GET /p\nexpect d 200\nexpect different c d": "have the same body",
		"client d upstream GET /q\nexpect d 404\nexpect same c d":      "2 different bodies",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			if err := run(t, page+line); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

func TestOverlay(t *testing.T) {
	got := overlay("\nlisten: a\nadmin: { listen: b }\nroutes:\n  - name: all\n", "admin:\n  listen: c\n\ncache: { ttl: 5m }\n")
	if want := "listen: a\nadmin:\n  listen: c\nroutes:\n  - name: all\ncache: { ttl: 5m }\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSum(t *testing.T) {
	const text = `# TYPE weir_exchanges_total counter
weir_exchanges_total{action="serve",otel_scope_name="weir",reason="fresh"} 2
weir_exchanges_total{action="serve",reason="stale-if-error"} 3
weir_exchanges_total{action="fetch",reason="uri-miss"} 1e+01
weir_fills_running 4
`
	for name, want := range map[string]float64{
		"exchanges_total": 15, "exchanges_total{action=serve}": 5, "exchanges_total{reason=fresh,action=serve}": 2,
		"exchanges_total{reason=fre}": 0, "fills_running": 4, "never": 0,
	} {
		name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if got, err := sum(text, "weir_"+name, strings.Split(labels, ",")); err != nil || got != want {
			t.Errorf("%s{%s}: %v, want %v (%v)", name, labels, got, want, err)
		}
	}
}
