package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/fill"
)

// printed is what a Telemetry with this log has written by its end.
func printed(t *testing.T, l Log, say func(*Telemetry)) string {
	t.Helper()
	var out bytes.Buffer
	tel, err := New(Config{Log: l}, &out)
	if err != nil {
		t.Fatal(err)
	}
	say(tel)
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var arrival = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func miss() proxy.Report {
	return proxy.Report{
		Time: arrival, Client: "192.0.2.7", Method: "GET", Scheme: "https", Host: "example.com", Path: "/catalogue/1?page=2",
		Proto: "HTTP/2.0", Route: "catalogue", Upstream: "api", Action: policy.Fetch, Reason: policy.URIMiss, Detail: policy.NoStore,
		Status: 200, FwdStatus: 200, Collapsed: true, Stored: true, Bytes: 512,
		FirstByte: 1500 * time.Microsecond, Duration: 12345 * time.Microsecond, Waited: time.Millisecond,
		States: []string{"receive", "lookup", "join", "deliver"}, StoreFault: "commit", Aborted: true, Err: errors.New("commit k: store unavailable"),
	}
}

func TestAccessLine(t *testing.T) {
	hit := proxy.Report{Time: arrival, Client: "192.0.2.7", Method: "HEAD", Scheme: "http", Host: "example.com", Path: "/", Route: "all",
		Action: policy.Serve, Reason: policy.Fresh, Status: 200, Hit: true, Duration: 250 * time.Microsecond}
	old := hit
	old.Age = 90*time.Second + 900*time.Millisecond
	for _, c := range []struct {
		name, format string
		report       proxy.Report
		want         string
	}{
		{"everything", "json", miss(),
			`{"time":"2026-11-30T12:00:00Z","level":"INFO","msg":"exchange","client":"192.0.2.7","method":"GET","scheme":"https",` +
				`"host":"example.com","path":"/catalogue/1?page=2","status":200,"bytes":512,"duration_ms":12.345,"action":"fetch",` +
				`"reason":"uri-miss","detail":"no-store","route":"catalogue","upstream":"api","fwd_status":200,"collapsed":true,` +
				`"stored":true,"first_byte_ms":1.5,"waited_ms":1,"states":"receive>lookup>join>deliver","store_fault":"commit",` +
				`"aborted":true,"err":"commit k: store unavailable"}`},
		{"what does not apply is left out, an age of 0 is not", "json", hit,
			`{"time":"2026-11-30T12:00:00Z","level":"INFO","msg":"exchange","client":"192.0.2.7","method":"HEAD","scheme":"http",` +
				`"host":"example.com","path":"/","status":200,"bytes":0,"duration_ms":0.25,"action":"serve","reason":"fresh",` +
				`"route":"all","age":0}`},
		{"text, whole seconds of age", "text", old,
			`time=2026-11-30T12:00:00.000Z level=INFO msg=exchange client=192.0.2.7 method=HEAD scheme=http ` +
				`host=example.com path=/ status=200 bytes=0 duration_ms=0.25 action=serve reason=fresh route=all age=90`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := printed(t, Log{Level: "error", Format: c.format, Access: true}, func(tel *Telemetry) { tel.Exchange(c.report) })
			if got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
		})
	}
}

func TestAccessOff(t *testing.T) {
	if got := printed(t, Log{Level: "debug", Format: "json"}, func(tel *Telemetry) { tel.Exchange(miss()) }); got != "" {
		t.Errorf("access lines are off: %s", got)
	}
}

func TestFillLine(t *testing.T) {
	r := fill.Report{Route: "all", Upstream: "api", Why: fill.Refresh, End: fill.Failed, Reason: policy.UpstreamRefused, Started: arrival,
		Queued: time.Millisecond, Total: 2 * time.Millisecond, Requests: 1, Err: errors.New("connection refused")}
	say := func(tel *Telemetry) { tel.Fill(r) }
	want := `{"time":"2026-11-30T12:00:00Z","level":"DEBUG","msg":"fill","route":"all","upstream":"api","why":"refresh","end":"failed",` +
		`"status":0,"bytes":0,"requests":1,"duration_ms":2,"reason":"upstream-refused","queued_ms":1,"err":"connection refused"}` + "\n"
	if got := printed(t, Log{Level: "debug", Format: "json"}, say); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	if got := printed(t, Log{Level: "info", Format: "json", Access: true}, say); got != "" {
		t.Errorf("a fill above level debug: %s", got)
	}
}

// Whatever a client sends, an exchange is one line, fit for a terminal.
func TestHostileTextStaysInItsLine(t *testing.T) {
	for _, s := range []string{
		"/a\nlevel=ERROR msg=forged", "/a\r\n{\"msg\":\"forged\"}", "/\x1b]0;title\x07", "/\x00", "/\x7f", "/\u009b31m", "/\u0085",
		"/\u2028", "/\xff\xfe", `/"}`, "/" + strings.Repeat("é", 10*longest),
	} {
		for _, format := range []string{"json", "text"} {
			r := proxy.Report{Time: arrival, Client: s, Method: s, Scheme: s, Host: s, Path: s, Err: errors.New(s)}
			got := printed(t, Log{Level: "info", Format: format, Access: true}, func(tel *Telemetry) { tel.Exchange(r) })
			if strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n") {
				t.Errorf("%s: %q makes %d lines: %q", format, s, strings.Count(got, "\n"), got)
			}
			if i := strings.IndexFunc(strings.TrimSuffix(got, "\n"), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }); i >= 0 {
				t.Errorf("%s: %q leaves a control character: %q", format, s, got)
			}
			if !utf8.ValidString(got) || len(got) > 10*longest {
				t.Errorf("%s: %.20q makes a line that is no UTF-8, or too long: %d bytes", format, s, len(got))
			}
			if format == "json" && !json.Valid([]byte(got)) {
				t.Errorf("%q makes a line that is no JSON: %s", s, got)
			}
		}
	}
}

// net/http quotes a malformed line of an upstream's head in its error, cookies and all.
func TestFieldsAreNotLogged(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie session=secret\r\n\r\n"
	_, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head)), nil)
	if err == nil || !strings.Contains(err.Error(), "secret") {
		t.Fatalf("the library no longer quotes the line, this test shows nothing: %v", err)
	}
	got := printed(t, Log{Level: "info", Format: "json", Access: true}, func(tel *Telemetry) {
		tel.Exchange(proxy.Report{Time: arrival, Reason: policy.UpstreamGarbage, Err: fmt.Errorf("ask api: %w", err)})
	})
	if strings.Contains(got, "secret") || !strings.Contains(got, `"err":"ask api: malformed MIME header`) {
		t.Errorf("got %s", got)
	}
}

func TestLevelChanges(t *testing.T) {
	got := printed(t, Log{Level: "warn", Format: "text"}, func(tel *Telemetry) {
		log := tel.Logger()
		log.Info("one")
		log.Warn("two")
		if err := tel.SetLevel("debug"); err != nil {
			t.Error(err)
		}
		log.Debug("three")
		if err := tel.SetLevel("loud"); err == nil {
			t.Error("there is no level loud")
		}
		log.Debug("four")
		if !log.Enabled(context.Background(), slog.LevelDebug) {
			t.Error("a level that does not exist took effect")
		}
	})
	for word, want := range map[string]bool{"one": false, "two": true, "three": true, "four": true} {
		if strings.Contains(got, "msg="+word) != want {
			t.Errorf("%s: %v, want %v, in\n%s", word, !want, want, got)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("/a?b=c")
	f.Add("\x1b[31m\u0085\xff")
	f.Add(strings.Repeat("€", longest))
	f.Fuzz(func(t *testing.T, s string) {
		got := plain(s)
		if strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q leaves a control character: %q", s, got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q was UTF-8 and is cut in two", s)
		}
		// A control character may grow to three bytes.
		if len(got) > 3*longest+len("…") {
			t.Errorf("%d bytes are left of %d", len(got), len(s))
		}
		if len(s) <= longest && !strings.ContainsFunc(s, unicode.IsControl) && utf8.ValidString(s) && got != s {
			t.Errorf("%q was plain and became %q", s, got)
		}
	})
}
