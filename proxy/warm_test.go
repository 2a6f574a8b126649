package proxy

import (
	"context"
	"errors"
	"math"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/store"
	"weir/store/storetest"
)

// warm asks for a page as a warmer does.
func (w *world) warm(replica int, path string, known uint64, lines ...string) (Warmed, error) {
	r := httptest.NewRequest("GET", "http://example.com"+path, nil)
	for _, line := range lines {
		if name, value, ok := cutField(line); ok {
			r.Header.Add(name, value)
		}
	}
	return w.replicas[replica].Warm(w.t.Context(), r, known)
}

// mustWarm wants no error, and the page fetched or not.
func (w *world) mustWarm(what string, got Warmed, err error, fetched bool, why policy.Reason) Warmed {
	w.t.Helper()
	if err != nil || got.Fetched != fetched || got.Reason != why {
		w.t.Errorf("%s: fetched %t, reason %v, fault %+v, error %v; want %t, %v", what, got.Fetched, got.Reason, got.Fault, err, fetched, why)
	}
	return got
}

// A cold page is fetched and kept, what is fresh is left alone, and what was seen already is asked about by its validator.
func TestWarm(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", `ETag: "a"`), respond(304, "Cache-Control: max-age=60", `ETag: "a"`)))
		got, err := w.warm(0, "/p", 0)
		first := w.mustWarm("cold", got, err, true, policy.None)
		if life := first.Kept.Lifetime(); life != time.Minute {
			t.Errorf("kept for %v, want a minute", life)
		}
		w.want("a client", w.get("/p"), 200, "v1", "weir; hit; ttl=60")
		time.Sleep(10 * time.Second)
		got, err = w.warm(1, "/p", 0)
		w.mustWarm("fresh", got, err, false, policy.Fresh)
		w.asked("/p", 1)

		got, err = w.warm(0, "/p", first.Kept.Leased)
		second := w.mustWarm("seen already", got, err, true, policy.None)
		w.asked("/p", 2)
		if tag := w.up.asked["/p"][1].Header.Get("If-None-Match"); tag != `"a"` {
			t.Errorf("If-None-Match %q", tag)
		}
		if second.Kept.Leased <= first.Kept.Leased {
			t.Errorf("leased at %d, which is not after %d", second.Kept.Leased, first.Kept.Leased)
		}
		got, err = w.warm(0, "/p", first.Kept.Leased)
		w.mustWarm("brought since", got, err, false, policy.Fresh)
		got, err = w.warm(0, "/p", math.MaxUint64)
		w.mustWarm("ordered", got, err, true, policy.None)
		w.asked("/p", 3)
		synctest.Wait() // fills are told of when they are over
		for _, f := range w.fills {
			if f.Why != fill.Warm {
				t.Errorf("a fill ran because of %s", f.Why)
			}
		}
	})
}

// tardy is a store that grants a lease after a while.
type tardy struct{ store.Store }

func (s tardy) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	if want.Token != "" {
		time.Sleep(10 * time.Second)
	}
	return s.Store.Take(ctx, key, want)
}

// Who is gone when the lease comes leaves the fill to itself, a warmer as a client.
func TestWhoAskedIsGoneWhenTheLeaseComes(t *testing.T) {
	inWorld(t, setup{store: func(s store.Store) store.Store { return tardy{s} }}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.up.on("/q", respond(200, "Cache-Control: max-age=60"))
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		if _, err := w.replicas[0].Warm(ctx, httptest.NewRequest("GET", "http://example.com/p", nil), 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("warmed: %v", err)
		}
		ctx, leave := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer leave()
		r := <-w.send(0, httptest.NewRequestWithContext(ctx, "GET", "http://example.com/q", nil))
		if !r.aborted {
			t.Errorf("who left is answered %d", r.Code)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.want("the warmed page", w.get("/p"), 200, "v1", "hit")
		w.want("the page of who left", w.get("/q"), 200, "v1", "hit")
	})
}

// Warmers of two replicas and a client who ask at once cost one request.
func TestWarmersCollapse(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		done := make(chan error, 2)
		for i := range 2 {
			go func() {
				got, err := w.warm(i, "/p", 0)
				w.mustWarm("together", got, err, true, policy.None)
				done <- err
			}()
		}
		synctest.Wait()
		w.want("a client", w.get("/p"), 200, "v1", "collapsed")
		<-done
		<-done
		w.asked("/p", 1)
	})
}

// What must not be kept is given up at its head, and said why; nothing is left running.
func TestWarmWhatIsNotKept(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/private", respond(200, "Cache-Control: no-store"))
		w.up.on("/endless", respond(200))
		for path, why := range map[string]policy.Reason{"/private": policy.NoStore, "/endless": policy.NoLifetime, "/missing": policy.NoLifetime} {
			got, err := w.warm(0, path, 0)
			w.mustWarm(path, got, err, false, why)
			w.asked(path, 1)
		}
		synctest.Wait()
		for _, f := range w.fills {
			if f.Reason == policy.WaitTimeout {
				t.Errorf("nobody waited, and the fill's reason is %v", f.Reason)
			}
		}
		got, err := w.warm(0, "/private", 0, "Upgrade: websocket", "Connection: upgrade")
		w.mustWarm("an upgrade", got, err, false, policy.Upgrade)
		w.asked("/private", 1)
	})
}

func TestWarmFailure(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), respond(503, "Retry-After: 7")))
		got, err := w.warm(0, "/p", 0)
		first := w.mustWarm("well", got, err, true, policy.None)
		got, err = w.warm(0, "/p", first.Kept.Leased)
		w.mustWarm("failed", got, err, false, policy.UpstreamStatus)
		if got.Fault.RetryAfter != 7*time.Second || got.Kept.Leased != first.Kept.Leased {
			t.Errorf("fault %+v, kept %d; want 7s and %d", got.Fault, got.Kept.Leased, first.Kept.Leased)
		}
		// The failure is remembered for the page (R23): nobody asks again before its time.
		got, err = w.warm(0, "/p", first.Kept.Leased)
		w.mustWarm("remembered", got, err, false, policy.UpstreamStatus)
		w.asked("/p", 2)
		w.want("a client has the copy", w.get("/p"), 200, "v1", "weir; hit")
	})
}

// Each variant that is listed with its fields is kept warm by itself.
func TestWarmVariants(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60", "Vary: Accept-Language"))
		for range 2 {
			for _, language := range []string{"de", "fr"} {
				if _, err := w.warm(0, "/p", 0, "Accept-Language: "+language); err != nil {
					t.Error(err)
				}
			}
		}
		w.asked("/p", 2)
		w.want("a German", w.get("/p", "Accept-Language: de"), 200, "v1", "hit")
		w.want("a Frenchman", w.get("/p", "Accept-Language: fr"), 200, "v2", "hit")
	})
}

// With the store away there is nowhere to keep it, so nothing is fetched (R17).
func TestWarmWithoutStore(t *testing.T) {
	away := func(s store.Store) store.Store {
		return storetest.Faulty(t, s.(storetest.Store), "take #2: unavailable") // the first only looks
	}
	inWorld(t, setup{store: away}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		if got, err := w.warm(0, "/p", 0); !errors.Is(err, ErrNotWarmed) {
			t.Errorf("%+v, %v", got, err)
		}
		w.asked("/p", 0)
	})
}
