package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
	"weir/store/storetest"
)

// fails is an upstream that gives no answer.
func fails(err error) answer {
	return func(*http.Request, int) (*http.Response, error) { return nil, err }
}

// breaks is an answer whose body ends with err after a few bytes.
func breaks(end io.Reader) answer {
	return bodyOf(io.MultiReader(strings.NewReader("v"), end), 100, "Cache-Control: max-age=60")
}

var dialFails = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

// faults is every way in which an upstream fails, and what Cache-Status says of it.
var faults = []struct {
	name   string
	answer answer
	says   string
	status int // for those for whom nothing stands in
}{
	{"refused", fails(dialFails), "upstream-refused", 502},
	{"no such host", fails(&net.DNSError{}), "upstream-refused", 502},
	{"bad certificate", fails(&tls.CertificateVerificationError{Err: errors.New("unknown authority")}), "upstream-refused", 502},
	{"reset", fails(io.EOF), "upstream-reset", 502},
	{"no head in time", fails(timeout{}), "upstream-timeout", 504},
	{"garbage", fails(errors.New("malformed HTTP response")), "upstream-garbage", 502},
	{"cut short", breaks(broken{io.ErrUnexpectedEOF}), "upstream-truncated", 0},
	{"stalled", breaks(stalls{}), "upstream-timeout", 0},
	{"500", respond(500), "upstream-status", 500},
	{"502", respond(502), "upstream-status", 502},
	{"503", respond(503), "upstream-status", 503},
	{"504", respond(504), "upstream-status", 504},
	{"429", respond(429), "upstream-status", 429},
	{"500 that may be kept", respond(500, "Cache-Control: max-age=30"), "upstream-status", 500},
	{"429 with a lifetime", respond(429, "Cache-Control: max-age=30"), "upstream-status", 429},
	{"304 about another", respond(304, `ETag: "other"`), "upstream-garbage", 502},
}

type timeout struct{}

func (timeout) Error() string   { return "timeout awaiting response headers" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// stalls is the rest of a body that never comes; its reader is freed when the fill gives it up.
type stalls struct{}

func (stalls) Read([]byte) (int, error) {
	time.Sleep(time.Minute)
	return 0, io.ErrUnexpectedEOF
}

// A stale copy stands in on every kind of failure, with a validator and without, and no failure replaces it (B080, B082).
func TestStaleOnEveryFailure(t *testing.T) {
	for _, f := range faults {
		for _, validator := range []string{"X: none", `ETag: "1"`} {
			t.Run(f.name+", "+validator, func(t *testing.T) {
				inWorld(t, setup{replicas: 2}, func(w *world) {
					w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", validator), f.answer))
					w.get("/p")
					time.Sleep(61 * time.Second)
					for i := range 6 {
						w.want("stale", <-w.client(i%2, "GET", "/p"), 200, "v1", "weir; ")
						if i == 0 {
							w.want("why", w.get("/p"), 200, "v1", "detail="+f.says)
						}
						time.Sleep(10 * time.Second)
					}
					w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
					time.Sleep(2 * time.Minute) // whatever pause there is
					if r := w.get("/p"); r.Code != 200 || r.Body.String() == "v1" || !strings.Contains(r.Header().Get("Cache-Status"), "stored") {
						t.Errorf("after that: %d %q %v", r.Code, r.Body, r.Header())
					}
				})
			})
		}
	}
}

// Where the copy may not stand in, or there is none, the failure is told, and the next request asks (R23).
func TestFailureWithoutACopy(t *testing.T) {
	for _, f := range faults {
		if f.status == 0 {
			continue // the head is out by then
		}
		t.Run(f.name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", f.answer)
				for i := range 3 {
					want := i + 1
					if strings.Contains(f.name, "may be kept") {
						want = 1
					}
					if r := w.get("/p"); r.Code != f.status {
						t.Errorf("%d, want %d", r.Code, f.status)
					}
					w.asked("/p", want)
				}
				w.up.on("/strict", inTurn(respond(200, "Cache-Control: max-age=60, must-revalidate", `ETag: "1"`), f.answer))
				w.get("/strict")
				time.Sleep(61 * time.Second)
				want := f.status
				if f.says != "upstream-status" {
					want = 504 // RFC 9111 §5.2.2.2
				}
				if r := w.get("/strict"); r.Code != want {
					t.Errorf("must-revalidate: %d, want %d", r.Code, want)
				}
			})
		})
	}
}

// watched notes when the upstream was asked.
func watched(times *[]time.Time, a answer) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		*times = append(*times, time.Now())
		return a(r, n)
	}
}

// The pauses between the requests for a page that fails double up to a minute, whichever replica asks; when it has
// answered, they begin anew. However many ask meanwhile, they have the stale copy.
func TestFailuresBackOff(t *testing.T) {
	cache := func(grace time.Duration) func(*policy.Cache) {
		return func(c *policy.Cache) { c.Grace.Well = grace }
	}
	for name, s := range map[string]setup{
		"in grace": {cache: cache(time.Hour)},
		"past it":  {},
	} {
		t.Run(name, func(t *testing.T) {
			s.replicas = 3
			inWorld(t, s, func(w *world) {
				var at []time.Time
				poll := func(d time.Duration) {
					for i := 0; d > 0; i++ {
						w.want("stale", <-w.client(i%3, "GET", "/p"), 200, "*", "")
						time.Sleep(100 * time.Millisecond)
						d -= 100 * time.Millisecond
					}
				}
				w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
				w.get("/p")
				time.Sleep(61 * time.Second)
				for range 2 {
					at = nil
					w.up.on("/p", watched(&at, respond(503)))
					poll(5 * time.Minute)
					for i, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
						if i+1 >= len(at) {
							t.Fatalf("asked %d times only", len(at))
						}
						least, got := pause*time.Second, at[i+1].Sub(at[i])
						if got < least || got > least+least/4+100*time.Millisecond {
							t.Errorf("pause %d was %v, want %v to %v", i, got, least, least+least/4)
						}
					}
					w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
					poll(80 * time.Second) // the last pause, and a fresh page
					time.Sleep(61 * time.Second)
				}
			})
		})
	}
}

// At the moment in which a pause ends two replicas find that it has. The one that asks later does not ask if the other's
// request has failed by then: a new pause has begun.
func TestEndOfAPauseIsOneRequest(t *testing.T) {
	slowly := func(s store.Store) store.Store {
		return storetest.Faulty(t, s.(storetest.Store), "take #3: done then 2ms")
	}
	inWorld(t, setup{replicas: 2, store: slowly}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), respond(503)))
		w.get("/p")
		time.Sleep(61 * time.Second)
		w.want("the failure", w.get("/p"), 200, "v1", "detail=upstream-status")
		time.Sleep(2 * time.Second) // the first pause is 1.25 s at most
		late := w.client(1, "GET", "/p")
		synctest.Wait() // it has seen that the pause is over
		w.want("first", w.get("/p"), 200, "v1", "detail=upstream-status")
		w.asked("/p", 3)
		w.want("late", <-late, 200, "v1", "weir; ")
		w.asked("/p", 3)
	})
}

// The upstream's own Retry-After is waited for.
func TestRetryAfter(t *testing.T) {
	inWorld(t, setup{replicas: 2}, func(w *world) {
		var at []time.Time
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), watched(&at, respond(429, "Retry-After: 300"))))
		w.get("/p")
		time.Sleep(61 * time.Second)
		for i := range 900 {
			w.want("stale", <-w.client(i%2, "GET", "/p"), 200, "v1", "weir; ")
			time.Sleep(time.Second)
		}
		if len(at) != 3 || at[1].Sub(at[0]) < 300*time.Second || at[2].Sub(at[1]) < 300*time.Second {
			t.Errorf("asked %v", at)
		}
	})
}

// A 500 that says that it may be kept replaces nothing, also when it comes after a 304 that had to be asked again (R28).
func TestErrorAfterABroken304(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(
			respond(200, "Cache-Control: max-age=60", `ETag: "1"`),
			respond(304, `ETag: "2"`), respond(500, "Cache-Control: max-age=30"), // one refresh
			respond(200, "Cache-Control: max-age=60", `ETag: "2"`),
		))
		w.get("/p")
		time.Sleep(61 * time.Second)
		w.want("stale", w.get("/p"), 200, "v1", "detail=upstream-status")
		w.asked("/p", 3)
		w.want("remembered", w.get("/p"), 200, "v1", "hit; ttl=-")
		w.asked("/p", 3)
		time.Sleep(2 * time.Second)
		w.want("well", w.get("/p"), 200, "v4", "stored")
	})
}

// A page without a body stands in as often as any other (B084).
func TestEmptyPagesStandIn(t *testing.T) {
	for status, a := range map[int]answer{
		200: bodyOf(http.NoBody, 0, "Cache-Control: max-age=1"),
		204: respond(204, "Cache-Control: max-age=1"),
		301: func(r *http.Request, n int) (*http.Response, error) {
			res, err := bodyOf(http.NoBody, 0, "Cache-Control: max-age=1", "Location: /q")(r, n)
			res.StatusCode = 301
			return res, err
		},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			for name, grace := range map[string]time.Duration{"in grace": time.Minute, "past it": 0} {
				inWorld(t, setup{cache: func(c *policy.Cache) { c.Grace.Well = grace }}, func(w *world) {
					w.up.on("/p", inTurn(a, respond(503)))
					w.get("/p")
					for range 3 {
						time.Sleep(2 * time.Second)
						w.want(name, w.get("/p"), status, "", "weir; ")
					}
				})
			}
		})
	}
}

// An error of ours is told to those who waited for it, once, and never kept, fresh or stale (B086).
func TestErrorsOfOursAreNotKept(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.Grace.Well, c.TTL = time.Hour, time.Hour }}, func(w *world) {
		w.up.on("/p", inTurn(after(time.Second, respond(500)), after(time.Second, fails(dialFails)), respond(200)))
		a, b := w.client(0, "GET", "/p"), w.client(0, "GET", "/p")
		w.want("first", <-a, 500, "*", "")
		w.want("second", <-b, 500, "*", "")
		a, b = w.client(0, "GET", "/p"), w.client(0, "GET", "/p")
		w.want("third", <-a, 502, "*", "")
		w.want("fourth", <-b, 502, "*", "")
		time.Sleep(10 * time.Second)
		w.want("well", w.get("/p"), 200, "v3", "fwd=uri-miss; stored")
	})
}

// What cannot be read by a client does not stand in for it (B088).
func TestWrongCodingDoesNotStandIn(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", "Content-Encoding: gzip", "Vary: Accept-Encoding"), respond(503)))
		w.get("/p", "Accept-Encoding: gzip")
		time.Sleep(61 * time.Second)
		w.want("gzip", w.get("/p", "Accept-Encoding: gzip"), 200, "v1", "fwd=stale")
		for _, coding := range []string{"Accept-Encoding: identity", "X: none"} {
			if r := w.get("/p", coding); r.Code != 503 || r.Header().Get("Content-Encoding") != "" {
				t.Errorf("%s: %d %v", coding, r.Code, r.Header())
			}
		}
	})
}

// Whoever sets off a refresh, it is a plain GET for the whole (B090).
func TestRefreshIsAPlainGet(t *testing.T) {
	for name, ask := range map[string][]string{
		"HEAD": nil, "a range": {"Range: bytes=0-0"}, "a condition": {`If-None-Match: "x"`}, "a date": {"If-Modified-Since: Mon, 30 Nov 2026 00:00:00 GMT"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{cache: func(c *policy.Cache) { c.Grace.Well = time.Minute }}, func(w *world) {
				w.up.on("/p", respond(200, "Cache-Control: max-age=60", `ETag: "1"`))
				w.get("/p")
				time.Sleep(61 * time.Second)
				method := "GET"
				if name == "HEAD" {
					method = name
				}
				<-w.client(0, method, "/p", ask...)
				synctest.Wait()
				w.asked("/p", 2)
				sent := w.up.asked["/p"][1]
				if sent.Method != "GET" || sent.Header.Get("Range") != "" || sent.Header.Get("If-None-Match") != `"1"` || sent.Header.Get("If-Modified-Since") != "" {
					t.Errorf("the refresh was %s %v", sent.Method, sent.Header)
				}
				w.want("whole", w.get("/p"), 200, "v2", "hit")
			})
		})
	}
}

// A page that was missing is seen soon after it has come (B136), and a temporary redirect is not kept by a ttl (B138).
func TestStatusesHaveTheirTerms(t *testing.T) {
	cache := func(c *policy.Cache) {
		c.TTL, c.Negative = time.Minute, []policy.Negative{{Status: []int{404}, TTL: 2 * time.Second}}
	}
	inWorld(t, setup{cache: cache}, func(w *world) {
		w.up.on("/p", inTurn(respond(404, "Cache-Control: max-age=60"), respond(200)))
		w.want("missing", w.get("/p"), 404, "v1", "stored")
		w.want("missing still", w.get("/p"), 404, "v1", "hit")
		time.Sleep(3 * time.Second)
		w.want("there", w.get("/p"), 200, "v2", "stored")
		for _, c := range []struct {
			status int
			line   string
			asked  int // of three requests, the last one 6 s later
		}{{302, "X: none", 3}, {307, "X: none", 3}, {302, "Cache-Control: max-age=5", 2}, {307, "Cache-Control: max-age=5", 2}, {301, "X: none", 1}, {308, "X: none", 1}} {
			path := fmt.Sprintf("/%d%s", c.status, strings.ReplaceAll(c.line, " ", ""))
			w.up.on(path, respond(c.status, "Location: /q", c.line))
			w.get(path)
			w.get(path)
			time.Sleep(6 * time.Second)
			w.get(path)
			w.asked(path, c.asked)
		}
	})
}

// lessor counts the leases that were granted.
type lessor struct {
	store.Store
	granted *int
}

func (l lessor) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	taken, err := l.Store.Take(ctx, key, want)
	if taken.Lease != nil {
		*l.granted++
	}
	return taken, err
}

// While the upstream cannot be reached, whoever has a copy to stand in is answered at once, and nobody asks but one
// request a second that tries; without one the answer is 503, and when to come again.
func TestUpstreamDown(t *testing.T) {
	leases := 0
	inWorld(t, setup{store: func(s store.Store) store.Store { return lessor{s, &leases} }}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.get("/p")
		time.Sleep(61 * time.Second)
		w.up.on("/p", after(2*time.Second, fails(dialFails)))
		for _, path := range []string{"/a", "/b", "/c", "/d", "/e"} {
			w.up.on(path, fails(dialFails))
			w.want(path, w.get(path), 502, "*", "upstream-refused")
		}
		if s := w.replicas[0].upstreams["api"].Stats(); s.Health != "down" {
			t.Fatalf("%+v", s)
		}
		before := leases
		for range 10 {
			r := w.get("/p")
			w.want("stale", r, 200, "v1", "detail=upstream-sick")
			if r.took > 0 {
				t.Errorf("took %v", r.took)
			}
			cold := w.get("/a")
			w.want("cold", cold, 503, "*", "detail=upstream-sick")
			if cold.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q", cold.Header().Get("Retry-After"))
			}
			w.want("pass", <-w.post("/a"), 503, "*", "")
			w.want("head", <-w.client(0, "HEAD", "/a"), 503, "*", "")
		}
		w.asked("/a", 1)
		w.asked("/p", 1)
		if leases != before {
			t.Errorf("%d leases were of no use", leases-before)
		}
		time.Sleep(2 * time.Second)
		w.up.on("/a", respond(200, "Cache-Control: max-age=60"))
		w.want("it tries, and is well", w.get("/a"), 200, "v2", "stored")
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.want("so is the rest", w.get("/p"), 200, "v2", "stored")
	})
}

// While the upstream fails on many pages, a stale copy has the grace that it has for a sick one: nobody waits.
func TestUpstreamSick(t *testing.T) {
	cache := func(c *policy.Cache) {
		c.TTL, c.StaleIfError, c.Grace = time.Minute, 0, policy.Grace{Well: time.Minute, Sick: time.Hour}
	}
	inWorld(t, setup{cache: cache}, func(w *world) {
		w.up.on("/p", respond(200))
		w.get("/p")
		time.Sleep(3 * time.Minute) // past its lifetime and the grace of a well upstream
		for i := range 20 {
			w.up.on(fmt.Sprint("/", i), respond(500))
			w.get(fmt.Sprint("/", i))
		}
		if s := w.replicas[0].upstreams["api"].Stats(); s.Health != "sick" {
			t.Fatalf("%+v", s)
		}
		w.up.on("/p", after(10*time.Second, respond(200)))
		r := w.get("/p")
		w.want("spared", r, 200, "v1", "hit; ttl=-120; detail=stale-refresh")
		w.asked("/p", 1)
		w.want("cold pages ask", w.get("/0"), 500, "v2", "fwd=uri-miss")
		time.Sleep(2 * time.Second)
		r = w.get("/p")
		w.want("a refresh behind it tries", r, 200, "v1", "hit; ttl=-122; detail=stale-refresh")
		if r.took > 0 {
			t.Errorf("took %v", r.took)
		}
		time.Sleep(11 * time.Second)
		w.asked("/p", 2)
		w.want("well", w.get("/p"), 200, "v2", "hit")
		time.Sleep(3 * time.Minute)
		if r := w.get("/p"); r.took != 10*time.Second {
			t.Errorf("a well upstream is asked: took %v", r.took)
		}
	})
}

// A joiner without a copy of its own does not share that a fill is spared: with it aboard the upstream is asked (R26).
func TestJoinerOfASparedFill(t *testing.T) {
	inWorld(t, setup{upstream: func(c *upstream.Config) { c.MaxConcurrent, c.QueueTimeout = 1, time.Minute }}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), respond(500)))
		w.get("/p")
		time.Sleep(61 * time.Second)
		var failing []<-chan result
		for i := range 20 {
			w.up.on(fmt.Sprint("/", i), after(10*time.Millisecond, respond(500)))
			failing = append(failing, w.client(0, "GET", fmt.Sprint("/", i)))
		}
		synctest.Wait()
		stale := w.client(0, "GET", "/p") // behind them in the queue
		synctest.Wait()
		other := w.client(0, "GET", "/p", "Cookie: sid=1")
		for _, c := range failing {
			w.want("failing", <-c, 500, "*", "")
		}
		w.want("stale", <-stale, 200, "v1", "fwd-status=500; detail=upstream-status")
		w.want("no copy for this one", <-other, 500, "*", "collapsed")
		w.asked("/p", 2)
	})
}

// Early refreshes give way when anybody queues (R26).
func TestEarlyRefreshGivesWay(t *testing.T) {
	inWorld(t, setup{
		cache:    func(c *policy.Cache) { c.EarlyRefresh = policy.EarlyRule{Mode: "power", Exponent: 0.001} },
		upstream: func(c *upstream.Config) { c.MaxConcurrent, c.QueueTimeout = 1, time.Minute },
	}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.up.on("/slow", after(10*time.Second, respond(200)))
		w.get("/p")
		time.Sleep(55 * time.Second)
		one := w.client(0, "GET", "/slow")
		two := w.client(0, "GET", "/slow?2")
		synctest.Wait()
		w.want("early", w.get("/p"), 200, "v1", "hit")
		w.asked("/p", 1)
		if g := w.replicas[0].Gauges(); g.RefreshDropped != 1 {
			t.Errorf("%+v", g)
		}
		<-one
		<-two
		synctest.Wait()
	})
}

// A head that is followed by half a body, or by nothing more, is a failure of the upstream too (R23).
func TestBodiesThatBreakMakeItSick(t *testing.T) {
	for name, end := range map[string]io.Reader{"cut short": broken{io.ErrUnexpectedEOF}, "stalled": stalls{}} {
		inWorld(t, setup{}, func(w *world) {
			var all []<-chan result
			for i := range 20 {
				w.up.on(fmt.Sprint("/", i), breaks(end))
				all = append(all, w.client(0, "GET", fmt.Sprint("/", i)))
			}
			for _, c := range all {
				<-c
			}
			if s := w.replicas[0].upstreams["api"].Stats(); s.Health != "sick" {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
}

// A refresh behind a copy in its grace that fails is not tried again by every request (R23), though nothing is stale if
// there is an error: in a minute of a request a second about six are sent, after 1, 2, 4, 8, 16 and 32 s.
func TestFailedRefreshBacksOffInGrace(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.StaleIfError, c.Grace.Well = 0, time.Hour }}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), respond(500)))
		w.get("/p")
		time.Sleep(61 * time.Second)
		for range 60 {
			w.want("stale", w.get("/p"), 200, "v1", "detail=stale-refresh")
			time.Sleep(time.Second)
		}
		if n := len(w.up.asked["/p"]); n < 5 || n > 8 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A passed body that stalls is given up, with trailers announced or without.
func TestPassedBodyThatStalls(t *testing.T) {
	for name, trailer := range map[string]http.Header{"plain": nil, "with a trailer": {"X-Sum": nil}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", func(r *http.Request, nth int) (*http.Response, error) {
					out, in := io.Pipe()
					go func() { _, _ = io.WriteString(in, "half") }()
					res, err := respond(200)(r, nth)
					res.Body, res.ContentLength, res.Trailer = out, -1, trailer
					return res, err
				})
				got := <-w.client(0, "POST", "/p")
				if got.took != 30*time.Second || got.Body.String() != "half" {
					t.Errorf("after %v: %d %q; want half, and the end after idle_timeout, 30s", got.took, got.Code, got.Body)
				}
			})
		})
	}
}
