package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A stampede is a crowd that comes when a cache has least to give it. It comes to replicas of ours on one Redis, who are
// to be one cache, and by `make stampede` to the caches of others, of which each is its own. Of ours the counts are
// asserted; times are printed, as a table for README.

// stampede is a row of that table.
type stampede struct {
	what string
	asks int           // what one cache asks the upstream
	odd  int           // what a slow machine, or the whole seconds of a Date, may make it ask more
	wait time.Duration // what its slowest client would wait for a first byte
	play func(*herd)
}

func stampedes() []stampede {
	going := 4
	if *long {
		going = 15
	}
	page := filler(2000)
	const (
		ms    = time.Millisecond
		keep  = "max-age=60"
		old   = "max-age=1"
		grace = "max-age=1, stale-while-revalidate=600"
	)
	return []stampede{
		{"200 clients, cold page, upstream 500 ms", 1, 0, 500 * ms, func(h *herd) {
			h.script(page500(keep))
			h.rush(200)
			h.other(page)
		}},
		{"200 clients, expired page, no grace", 1, 0, 500 * ms, func(h *herd) {
			h.expire(old)
			h.script(page500(keep))
			h.rush(200)
			h.other(page)
		}},
		{"200 clients, expired page, `stale-while-revalidate`", 1, 0, 10 * ms, func(h *herd) {
			h.expire(grace)
			h.script(page500(keep))
			h.rush(200)
			h.other(page, "old")
		}},
		{"100 clients, `no-store`, upstream 300 ms", 100, 0, 600 * ms, func(h *herd) {
			h.script(reply{status: 200, header: header("Cache-Control", "no-store"), body: "{n}", delay: 300 * ms})
			h.rush(100)
			h.note("another's answer", 100-len(bodies(h.answers)))
		}},
		{"5 MB over 3 s, 20 join after 0.5 s", 1, 0, 20 * ms, func(h *herd) { h.follow("length") }},
		{"the same, chunked", 1, 0, 20 * ms, func(h *herd) { h.follow("chunked") }},
		{"50 clients, upstream answers 503, `stale-if-error`", 1, 1, 10 * ms, func(h *herd) {
			h.expire("max-age=1, stale-if-error=600")
			h.script(reply{status: 503, body: "sorry"})
			h.rush(50)
			h.other("old")
		}},
		{"leader's client leaves, 20 wait, upstream 1 s", 1, 0, 900 * ms, (*herd).orphan},
		{fmt.Sprintf("%d s at 200 a second, max-age 1, upstream 300 ms", going), going, 1, 10 * ms, func(h *herd) {
			h.script(reply{status: 200, header: header("Cache-Control", grace), body: filler(2000), delay: 300 * ms})
			h.prime()
			h.graze(200, time.Duration(going)*time.Second)
		}},
	}
}

func page500(control string) reply {
	return reply{status: 200, header: header("Cache-Control", control), body: filler(2000), delay: 500 * time.Millisecond}
}

// herd is one crowd before one fleet.
type herd struct {
	*world
	t       *testing.T
	path    string
	primed  int // what the upstream had been asked before the crowd came
	answers []*answer
	wrong   map[string]int
}

// ours: only replicas of ours share a Redis.
func (h *herd) ours() bool { return h.redis != nil }

func (h *herd) script(r reply) { h.upstream.script(h.path, r) }

func (h *herd) send(door string) *answer {
	return send(door, ask{method: http.MethodGet, target: h.path, header: header("Host", "weir.test")})
}

// rush lets n clients ask at once, by turns at all doors, and waits for all of them.
func (h *herd) rush(n int) {
	for i, doors := 0, h.doors(); i < n; i++ {
		h.answers = append(h.answers, h.send(doors[i%len(doors)]))
	}
	h.over()
}

// graze lets them come one by one.
func (h *herd) graze(rate int, during time.Duration) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i, doors, end := 0, h.doors(), time.After(during); ; i++ {
		select {
		case <-tick.C:
			h.answers = append(h.answers, h.send(doors[i%len(doors)]))
		case <-end:
			h.over()
			return
		}
	}
}

// over waits for all answers, and counts those that are not whole pages.
func (h *herd) over() {
	for _, a := range h.answers {
		switch err := a.whole(time.Minute); {
		case err != nil:
			h.note("cut", 1)
		case a.status != http.StatusOK:
			h.note(fmt.Sprint(a.status), 1)
		}
	}
}

func (h *herd) note(what string, n int) {
	if n > 0 {
		h.wrong[what] += n
	}
}

// other counts the whole answers that are none of these.
func (h *herd) other(bodies ...string) {
	for _, a := range h.answers {
		switch body := string(a.body); {
		case a.err != nil || a.status != http.StatusOK || slices.Contains(bodies, body):
		case body == "old":
			h.note("stale", 1)
		default:
			h.note("wrong bytes", 1)
		}
	}
}

// prime has every door know the page.
func (h *herd) prime() {
	for _, door := range h.doors() {
		if a := h.send(door); a.whole(time.Minute) != nil || a.status != http.StatusOK {
			h.t.Fatal(a)
		}
	}
	h.rest()
	h.primed, _ = asked(h.world, h.path)
}

// expire has every door know the page, and lets its second pass; two, as some caches count in whole ones.
func (h *herd) expire(control string) {
	h.script(reply{status: 200, header: header("Cache-Control", control), body: "old"})
	h.prime()
	if h.ours() {
		<-time.After(1100 * time.Millisecond)
	} else {
		<-time.After(2100 * time.Millisecond)
	}
}

// follow lets the crowd come when a body is under way.
func (h *herd) follow(framing string) {
	body, spread := filler(5<<20), time.Second
	if *long {
		spread = 3 * time.Second
	}
	h.script(reply{status: 200, header: header("Cache-Control", "max-age=60"), body: body, framing: framing, spread: spread})
	leader := h.send(h.doors()[0])
	<-time.After(500 * time.Millisecond)
	h.rush(20)
	h.other(body)
	if err := leader.whole(time.Minute); err != nil || string(leader.body) != body {
		h.note("a leader without its page", 1)
	}
}

// orphan lets the client leave for whom the page is fetched.
func (h *herd) orphan() {
	h.script(reply{status: 200, header: header("Cache-Control", "max-age=60"), body: filler(2000), delay: time.Second})
	leader := h.send(h.doors()[0])
	<-time.After(100 * time.Millisecond)
	left := time.AfterFunc(100*time.Millisecond, leader.leave)
	defer left.Stop()
	h.rush(20)
}

// rest waits until nothing is fetched any more, and what came is kept.
func (h *herd) rest() {
	h.t.Helper()
	if err := poll(time.Minute, func() error {
		h.upstream.mu.Lock()
		defer h.upstream.mu.Unlock()
		if now := h.upstream.page(h.path).now; now > 0 {
			return fmt.Errorf("%d requests for %s are still under way", now, h.path)
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	if h.ours() {
		settle(h.t, h.world)
	} else {
		<-time.After(300 * time.Millisecond) // others do not tell
	}
}

// cell is what the crowd has cost: upstream requests, the slowest first byte, and who got something else than the page.
func (h *herd) cell() string {
	n, _ := asked(h.world, h.path)
	var slowest time.Duration
	for _, a := range h.answers {
		slowest = max(slowest, a.firstByte)
	}
	text := fmt.Sprintf("%d / %d ms", n-h.primed, slowest.Milliseconds())
	for _, what := range slices.Sorted(maps.Keys(h.wrong)) {
		text += fmt.Sprintf(", %d times %s", h.wrong[what], what)
	}
	return text
}

// fleet is who is stampeded.
type fleet struct {
	name  string
	start func(*testing.T) *world
}

func fleets() (all []fleet) {
	// The last row counts lifetimes; early refresh would end them early, so that clients get the new page sooner.
	const quiet = "telemetry: { log: { access: false } }\ncache: { early_refresh: { mode: \"off\" } }\n"
	for _, names := range [][]string{{"a", "b"}, {"a", "b", "c"}} {
		if *long || len(names) == 3 {
			all = append(all, fleet{fmt.Sprintf("Weir, %d replicas", len(names)), func(t *testing.T) *world { return crowd(t, quiet, names...) }})
		}
	}
	for _, p := range peers() {
		if _, err := exec.LookPath(p.binary); err == nil && *long {
			all = append(all, fleet{p.name, p.two})
		}
	}
	return all
}

func TestLoadStampede(t *testing.T) {
	rows := stampedes()
	table := make([][]string, len(rows))
	head := []string{"scenario"}
	for _, f := range fleets() {
		head = append(head, f.name)
		t.Run(f.name, func(t *testing.T) {
			w := f.start(t)
			for i, row := range rows {
				h := &herd{world: w, t: t, path: fmt.Sprint("/row/", i), wrong: map[string]int{}}
				row.play(h)
				h.rest()
				table[i] = append(table[i], h.cell())
				if n, _ := asked(w, h.path); h.ours() && (n-h.primed > row.asks+row.odd || len(h.wrong) > 0) {
					t.Errorf("%s: %s; one cache would ask %d times", row.what, h.cell(), row.asks)
				}
			}
		})
	}
	text := "| " + strings.Join(append(head, "ideal"), " | ") + " |\n" + strings.Repeat("|---", len(head)+1) + "|\n"
	for i, row := range rows {
		text += fmt.Sprintf("| %s | %s | %d / %d ms |\n", row.what, strings.Join(table[i], " | "), row.asks, row.wait.Milliseconds())
	}
	t.Log("upstream requests / slowest first byte of any client\n" + text)
}
