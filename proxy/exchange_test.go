package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

func TestHitAfterMiss(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.want("first", w.get("/p"), 200, "v1", "weir; fwd=uri-miss; stored")
		time.Sleep(10 * time.Second)
		r := w.get("/p")
		w.want("second", r, 200, "v1", "weir; hit; ttl=50")
		if age := r.Header().Get("Age"); age != "10" {
			t.Errorf("Age %q, want 10", age)
		}
		w.asked("/p", 1)
	})
}

func TestStaleIsServedWhileOneRefreshRuns(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60, stale-while-revalidate=30"),
			after(time.Second, respond(200, "Cache-Control: max-age=60, stale-while-revalidate=30"))))
		w.get("/p")
		time.Sleep(75 * time.Second)
		var clients []<-chan result
		for i := range 100 {
			clients = append(clients, w.client(i%2, "GET", "/p"))
		}
		for _, c := range clients {
			r := <-c
			w.want("stale", r, 200, "v1", "weir; hit; ttl=-15")
			if r.took != 0 {
				t.Errorf("a stale answer took %v", r.took)
			}
		}
		synctest.Wait()
		time.Sleep(2 * time.Second) // the refresh took one of them, and brought a Date of its end; Asked was a second before (RFC 9111 §4.2.3)
		w.want("refreshed", w.get("/p"), 200, "v2", "weir; hit; ttl=58")
		w.asked("/p", 2)
	})
}

func TestStaleIsValidated(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", `ETag: "a"`), respond(304, "Cache-Control: max-age=60", `ETag: "a"`)))
		w.get("/p")
		time.Sleep(61 * time.Second)
		w.want("validated", w.get("/p"), 200, "v1", "weir; fwd=stale; fwd-status=304")
		w.want("fresh again", w.get("/p"), 200, "v1", "weir; hit; ttl=60")
		w.asked("/p", 2)
		if got := w.up.asked["/p"][1].Header.Get("If-None-Match"); got != `"a"` {
			t.Errorf("If-None-Match %q", got)
		}
	})
}

// A hundred clients on two replicas: the upstream is asked once, and nobody waits longer than the upstream takes.
func TestCollapseAcrossReplicas(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		w.up.on("/p", after(500*time.Millisecond, respond(200, "Cache-Control: max-age=60")))
		for _, name := range []string{"cold", "expired"} {
			time.Sleep(61 * time.Second)
			before := w.up.count("/p")
			var clients []<-chan result
			for i := range 100 {
				clients = append(clients, w.client(i%2, "GET", "/p"))
			}
			synctest.Wait()
			if local, remote := w.waiting(); local+remote != 100 || remote != 50 {
				t.Errorf("%s: %d wait here and %d for the other replica, want 50 and 50", name, local, remote)
			}
			for _, c := range clients {
				r := <-c
				w.want(name, r, 200, fmt.Sprint("v", before+1), "weir; fwd=")
				if r.took != 500*time.Millisecond {
					t.Errorf("%s: took %v", name, r.took)
				}
			}
			if got := w.up.count("/p") - before; got != 1 {
				t.Errorf("%s: upstream asked %d times", name, got)
			}
		}
	})
}

func (w *world) waiting() (local, remote int64) {
	for _, h := range w.replicas {
		g := h.Gauges()
		local, remote = local+g.WaitingLocal, remote+g.WaitingRemote
	}
	return local, remote
}

func TestUncacheableDoesNotQueue(t *testing.T) {
	for name, field := range map[string]string{"no-store": "Cache-Control: no-store", "private": "Cache-Control: private, max-age=60", "vary star": "Vary: *", "cookie": "Set-Cookie: a=b"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{replicas: 2}, func(w *world) {
				w.up.on("/p", after(300*time.Millisecond, respond(200, field)))
				for _, most := range []time.Duration{600 * time.Millisecond, 300 * time.Millisecond} {
					var clients []<-chan result
					for i := range 100 {
						clients = append(clients, w.client(i%2, "GET", "/p"))
					}
					bodies := map[string]bool{}
					for _, c := range clients {
						r := <-c
						bodies[r.Body.String()] = true
						if r.took > most {
							t.Errorf("took %v, want %v at most", r.took, most)
						}
					}
					if len(bodies) != 100 {
						t.Errorf("%d different bodies, want 100", len(bodies))
					}
				}
			})
		})
	}
}

// Stale on arrival: those who waited get it, across replicas too; who comes later asks anew.
func TestStaleOnArrivalServesThoseWhoWaited(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=0", `ETag: "a"`)))
		var clients []<-chan result
		for i := range 100 {
			clients = append(clients, w.client(i%2, "GET", "/p"))
		}
		for _, c := range clients {
			if r := <-c; r.Code != 200 || r.took != time.Second {
				t.Errorf("%d after %v", r.Code, r.took)
			}
		}
		w.asked("/p", 1)
		w.get("/p")
		w.asked("/p", 2)
	})
}

// R3: no-cache answers that a 304 confirms serve all aboard, but only fills sent after one arrived.
func TestMustValidateBoardsTheNextFill(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(after(time.Second, respond(200, "Cache-Control: no-cache", `ETag: "a"`)),
			after(time.Second, respond(304, "Cache-Control: no-cache", `ETag: "a"`))))
		first := w.client(0, "GET", "/p")
		synctest.Wait()
		var clients []<-chan result
		for range 20 {
			clients = append(clients, w.client(0, "GET", "/p"))
		}
		<-first
		for _, c := range clients {
			w.want("waiter", <-c, 200, "v1", "fwd-status=304")
		}
		w.asked("/p", 2)
	})
}

// A reload storm costs one fill under way and one that waits to depart.
func TestReloadStorm(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=600")))
		w.get("/p")
		first := w.client(0, "GET", "/p", "Cache-Control: no-cache")
		synctest.Wait()
		var clients []<-chan result
		for range 99 {
			clients = append(clients, w.client(0, "GET", "/p", "Cache-Control: no-cache"))
		}
		w.want("first reload", <-first, 200, "v2", "fwd=request")
		for _, c := range clients {
			w.want("reload", <-c, 200, "v3", "fwd=request")
		}
		w.asked("/p", 3)
		w.want("plain", w.get("/p"), 200, "v3", "hit")
	})
}

// sleepy is a store in which one look takes long.
type sleepy struct {
	store.Store
	looks *atomic.Int64
	which int64
}

func (s sleepy) Peek(key policy.Key) (*store.Entry, bool) {
	if s.looks.Add(1) == s.which {
		time.Sleep(10 * time.Second)
	}
	return s.Store.Peek(key)
}

// Who wakes up late, when the fill that it was to board is over already, does not ask for another: that one was sent
// after it arrived (R3), and is in the store.
func TestStragglerOfAReloadStorm(t *testing.T) {
	for name, line := range map[string]string{"fresh": "max-age=600", "stale on arrival": "max-age=0"} {
		t.Run(name, func(t *testing.T) {
			var looks atomic.Int64
			inWorld(t, setup{store: func(s store.Store) store.Store { return sleepy{s, &looks, 15} }}, func(w *world) {
				w.up.on("/p", after(time.Second, respond(200, "Cache-Control: "+line, `ETag: "1"`)))
				first := w.client(0, "GET", "/p", "Cache-Control: no-cache") // one look
				synctest.Wait()
				var clients []<-chan result
				for range 10 { // a look each, and another when the first fill is over; one of these is slow
					clients = append(clients, w.client(0, "GET", "/p", "Cache-Control: no-cache"))
				}
				w.want("first", <-first, 200, "v1", "stored")
				for _, c := range clients {
					w.want("the others", <-c, 200, "v2", "")
				}
				w.asked("/p", 2)
			})
		})
	}
}

// slow is a store in which every commit takes long.
type slow struct{ store.Store }

func (s slow) Commit(ctx context.Context, l store.Lease, w store.Write) error {
	time.Sleep(20 * time.Second)
	return s.Store.Commit(ctx, l, w)
}

// The same for who wakes up when the body of that fill is all here, but not yet stored.
func TestStragglerBeforeTheCommit(t *testing.T) {
	var looks atomic.Int64
	inWorld(t, setup{store: func(s store.Store) store.Store { return sleepy{slow{s}, &looks, 5} }}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=600")))
		first := w.client(0, "GET", "/p", "Cache-Control: no-cache") // one look
		synctest.Wait()
		var clients []<-chan result
		for range 3 { // a look each, and another when the first fill is stored: one of these is slow
			clients = append(clients, w.client(0, "GET", "/p", "Cache-Control: no-cache"))
		}
		w.want("first", <-first, 200, "v1", "stored")
		for _, c := range clients {
			w.want("the others", <-c, 200, "v2", "")
		}
		w.asked("/p", 2)
	})
}

// A failure is shared by all who wait, on both replicas (R22): the upstream is asked once and nobody waits longer.
func TestFailureIsShared(t *testing.T) {
	refused := func(*http.Request, int) (*http.Response, error) {
		return nil, &timeoutless{syscall.ECONNREFUSED}
	}
	for name, c := range map[string]struct {
		answer answer
		status int
	}{"reset": {refused, 502}, "503": {respond(503, "Retry-After: 7"), 503}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{replicas: 2}, func(w *world) {
				w.up.on("/p", after(time.Second, c.answer))
				var clients []<-chan result
				for i := range 100 {
					clients = append(clients, w.client(i%2, "GET", "/p"))
				}
				for _, cl := range clients {
					r := <-cl
					if r.Code != c.status || r.took != time.Second {
						t.Errorf("%d after %v, want %d after 1s", r.Code, r.took, c.status)
					}
					if c.status == 503 && r.Header().Get("Retry-After") != "7" {
						t.Errorf("Retry-After %q", r.Header().Get("Retry-After"))
					}
				}
				w.asked("/p", 1)
			})
		})
	}
}

type timeoutless struct{ error }

func TestStaleIfErrorAndRememberedFailure(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), respond(500)))
		w.get("/p")
		time.Sleep(61 * time.Second)
		w.want("stale", w.get("/p"), 200, "v1", "weir; fwd=stale; fwd-status=500")
		for range 9 {
			w.want("remembered", w.get("/p"), 200, "v1", "weir; hit; ttl=-1; detail=upstream-status")
		}
		w.asked("/p", 2) // the failure is remembered for a second
		time.Sleep(2 * time.Second)
		w.want("stale", w.get("/p"), 200, "v1", "fwd=stale")
		w.asked("/p", 3)
	})
}

// An upstream that takes longer than soft_timeout has its stale copy served; the fetch goes on and is stored.
func TestSoftTimeout(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.SoftTimeout = 500 * time.Millisecond }}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), after(2*time.Second, respond(200, "Cache-Control: max-age=60")),
			respond(200, "Cache-Control: max-age=60, must-revalidate"), after(2*time.Second, respond(200, "Cache-Control: max-age=60"))))
		cold := w.get("/p")
		w.want("cold", cold, 200, "v1", "stored")
		time.Sleep(61 * time.Second)
		var clients []<-chan result
		for range 5 {
			clients = append(clients, w.client(0, "GET", "/p"))
		}
		for _, c := range clients {
			r := <-c
			w.want("slow", r, 200, "v1", "weir; fwd=stale; detail=soft-timeout")
			if r.took != 500*time.Millisecond {
				t.Errorf("took %v", r.took)
			}
		}
		time.Sleep(2 * time.Second)
		w.want("stored meanwhile", w.get("/p"), 200, "v2", "hit")
		time.Sleep(61 * time.Second)
		w.want("quick enough", w.get("/p"), 200, "v3", "stored")
		time.Sleep(61 * time.Second)
		if r := w.get("/p"); r.Body.String() != "v4" || r.took != 2*time.Second {
			t.Errorf("must-revalidate: %q after %v", r.Body, r.took)
		}
		w.asked("/p", 4)
	})
}

func TestErrorWithoutCopyGoesToItsAsker(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(500))
		w.want("asker", w.get("/p"), 500, "v1", "fwd=uri-miss")
		w.want("next", w.get("/p"), 500, "v2", "fwd=uri-miss")
	})
}

func TestLeaderLeaves(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(2*time.Second, respond(200, "Cache-Control: max-age=60")))
		ctx, leave := context.WithCancel(w.t.Context())
		w.send(0, httptest.NewRequestWithContext(ctx, "GET", "http://example.com/p", nil))
		time.Sleep(200 * time.Millisecond)
		var clients []<-chan result
		for range 5 {
			clients = append(clients, w.client(0, "GET", "/p"))
		}
		time.Sleep(300 * time.Millisecond)
		leave()
		for _, c := range clients {
			w.want("waiter", <-c, 200, "v1", "collapsed")
		}
		w.asked("/p", 1)
		w.want("stored", w.get("/p"), 200, "v1", "hit")
	})
}

// A fill whose only client leaves goes on when its answer can be kept.
func TestFillOutlivesItsClient(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(2*time.Second, respond(200, "Cache-Control: max-age=60")))
		ctx, leave := context.WithCancel(w.t.Context())
		done := w.send(0, httptest.NewRequestWithContext(ctx, "GET", "http://example.com/p", nil))
		time.Sleep(time.Second)
		leave()
		<-done
		time.Sleep(2 * time.Second)
		w.want("stored", w.get("/p"), 200, "v1", "hit")
		w.asked("/p", 1)
	})
}

func TestPanicIsOneExchanges(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", func(*http.Request, int) (*http.Response, error) { panic("planted") })
		if r := w.get("/p"); r.Code != 502 && r.Code != 503 {
			t.Errorf("status %d", r.Code)
		}
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.want("afterwards", w.get("/p"), 200, "*", "stored")
	})
}

// R1: nobody is given what was made for somebody else, whatever the route's ttl.
func TestParticularRequests(t *testing.T) {
	ttl := setup{replicas: 2, cache: func(c *policy.Cache) { c.TTL = 5 * time.Minute }}
	for _, field := range []string{"Cookie: id=", "Authorization: Bearer ", "X-Api-Key: "} {
		t.Run(field, func(t *testing.T) {
			inWorld(t, ttl, func(w *world) {
				w.up.on("/p", after(100*time.Millisecond, func(r *http.Request, n int) (*http.Response, error) {
					res, err := respond(200)(r, n)
					name, _, _ := strings.Cut(field, ":")
					body := "for " + r.Header.Get(name)
					res.Body, res.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
					return res, err
				}))
				for range 3 {
					clients := map[string]<-chan result{}
					for i := range 10 {
						who := fmt.Sprint(field, "u", i)
						clients[who] = w.client(i%2, "GET", "/p", who)
					}
					plain := w.client(0, "GET", "/p")
					for who, c := range clients {
						_, value, _ := strings.Cut(who, ": ")
						w.want(who, <-c, 200, "for "+value, "weir")
					}
					w.want("plain", <-plain, 200, "for ", "weir")
				}
			})
		})
	}
}

// With collapse: all, whoever asks while a page with no-cache is fetched shares the next answer with all who did, also when
// each answer is a new one and an old one is stored (R3).
func TestCollapseAll(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.Collapse = "all" }}, func(w *world) {
		w.up.on("/p", after(time.Second, func(r *http.Request, nth int) (*http.Response, error) {
			return respond(200, "Cache-Control: no-cache", fmt.Sprintf(`ETag: "%d"`, nth))(r, nth)
		}))
		for round := range 3 {
			first := w.client(0, "GET", "/p")
			synctest.Wait()
			var rest []<-chan result
			for range 10 {
				rest = append(rest, w.client(0, "GET", "/p"))
			}
			w.want("who came first", <-first, 200, fmt.Sprint("v", 2*round+1), "")
			for _, c := range rest {
				w.want("who came after", <-c, 200, fmt.Sprint("v", 2*round+2), "")
			}
			synctest.Wait()
			w.asked("/p", 2*round+2)
		}
	})
}

// One who tells who he is comes first to a page that is cold: what he is given is his, and those behind him who do not tell
// share the next fetch (R1, R4).
func TestParticularLeaderScattersNobody(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		for _, field := range []string{"Cookie: id=1", "Authorization: Bearer a"} {
			t.Run(fmt.Sprint(replicas, " ", field), func(t *testing.T) {
				inWorld(t, setup{replicas: replicas, cache: func(c *policy.Cache) { c.TTL = time.Minute }}, func(w *world) {
					w.up.on("/p", after(time.Second, respond(200)))
					leader := w.client(0, "GET", "/p", field)
					synctest.Wait()
					var rest []<-chan result
					for i := range 20 {
						rest = append(rest, w.client(i%replicas, "GET", "/p"))
					}
					w.want("who came first", <-leader, 200, "v1", "")
					for _, c := range rest {
						got := <-c
						w.want("who came after", got, 200, "v2", "")
						if got.took > 2*time.Second {
							t.Errorf("after %v", got.took)
						}
					}
					synctest.Wait()
					w.want("who comes later", w.get("/p"), 200, "v2", "hit")
					w.asked("/p", 2)
				})
			})
		}
	}
}

func TestTruncatedBodyIsNotStored(t *testing.T) {
	short := func(r *http.Request, n int) (*http.Response, error) {
		res, err := respond(200, "Cache-Control: max-age=60")(r, n)
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader("v"), broken{io.ErrUnexpectedEOF}))
		res.ContentLength = 100
		return res, err
	}
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(time.Second, short))
		a, b := w.client(0, "GET", "/p"), w.client(0, "GET", "/p")
		for _, c := range []<-chan result{a, b} {
			if r := <-c; !r.aborted {
				t.Errorf("a short body ended cleanly: %d %q", r.Code, r.Body)
			}
		}
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.want("afterwards", w.get("/p"), 200, "v2", "fwd=uri-miss; stored")
	})
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func TestPurgeDuringFill(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		before := w.client(0, "GET", "/p")
		time.Sleep(500 * time.Millisecond)
		if _, err := w.replicas[1].Purge(w.t.Context(), "http://example.com/p", store.Hard); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		since := w.client(0, "GET", "/p")
		w.want("aboard", <-before, 200, "v1", "fwd=uri-miss")
		w.want("after the purge", <-since, 200, "v2", "fwd=uri-miss")
		w.want("stored", w.get("/p"), 200, "v2", "hit")
		w.asked("/p", 2)
	})
}

// A lease that is never ended delays the next client by exactly the lease.
func TestDeadHolder(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		plan := w.replicas[0].policy.Load().Plan(w.replicas[0].request(httptest.NewRequest("GET", "http://example.com/p", nil)))
		taken, err := w.store.Take(w.t.Context(), plan.Key, store.Want{Token: "dead", TTL: 5 * time.Second, At: time.Now()})
		if err != nil || taken.Lease == nil {
			t.Fatal(taken, err)
		}
		r := w.get("/p")
		w.want("after the lease", r, 200, "v1", "fwd=uri-miss")
		if r.took != 5*time.Second {
			t.Errorf("took %v", r.took)
		}
	})
}

func TestHeadAndRangeOfAColdPage(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(time.Second, func(r *http.Request, n int) (*http.Response, error) {
			res, err := respond(200, "Cache-Control: max-age=60")(r, n)
			if r.Header.Get("Range") == "bytes=0-0" {
				res.StatusCode, res.Body, res.ContentLength = 206, io.NopCloser(strings.NewReader("v")), 1
				res.Header.Set("Content-Range", "bytes 0-0/2")
			}
			return res, err
		}))
		a, b := w.client(0, "HEAD", "/p"), w.client(0, "HEAD", "/p")
		w.want("HEAD", <-a, 200, "", "fwd=uri-miss")
		w.want("HEAD", <-b, 200, "", "fwd=uri-miss")
		if m := w.up.asked["/p"][0].Method; m != "HEAD" {
			t.Errorf("asked by %s", m)
		}
		w.asked("/p", 1)
		w.want("range", w.get("/p", "Range: bytes=0-0"), 206, "v", "fwd=uri-miss")
		w.asked("/p", 2)
		whole := w.client(0, "GET", "/p")
		synctest.Wait()
		joined := w.client(0, "GET", "/p", "Range: bytes=1-1")
		head := w.client(0, "HEAD", "/p")
		w.want("whole", <-whole, 200, "v3", "stored")
		w.want("joined range", <-joined, 206, "3", "collapsed")
		w.want("joined HEAD", <-head, 200, "", "collapsed")
		w.want("range of a hit", w.get("/p", "Range: bytes=0-0"), 206, "v", "hit")
		w.want("HEAD of a hit", <-w.client(0, "HEAD", "/p"), 200, "", "hit")
		w.asked("/p", 3)
	})
}

// ranged answers like a server that knows ranges and If-Range, with a strong tag that is its version.
func ranged(body, tag string) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		rec := httptest.NewRecorder()
		rec.Header().Set("Etag", tag)
		rec.Header().Set("Cache-Control", "max-age=60")
		http.ServeContent(rec, r, "", time.Time{}, strings.NewReader(body))
		return rec.Result(), nil
	}
}

// A cold range is asked for as it is and kept as a part, which serves what lies inside it. A later GET of the whole
// asks for the rest, on the condition that it is the rest of the same, and the two make one answer.
func TestPartIsServedAndCompleted(t *testing.T) {
	for first, rest := range map[string]string{"bytes=0-3": "bytes=4-9", "bytes=6-": "bytes=0-5"} {
		t.Run(first, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", ranged("0123456789", `"a"`))
				part := map[string]string{"bytes=0-3": "0123", "bytes=6-": "6789"}[first]
				w.want("cold", w.get("/p", "Range: "+first), 206, part, "fwd=uri-miss; stored")
				r := w.get("/p", "Range: "+first)
				w.want("again", r, 206, part, "hit")
				if got := r.Header().Get("Content-Range"); !strings.HasSuffix(got, "/10") {
					t.Errorf("Content-Range %q", got)
				}
				w.asked("/p", 1)
				w.want("whole", w.get("/p"), 200, "0123456789", "fwd=partial; fwd-status=206; stored")
				if got := w.up.asked["/p"][1].Header; got.Get("Range") != rest || got.Get("If-Range") != `"a"` {
					t.Errorf("asked for %v", got)
				}
				w.want("stored", w.get("/p"), 200, "0123456789", "hit")
				w.want("range of it", w.get("/p", "Range: bytes=2-7"), 206, "234567", "hit")
				w.asked("/p", 2)
			})
		})
	}
}

// A part that is all there is is the whole (RFC 9110 §15.3.7.3), whatever its tag: players ask for bytes=0- first.
func TestPartOfEveryByteIsTheWhole(t *testing.T) {
	for _, first := range []string{"bytes=0-", "bytes=0-9"} {
		inWorld(t, setup{}, func(w *world) {
			w.up.on("/p", ranged("0123456789", `W/"a"`))
			w.want("cold", w.get("/p", "Range: "+first), 206, "0123456789", "fwd=uri-miss; stored")
			r := w.get("/p")
			w.want("whole", r, 200, "0123456789", "hit")
			if h := r.Header(); h.Get("Content-Range") != "" || h.Get("Content-Length") != "10" {
				t.Errorf("%v", h)
			}
			w.want("range", w.get("/p", "Range: bytes=2-3"), 206, "23", "hit")
			w.asked("/p", 1)
		})
	}
}

// What says that it is bytes 4 to 9 and has five of them is passed on to its asker, whose business it is, and kept for
// nobody: no two readings of it agree.
func TestPartOfAnotherLengthIsNotKept(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", func(*http.Request, int) (*http.Response, error) {
			h := http.Header{"Content-Range": {"bytes 4-9/10"}, "Cache-Control": {"max-age=60"}, "Etag": {`"a"`}}
			return &http.Response{StatusCode: 206, Header: h, ContentLength: 5, Body: io.NopCloser(strings.NewReader("01234"))}, nil
		})
		for i, asked := range []string{"bytes=-5", "bytes=-5", "bytes=4-8", "bytes=5-"} {
			w.want(asked, w.get("/p", "Range: "+asked), 206, "01234", "fwd=")
			w.asked("/p", i+1)
		}
	})
}

// Two parts without a validator are not known to be of one answer (RFC 9111 §3.4).
func TestPartsWithoutAValidatorAreNotCombined(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
			res, err := ranged("0123456789", `"a"`)(r, n)
			res.Header.Del("Etag")
			return res, err
		})
		w.want("first", w.get("/p", "Range: bytes=0-4"), 206, "01234", "stored")
		w.want("second", w.get("/p", "Range: bytes=5-9"), 206, "56789", "fwd=partial")
		w.want("whole", w.get("/p"), 200, "0123456789", "fwd=")
		w.asked("/p", 3)
		if got := w.up.asked["/p"][2].Header.Get("Range"); got != "" {
			t.Errorf("only %s was asked for", got)
		}
	})
}

// Without Last-Modified the answer's Date stands in (RFC 9111 §4.3.2): what came after the client's date is sent whole.
func TestDateStandsInForLastModified(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		now := time.Now()
		w.up.on("/p", respond(200, "Cache-Control: max-age=60", "Date: "+now.UTC().Format(http.TimeFormat)))
		w.get("/p")
		w.want("older", w.get("/p", "If-Modified-Since: "+now.Add(-time.Second).UTC().Format(http.TimeFormat)), 200, "v1", "hit")
		w.want("as old", w.get("/p", "If-Modified-Since: "+now.UTC().Format(http.TimeFormat)), 304, "", "hit")
		w.asked("/p", 1)
	})
}

// A part of something else is no part: the whole is asked for, and nothing is mixed.
func TestPartOfAnOlderVersionIsNotCombined(t *testing.T) {
	for name, tags := range map[string][2]string{"changed": {`"a"`, `"b"`}, "weak": {`W/"a"`, `W/"a"`}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", ranged("0123456789", tags[0]))
				w.want("part", w.get("/p", "Range: bytes=0-3"), 206, "0123", "stored")
				w.up.on("/p", ranged("abcdefghij", tags[1]))
				w.want("whole", w.get("/p"), 200, "abcdefghij", "stored")
				w.want("stored", w.get("/p"), 200, "abcdefghij", "hit")
			})
		})
	}
}

// Many who ask for one cold range cost one request; who asks for another meanwhile starts one fill of the whole, which
// all others join.
func TestRangesCollapse(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(time.Second, ranged("0123456789", `"a"`)))
		var same, others []<-chan result
		for range 10 {
			same = append(same, w.client(0, "GET", "/p", "Range: bytes=0-3"))
		}
		synctest.Wait()
		for range 10 {
			others = append(others, w.client(0, "GET", "/p", "Range: bytes=5-6"))
		}
		for _, c := range same {
			w.want("same", <-c, 206, "0123", "fwd=uri-miss")
		}
		for _, c := range others {
			w.want("other", <-c, 206, "56", "weir")
		}
		w.asked("/p", 2)
		w.want("whole", w.get("/p"), 200, "0123456789", "hit")
	})
}

// While the length is not known, a range that names both its ends is answered without it.
func TestRangeOfAGrowingBody(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		gate := make(chan struct{})
		w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
			res, err := respond(200, "Cache-Control: max-age=60")(r, n)
			res.ContentLength, res.TransferEncoding = -1, []string{"chunked"}
			res.Body = io.NopCloser(io.MultiReader(strings.NewReader("01234"), gated{gate}, strings.NewReader("56789")))
			return res, err
		})
		whole := w.client(0, "GET", "/p")
		synctest.Wait()
		r := w.get("/p", "Range: bytes=1-2")
		w.want("closed range", r, 206, "12", "collapsed")
		if got := r.Header().Get("Content-Range"); got != "bytes 1-2/*" {
			t.Errorf("Content-Range %q", got)
		}
		past := w.client(0, "GET", "/p", "Range: bytes=8-20")
		synctest.Wait()
		close(gate)
		w.want("range past the end", <-past, 206, "89", "collapsed")
		w.want("whole", <-whole, 200, "0123456789", "stored")
	})
}

// gated is a reader without bytes that ends when its gate opens.
type gated struct{ gate <-chan struct{} }

func (g gated) Read([]byte) (int, error) {
	<-g.gate
	return 0, io.EOF
}

func TestOnlyIfCached(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.want("cold", w.get("/p", "Cache-Control: only-if-cached"), 504, "*", "detail=only-if-cached")
		w.asked("/p", 0)
		w.get("/p")
		w.want("stored", w.get("/p", "Cache-Control: only-if-cached"), 200, "v1", "hit")
	})
}

func TestWaitingIsBounded(t *testing.T) {
	inWorld(t, setup{config: func(c *Config) { c.MaxWaiting = 10 }}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		var clients []<-chan result
		for range 20 {
			clients = append(clients, w.client(0, "GET", "/p"))
			synctest.Wait()
		}
		codes := map[int]int{}
		for _, c := range clients {
			codes[(<-c).Code]++
		}
		if codes[200] != 10 || codes[503] != 10 {
			t.Errorf("codes %v, want ten of each", codes)
		}
	})
}

func TestWaitMax(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.Wait.Max = time.Second }}, func(w *world) {
		w.up.on("/p", after(3*time.Second, respond(200, "Cache-Control: max-age=60")))
		asker := w.client(0, "GET", "/p")
		synctest.Wait()
		r := w.get("/p")
		w.want("waiter", r, 503, "*", "detail=wait-timeout")
		if r.took != time.Second || r.Header().Get("Retry-After") == "" {
			t.Errorf("after %v, Retry-After %q", r.took, r.Header().Get("Retry-After"))
		}
		w.want("asker", <-asker, 200, "v1", "stored")
	})
}

func TestUnsafeMethodInvalidates(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.get("/p")
		w.want("POST", <-w.client(0, "POST", "/p"), 200, "v2", "fwd=method")
		w.want("GET", w.get("/p"), 200, "v3", "weir; fwd=stale; stored")
	})
}

// Two users of two languages on one page: each variant is fetched once and found again.
func TestVary(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", after(time.Second, func(r *http.Request, n int) (*http.Response, error) {
			res, err := respond(200, "Cache-Control: max-age=60", "Vary: X-Lang")(r, n)
			body := r.Header.Get("X-Lang")
			res.Body, res.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			return res, err
		}))
		for _, round := range []string{"cold", "stored"} {
			a, b, c := w.client(0, "GET", "/p", "X-Lang: a"), w.client(0, "GET", "/p", "X-Lang: b"), w.client(0, "GET", "/p")
			w.want(round, <-a, 200, "a", "weir")
			w.want(round, <-b, 200, "b", "weir")
			w.want(round, <-c, 200, "", "weir")
		}
		w.asked("/p", 3)
	})
}

func TestStoreAwayStillCollapses(t *testing.T) {
	away := func(s store.Store) store.Store { return absent{s} }
	inWorld(t, setup{store: away}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		var clients []<-chan result
		for range 50 {
			clients = append(clients, w.client(0, "GET", "/p"))
		}
		for _, c := range clients {
			w.want("island", <-c, 200, "v1", "weir; fwd=uri-miss")
		}
		w.asked("/p", 1)
	})
}

// absent is a store that is away.
type absent struct{ store.Store }

func (absent) Peek(policy.Key) (*store.Entry, bool) { return nil, false }
func (absent) Take(context.Context, policy.Key, store.Want) (store.Taken, error) {
	return store.Taken{}, errors.Join(store.ErrUnavailable)
}
