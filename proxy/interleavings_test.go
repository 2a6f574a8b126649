package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

// bodyOf answers a body with its length, or chunked when it is followed by "chunked".
func bodyOf(body io.Reader, length int64, lines ...string) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		res, err := respond(200, lines...)(r, n)
		if res.ContentLength = length; length < 0 {
			res.TransferEncoding = []string{"chunked"}
		}
		res.Body = io.NopCloser(body)
		return res, err
	}
}

// A growing body is read once, from its beginning: of several ranges the whole is sent, never other bytes.
func TestManyRangesOfAGrowingBody(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		gate := make(chan struct{})
		w.up.on("/p", bodyOf(io.MultiReader(strings.NewReader("0123456789"), gated{gate}, strings.NewReader("ABCDEFGHIJ")), 20, "Cache-Control: max-age=60"))
		whole := w.client(0, "GET", "/p")
		synctest.Wait()
		many := w.client(0, "GET", "/p", "Range: bytes=0-1,5-6")
		synctest.Wait()
		close(gate)
		<-whole
		w.want("joined", <-many, 200, "0123456789ABCDEFGHIJ", "collapsed")
		r := w.get("/p", "Range: bytes=0-1,5-6")
		if r.Code != 206 || !strings.Contains(r.Body.String(), "\r\n\r\n01\r\n") || !strings.Contains(r.Body.String(), "\r\n\r\n56\r\n") {
			t.Errorf("stored: %d %q", r.Code, r.Body)
		}
	})
}

// A range of a body that is not kept and whose length is not known must not wait for bytes that it keeps from coming.
func TestRangeOfAnUnkeptBody(t *testing.T) {
	inWorld(t, setup{config: func(c *Config) { c.MaxBody = 1 << 20 }}, func(w *world) {
		w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
			return bodyOf(strings.NewReader(strings.Repeat("x", 4<<20)), -1, "Cache-Control: max-age=60")(r, n)
		})
		first := w.client(0, "GET", "/p")
		r := <-w.client(0, "GET", "/p", "Range: bytes=3000000-3000009")
		if r.aborted || r.Code != 200 && r.Code != 206 || r.took > time.Second {
			t.Errorf("%d, aborted %v, after %v", r.Code, r.aborted, r.took)
		}
		<-first
	})
}

// R4: the first answer that can be kept ends a marker, one that lies beside a good copy too.
func TestMarkBesideACopyEnds(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=1", `Etag: "a"`), respond(200, "Cache-Control: no-store"), respond(200, "Cache-Control: max-age=60")))
		w.want("kept", w.get("/p"), 200, "v1", "stored")
		time.Sleep(2 * time.Second)
		w.want("no-store", w.get("/p"), 200, "v2", "detail=no-store")
		w.want("alone", w.get("/p"), 200, "v3", "fwd=miss; stored")
		w.want("stored", w.get("/p"), 200, "v3", "hit")
	})
}

// unseen is a store as Redis is: nothing can be seen of it without asking.
type unseen struct{ store.Store }

func (unseen) Peek(policy.Key) (*store.Entry, bool) { return nil, false }

// A fill that has to ask twice is read by those who join meanwhile: what it was asked is not written to.
func TestJoiningAFillThatAsksAgain(t *testing.T) {
	inWorld(t, setup{store: func(s store.Store) store.Store { return unseen{s} }}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=1", `Etag: "a"`),
			after(time.Second, respond(304, `Etag: "other"`)), after(time.Second, respond(200, "Cache-Control: max-age=60"))))
		w.get("/p")
		time.Sleep(2 * time.Second)
		var clients []<-chan result
		for range 300 {
			clients = append(clients, w.client(0, "GET", "/p"))
			time.Sleep(5 * time.Millisecond)
		}
		for _, c := range clients {
			w.want("joined", <-c, 200, "v3", "weir; fwd=stale")
		}
		w.asked("/p", 3)
	})
}

// readOnly is a store that grants no lease while it is on (R16).
type readOnly struct {
	store.Store
	on *atomic.Bool
}

func (r readOnly) Take(ctx context.Context, k policy.Key, want store.Want) (store.Taken, error) {
	if r.on.Load() && want.TTL > 0 {
		want.TTL = 0
		t, _ := r.Store.Take(ctx, k, want)
		return t, store.ErrReadOnly
	}
	return r.Store.Take(ctx, k, want)
}

// Where nothing can be kept nothing is refreshed; and no more refreshes run than may.
func TestRefreshesAreBounded(t *testing.T) {
	on := &atomic.Bool{}
	const stale = "Cache-Control: max-age=1, stale-while-revalidate=1000"
	inWorld(t, setup{store: func(s store.Store) store.Store { return readOnly{s, on} }}, func(w *world) {
		w.up.on("/p", respond(200, stale))
		w.get("/p")
		time.Sleep(2 * time.Second)
		on.Store(true)
		for range 100 {
			w.want("read only", w.get("/p"), 200, "v1", "hit")
		}
		w.asked("/p", 1)
		on.Store(false)
		gate := make(chan struct{})
		page := func(i int) string { return fmt.Sprint("/q", i) }
		for i := range 200 {
			w.up.on(page(i), inTurn(respond(200, stale), func(r *http.Request, n int) (*http.Response, error) {
				<-gate
				return respond(200, "Cache-Control: max-age=60")(r, n)
			}))
			w.get(page(i))
		}
		time.Sleep(2 * time.Second)
		for i := range 200 {
			w.get(page(i))
		}
		if g := w.replicas[0].Gauges(); g.FillsRunning != refreshesAtOnce || g.RefreshDropped != 200-refreshesAtOnce {
			t.Errorf("%d run and %d were dropped, want %d and %d", g.FillsRunning, g.RefreshDropped, refreshesAtOnce, 200-refreshesAtOnce)
		}
		close(gate)
	})
}

// lossy is a store whose first grant is not heard of.
type lossy struct {
	store.Store
	lost *atomic.Bool
}

func (l lossy) Take(ctx context.Context, k policy.Key, want store.Want) (store.Taken, error) {
	t, err := l.Store.Take(ctx, k, want)
	if t.Lease != nil && l.lost.CompareAndSwap(false, true) {
		return store.Taken{}, fmt.Errorf("take: %w", store.ErrUnavailable)
	}
	return t, err
}

// R14: a take whose reply is lost may have been granted. The fill runs under the token it sent, and commit decides.
func TestLostReplyIsNoGhostLease(t *testing.T) {
	inWorld(t, setup{store: func(s store.Store) store.Store { return lossy{s, &atomic.Bool{}} }}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.want("first", w.get("/p"), 200, "v1", "fwd=uri-miss")
		r := w.get("/p")
		w.want("second", r, 200, "v1", "hit")
		if r.took != 0 {
			t.Errorf("waited %v", r.took)
		}
		w.asked("/p", 1)
	})
}

// distant is a store whose replies take a while.
type distant struct{ store.Store }

func (d distant) Take(ctx context.Context, k policy.Key, want store.Want) (store.Taken, error) {
	t, err := d.Store.Take(ctx, k, want)
	time.Sleep(2 * time.Millisecond)
	return t, err
}

// R15: a look and a take are two flights. The one that meets the other's lease joins its fill, and waits for nobody else.
func TestOwnLeaseIsKnown(t *testing.T) {
	inWorld(t, setup{store: func(s store.Store) store.Store { return distant{unseen{s}} }}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		get := w.client(0, "GET", "/p")
		time.Sleep(time.Millisecond)
		head := w.client(0, "HEAD", "/p")
		time.Sleep(100 * time.Millisecond)
		if g := w.replicas[0].Gauges(); g.WaitingRemote != 0 || g.WaitingLocal != 2 {
			t.Errorf("%+v", g)
		}
		w.want("GET", <-get, 200, "v1", "stored")
		w.want("HEAD", <-head, 200, "", "collapsed")
		w.asked("/p", 1)
	})
}

// What is larger than may be kept is told at the head, or when it shows: another replica need not wait for its end.
func TestTooLargeHoldsUpNobodyElse(t *testing.T) {
	for name, length := range map[string]int64{"announced": 1 << 20, "found out": -1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{replicas: 2, config: func(c *Config) { c.MaxBody = 64 << 10 }}, func(w *world) {
				w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
					body := io.MultiReader(strings.NewReader(strings.Repeat("x", 512<<10)), pause(20*time.Second), strings.NewReader(strings.Repeat("x", 512<<10)))
					return bodyOf(body, length, "Cache-Control: max-age=60")(r, n)
				})
				first := w.client(0, "GET", "/p")
				time.Sleep(time.Second)
				other := <-w.client(1, "GET", "/p")
				if other.aborted || other.Body.Len() != 1<<20 || other.took != 20*time.Second {
					t.Errorf("the other replica's client: %d bytes after %v", other.Body.Len(), other.took)
				}
				if r := <-first; r.aborted || r.Body.Len() != 1<<20 {
					t.Errorf("first: %d bytes", r.Body.Len())
				}
			})
		})
	}
}

// pause is a reader that ends after a while.
type pause time.Duration

func (p pause) Read([]byte) (int, error) {
	time.Sleep(time.Duration(p))
	return 0, io.EOF
}

// A drain ends when its time is over, whatever trickles.
func TestDrainEndsWhatTrickles(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
			return bodyOf(trickle{r.Context()}, -1)(r, n)
		})
		ctx, leave := context.WithCancel(w.t.Context())
		client := w.send(0, httptest.NewRequestWithContext(ctx, "POST", "http://example.com/p", nil))
		time.Sleep(time.Second)
		limit, stop := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer stop()
		began := time.Now()
		if err := w.replicas[0].Drain(limit); err == nil {
			t.Error("drained, although the body goes on")
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("drained after %v, with 10 s to do it", took)
		}
		leave()
		<-client
	})
}

// trickle is a body that sends a byte a second for ever.
type trickle struct{ ctx context.Context }

func (t trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		p[0] = 'x'
		return 1, nil
	case <-t.ctx.Done():
		return 0, t.ctx.Err()
	}
}

// A purge that was acknowledged ends the page's relay on the other replica too: who comes afterwards asks anew (R13).
func TestPurgeEndsARelay(t *testing.T) {
	f := newFleet(t)
	gate := make(chan struct{})
	defer close(gate)
	f.up.on("/p", inTurn(gatedBody(gate, "OLD|", "old", "Cache-Control: max-age=60"), respond(200, "Cache-Control: max-age=60")))
	for replica := range 2 {
		if _, err := f.get(replica, "/p"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.handlers[0].Purge(t.Context(), "http://example.com/p", store.Hard); err != nil {
		t.Fatal(err)
	}
	h := f.handlers[1]
	plan := h.policy.Load().Plan(h.request(httptest.NewRequest("GET", "http://example.com/p", nil)))
	until(t, "the other has let go", func() bool { return h.table.Running(plan) == nil })
	for replica := range 2 {
		res, err := f.get(replica, "/p")
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "v2" {
			t.Errorf("replica %d: %q, %v", replica, body, err)
		}
	}
}

// A relay whose source broke is gone at once: the next client does not wait for the holder's lease.
func TestBrokenRelayIsNotJoined(t *testing.T) {
	f := newFleet(t)
	gate := make(chan struct{})
	f.up.on("/p", gatedBody(gate, "first|", "rest", "Cache-Control: max-age=60"))
	if _, err := f.get(0, "/p"); err != nil {
		t.Fatal(err)
	}
	follower, err := f.get(1, "/p")
	if err != nil {
		t.Fatal(err)
	}
	f.peers[0].CloseClientConnections()
	if _, err := io.ReadAll(follower.Body); err == nil {
		t.Error("ended cleanly")
	}
	until(t, "the broken relay is gone", func() bool { return f.handlers[1].Gauges().FillsRunning == 0 })
	next, err := f.get(1, "/p") // a relay of its own
	if err != nil {
		t.Fatal(err)
	}
	close(gate)
	if body, err := io.ReadAll(next.Body); err != nil || string(body) != "first|rest" {
		t.Errorf("%q, %v", body, err)
	}
}

// R8, R13: a purge by tag reaches a fill whose tags were not known when it came: who comes afterwards waits for the
// next, and what was purged is not kept.
func TestPurgeByTagDuringAFill(t *testing.T) {
	for name, after := range map[string]time.Duration{"before its head": 500 * time.Millisecond, "behind its head": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{replicas: 2, cache: func(c *policy.Cache) { c.Tags.Header = []string{"Cache-Tag"} }}, func(w *world) {
				w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
					time.Sleep(time.Second)
					body := io.MultiReader(strings.NewReader("v"), pause(time.Second), strings.NewReader(fmt.Sprint(n)))
					return bodyOf(body, 2, "Cache-Control: max-age=60", "Cache-Tag: T, U")(r, n)
				})
				before := w.client(0, "GET", "/p")
				synctest.Wait()
				aboard := w.client(0, "GET", "/p")
				time.Sleep(after)
				if _, err := w.store.Purge(w.t.Context(), policy.Selector{Tag: "T"}, store.Hard); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				since, other := w.client(0, "GET", "/p"), w.client(1, "GET", "/p")
				w.want("its asker", <-before, 200, "v1", "weir")
				w.want("aboard before the purge", <-aboard, 200, "v1", "collapsed")
				w.want("after the purge", <-since, 200, "v2", "weir")
				w.want("after the purge, on the other replica", <-other, 200, "v2", "weir")
				w.asked("/p", 2)
				w.want("stored", w.get("/p"), 200, "v2", "hit")
			})
		})
	}
}

// A refresh queues behind others that came before, until a client boards it: then it goes before them (R26).
func TestBoardingPromotesARefresh(t *testing.T) {
	one := setup{cache: func(c *policy.Cache) { c.Grace.Well = time.Minute }, upstream: func(c *upstream.Config) { c.MaxConcurrent, c.QueueTimeout = 1, time.Minute }}
	inWorld(t, one, func(w *world) {
		for _, page := range []string{"/p", "/q"} {
			w.up.on(page, inTurn(respond(200, "Cache-Control: max-age=60"), after(time.Second, respond(200, "Cache-Control: max-age=60"))))
			w.get(page)
		}
		w.up.on("/slow", after(time.Second, respond(200)))
		time.Sleep(61 * time.Second)
		slow := w.client(0, "GET", "/slow")
		synctest.Wait()
		for _, page := range []string{"/q", "/p"} { // in the queue in this order
			w.want("stale", w.get(page), 200, "v1", "detail=stale-refresh")
			synctest.Wait()
		}
		boarded := w.client(0, "GET", "/p", "Cache-Control: no-cache")
		<-slow
		r := <-boarded
		if w.want("boarded", r, 200, "v2", "collapsed"); r.took != 2*time.Second {
			t.Errorf("it took %v; after one second of the slow page it was its turn", r.took)
		}
	})
}
