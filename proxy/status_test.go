package proxy

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

// Each way an answer can go has its own words in Cache-Status (RFC 9211 §2), and they stand behind those of the caches
// that the answer has come through.
func TestCacheStatusOfEveryWay(t *testing.T) {
	fresh := respond(200, "Cache-Control: max-age=60", `Etag: "a"`)
	grace := func(c *policy.Cache) { c.Grace.Well = 30 * time.Second }
	for _, c := range []struct {
		way     string
		setup   setup
		up      answer
		prior   []string      // fields of a request before; nil: there is none
		after   time.Duration // it
		method  string        // GET unless named
		fields  []string
		want    string
		another string // what one who asks at the same time is told
	}{
		{way: "a miss that is kept", up: fresh, want: "fwd=uri-miss; stored"},
		{way: "a miss that is not", up: respond(200, "Cache-Control: no-store"), want: "fwd=uri-miss; detail=no-store"},
		{way: "collapsed", up: after(time.Second, fresh), want: "fwd=uri-miss; stored", another: "fwd=uri-miss; collapsed"},
		{way: "a hit", up: fresh, prior: []string{}, after: 5 * time.Second, want: "hit; ttl=55"},
		{way: "a hit that is not modified", up: fresh, prior: []string{}, after: 5 * time.Second, fields: []string{`If-None-Match: "a"`}, want: "hit; ttl=55"},
		{way: "a range of a hit", up: fresh, prior: []string{}, after: 5 * time.Second, fields: []string{"Range: bytes=0-0"}, want: "hit; ttl=55"},
		{way: "a stale hit", setup: setup{cache: grace}, up: fresh, prior: []string{}, after: 63 * time.Second, want: "hit; ttl=-3; detail=stale-refresh"},
		{way: "a stale hit that the client allows", up: fresh, prior: []string{}, after: 63 * time.Second, fields: []string{"Cache-Control: max-stale"}, want: "hit; ttl=-3; detail=stale-allowed"},
		{way: "confirmed", up: inTurn(fresh, respond(304, `Etag: "a"`)), prior: []string{}, after: 63 * time.Second, want: "fwd=stale; fwd-status=304"},
		{way: "replaced", up: fresh, prior: []string{}, after: 63 * time.Second, want: "fwd=stale; stored"},
		{way: "stale on an error", up: inTurn(fresh, respond(503)), prior: []string{}, after: 63 * time.Second, want: "fwd=stale; fwd-status=503; detail=upstream-status"},
		{way: "stale on no answer", up: inTurn(fresh, fails(dialFails)), prior: []string{}, after: 63 * time.Second, want: "fwd=stale; detail=upstream-refused"},
		{way: "no answer", up: fails(dialFails), want: "detail=upstream-refused"},
		{way: "another form", up: respond(200, "Cache-Control: max-age=60", "Vary: X-A"), prior: []string{"X-A: 1"}, fields: []string{"X-A: 2"}, want: "fwd=vary-miss; stored"},
		{way: "a reload", up: fresh, prior: []string{}, fields: []string{"Cache-Control: no-cache"}, want: "fwd=request; stored"},
		{way: "only-if-cached", up: fresh, fields: []string{"Cache-Control: only-if-cached"}, want: "detail=only-if-cached"},
		{way: "a method", up: fresh, method: "POST", want: "fwd=method"},
		{way: "a stream of events", up: fresh, fields: []string{"Accept: text/event-stream"}, want: "fwd=bypass"},
		{way: "a cold range", up: ranged("0123456789", `"a"`), fields: []string{"Range: bytes=4-5"}, want: "fwd=uri-miss; stored"},
		{way: "another part", up: ranged("0123456789", `"a"`), prior: []string{"Range: bytes=0-1"}, fields: []string{"Range: bytes=4-5"}, want: "fwd=partial; stored"},
		{way: "behind a marker", up: respond(200, "Cache-Control: no-store"), prior: []string{}, want: "fwd=miss; detail=no-store"},
		{way: "without a store", setup: setup{store: func(s store.Store) store.Store { return absent{s} }}, up: fresh, want: "fwd=uri-miss; detail=store-unavailable"},
	} {
		t.Run(c.way, func(t *testing.T) {
			inWorld(t, c.setup, func(w *world) {
				w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
					res, err := c.up(r, n)
					if err == nil {
						res.Header.Set("Cache-Status", "other; hit")
					}
					return res, err
				})
				if c.prior != nil {
					w.get("/p", c.prior...)
					time.Sleep(c.after)
				}
				method := "GET"
				if c.method != "" {
					method = c.method
				}
				first := w.client(0, method, "/p", c.fields...)
				if c.another != "" {
					synctest.Wait()
					w.saysOf(c.way+", another", <-w.client(0, method, "/p", c.fields...), c.another)
				}
				w.saysOf(c.way, <-first, c.want)
			})
		})
	}
}

// saysOf fails unless the answer's Cache-Status ends with these parameters of ours. What the upstream's own caches said
// stands before them, unless the answer is ours.
func (w *world) saysOf(what string, r result, want string) {
	w.t.Helper()
	want = "weir; " + want
	if r.Header().Get("Content-Type") != "application/problem+json" {
		want = "other; hit, " + want
	}
	if got := strings.Join(r.Header()["Cache-Status"], ", "); got != want {
		w.t.Errorf("%s: %q, want %q", what, got, want)
	}
}
