package proxy

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// A fill that a reload meets keeps the policy it began with, and so do those who wait for it: it is kept under the old
// key and by the old rules, where the old file finds it again and the new one does not look (R31).
func TestReloadLeavesWhatRunsAlone(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.TTL = time.Minute }}, func(w *world) {
		h := w.replicas[0]
		was := h.policy.Load()
		cache := was.Plan(h.request(httptest.NewRequest("GET", "http://example.com/page", nil))).Route.Cache
		cache.TTL, cache.Key.Headers = 0, []string{"X-Variant"}
		now, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{{Name: "all", Upstream: "api", Cache: cache}}})
		if err != nil {
			t.Fatal(err)
		}
		w.up.on("/page", after(2*time.Second, respond(200)))
		first := w.client(0, "GET", "/page")
		synctest.Wait()
		second := w.client(0, "GET", "/page")
		time.Sleep(time.Second)
		h.Use(now)
		w.want("who asked", <-first, 200, "v1", "stored")
		w.want("who waited", <-second, 200, "v1", "collapsed")
		synctest.Wait()
		w.want("by the new file", w.get("/page"), 200, "v2", "fwd=")
		w.want("by the new file again, which gives no lifetime", w.get("/page"), 200, "v3", "fwd=")
		h.Use(was)
		w.want("by the old file", w.get("/page"), 200, "v1", "hit")
		w.asked("/page", 3)
	})
}
