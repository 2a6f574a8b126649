package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// A page goes through all that its route says of time: a lifetime, grace, standing in for a failure, and being asked about.
func TestLifeOfAPage(t *testing.T) {
	const year = "Cache-Control: max-age=31536000, "
	for name, c := range map[string]struct {
		says   string
		change func(*policy.Cache)
		grace  bool // stale is allowed
	}{
		"ttl":                        {"X: nothing", func(c *policy.Cache) { c.TTL = 100 * time.Second }, true},
		"force_ttl":                  {"Cache-Control: max-age=1, no-cache", func(c *policy.Cache) { c.ForceTTL = 100 * time.Second }, true},
		"force_ttl that is shorter":  {year + "immutable", func(c *policy.Cache) { c.ForceTTL = 100 * time.Second }, true},
		"max-age":                    {"Cache-Control: max-age=100", func(c *policy.Cache) { c.TTL = time.Hour }, true},
		"s-maxage":                   {year + "s-maxage=100", nil, false},
		"must-revalidate":            {"Cache-Control: max-age=100, must-revalidate", nil, false},
		"proxy-revalidate":           {"Cache-Control: max-age=100, proxy-revalidate", nil, false},
		"must-revalidate, and named": {"Cache-Control: max-age=100, must-revalidate", func(c *policy.Cache) { c.StaleDespite = []string{"must-revalidate"} }, true},
		"s-maxage, and named":        {year + "s-maxage=100", func(c *policy.Cache) { c.StaleDespite = []string{"s-maxage"} }, true},
	} {
		cache := func(k *policy.Cache) {
			k.Grace.Well, k.StaleIfError, k.Keep = 30*time.Second, 10*time.Minute, 20*time.Minute
			if c.change != nil {
				c.change(k)
			}
		}
		hit, old, failed := told{200, "v1", "hit; ttl=1", 1}, told{200, "v2", "fwd=stale", 2}, told{503, "v2", "fwd=stale", 2}
		behind, copied, copiedInGrace, keep := old, failed, failed, 100*time.Second+20*time.Minute
		if c.grace {
			behind, copied = told{200, "v1", "hit; ttl=-1", 2}, told{200, "v1", "detail=upstream-status", 2}
			copiedInGrace = told{200, "v1", "hit; ttl=-29", 2}
			keep += 10 * time.Minute
		}
		for _, at := range []struct {
			after time.Duration
			fails bool
			want  told
		}{
			{99 * time.Second, false, hit}, {101 * time.Second, false, behind}, {129 * time.Second, true, copiedInGrace},
			{131 * time.Second, false, old}, {131 * time.Second, true, copied}, {699 * time.Second, true, copied}, {701 * time.Second, true, failed},
			{keep - time.Second, false, old}, {keep, false, told{200, "v2", "fwd=uri-miss", 2}},
		} {
			t.Run(fmt.Sprint(name, " after ", at.after), func(t *testing.T) {
				inWorld(t, setup{cache: cache}, func(w *world) {
					w.up.on("/p", respond(200, c.says, `ETag: "1"`))
					w.get("/p")
					time.Sleep(at.after)
					if at.fails {
						w.up.on("/p", respond(503))
					}
					w.want("then", w.get("/p"), at.want.code, at.want.body, at.want.status)
					w.asked("/p", at.want.asked)
				})
			})
		}
	}
}

// told is what a client gets, and how often the upstream was asked by then.
type told struct {
	code         int
	body, status string
	asked        int
}

// Pages that were stored together expire apart, each a fifth before its time at most and none after it; but not those
// whose lifetime is the upstream's word.
func TestPagesExpireApart(t *testing.T) {
	const pages = 200
	cache := func(c *policy.Cache) { c.TTL, c.Jitter = 100*time.Second, 0.2 }
	inWorld(t, setup{cache: cache}, func(w *world) {
		for i := range pages {
			w.up.on(fmt.Sprint("/ours/", i), respond(200))
			w.up.on(fmt.Sprint("/theirs/", i), respond(200, "Cache-Control: max-age=100"))
			w.get(fmt.Sprint("/ours/", i))
			w.get(fmt.Sprint("/theirs/", i))
		}
		gone := func(kind string) (n int) {
			for i := range pages {
				r := w.client(0, "GET", fmt.Sprint(kind, i), "Cache-Control: only-if-cached")
				if (<-r).Code == 504 {
					n++
				}
			}
			return n
		}
		before, most := 0, 0
		for second := 79; second < 101; second++ {
			time.Sleep(time.Duration(second)*time.Second - time.Since(w.reports[0].Time))
			now := gone("/ours/")
			before, most = now, max(most, now-before)
			if second == 79 && now > 0 || second == 100 && now < pages {
				t.Errorf("after %d s %d of %d have expired", second, now, pages)
			}
			if theirs := gone("/theirs/"); second < 100 && theirs > 0 || second == 100 && theirs < pages {
				t.Errorf("after %d s %d of those with a lifetime of their own have expired", second, theirs)
			}
		}
		if most > pages/5 { // ten a second are to be expected, and more than forty once in 10^13 times
			t.Errorf("%d expired in the same second", most)
		}
	})
}

// A crowd that reloads costs what the route says: by honour one fetch under way and one waiting, by collapse one a second,
// by ignore nothing.
func TestClientDirectives(t *testing.T) {
	for _, c := range []struct {
		mode        string
		least, most int // requests upstream: the first, those of ten seconds at two or one a second at most, and the last that waits
	}{{"honour", 15, 22}, {"collapse", 5, 12}, {"ignore", 1, 1}} {
		t.Run(c.mode, func(t *testing.T) {
			inWorld(t, setup{replicas: 2, cache: func(k *policy.Cache) { k.ClientDirectives = c.mode }}, func(w *world) {
				w.up.on("/p", after(500*time.Millisecond, respond(200, "Cache-Control: max-age=600")))
				w.get("/p")
				var clients []<-chan result
				for range 100 { // tenths of a second
					for i := range 20 {
						clients = append(clients, w.client(i%2, "GET", "/p", "Cache-Control: "+[]string{"no-cache", "max-age=0"}[i/2%2]))
					}
					time.Sleep(100 * time.Millisecond)
				}
				for _, r := range clients {
					w.want("reload", <-r, 200, "*", "weir; ")
				}
				if n := w.up.count("/p"); n < c.least || n > c.most {
					t.Errorf("the upstream was asked %d times, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

// A marker is known to all replicas, binds the kind of request that earned it, and lasts as long as the route says: then
// a crowd waits once more, to see whether the page has become everybody's.
func TestMarkersHaveATerm(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		crowd := func(path string, took time.Duration, lines ...string) {
			t.Helper()
			var clients []<-chan result
			for i := range 20 {
				clients = append(clients, w.client(i%2, "GET", path, lines...))
			}
			for _, c := range clients {
				if r := <-c; r.took > took {
					t.Errorf("%s took %v, want %v", path, r.took, took)
				}
			}
			synctest.Wait()
		}
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: no-store")))
		crowd("/p", 2*time.Second)
		w.asked("/p", 20)
		crowd("/p", time.Second) // it is marked
		w.asked("/p", 40)
		time.Sleep(2 * time.Minute)
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		crowd("/p", time.Second)
		w.asked("/p", 41)
		crowd("/p", 0)

		w.up.on("/q", after(time.Second, respond(200, "Cache-Control: private")))
		crowd("/q", 2*time.Second, "Cookie: a=b")
		w.asked("/q", 20)
		w.up.on("/q", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		crowd("/q", time.Second) // those who do not say who they are
		w.asked("/q", 21)
	})
}

// Of all replicas one refreshes a page early, behind its answer, and one at a time.
func TestEarlyRefreshIsOnePerFleet(t *testing.T) {
	cache := func(c *policy.Cache) { c.EarlyRefresh = policy.EarlyRule{Mode: "power", Exponent: 1e-9} } // at every hit
	inWorld(t, setup{replicas: 3, cache: cache}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		w.get("/p")
		for range 10 {
			time.Sleep(1500 * time.Millisecond)
			for i := range 30 {
				r := <-w.client(i%3, "GET", "/p")
				if w.want("hit", r, 200, "*", "hit"); r.took > 0 {
					t.Errorf("waited %v", r.took)
				}
			}
		}
		time.Sleep(time.Hour) // nobody asks
		w.asked("/p", 11)
	})
}
