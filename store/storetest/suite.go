package storetest

import (
	"context"
	"runtime"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// Open gives two handles on one new, empty store, as two replicas have them, and closes them by t.Cleanup.
// Both handles tell how many exchanges wait in Await.
type Open func(t *testing.T) (a, b Store)

// Store is a store as the suite needs it: "somebody waits" is known from the counter, never from a sleep.
type Store interface {
	store.Store
	Waiting() int64
}

// Wrap runs one case. testing/synctest.Test is one, for a store that does no I/O; RealClock is the other.
type Wrap func(t *testing.T, body func(t *testing.T))

// RealClock runs a case as it is.
func RealClock(t *testing.T, body func(t *testing.T)) { body(t) }

// Run holds a store to the contract.
func Run(t *testing.T, open Open, wrap Wrap) {
	for _, list := range [][]check{leaseChecks(), waitChecks(), entryChecks(), signChecks(), purgeChecks(), repeatedPurgeChecks(), noteChecks(), failureChecks(), closingChecks()} {
		for _, c := range list {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				wrap(t, func(t *testing.T) { c.run(begin(t, open)) })
			})
		}
	}
	// Parallel subtests start when this function has returned, so until then the goroutines are this one's.
	t.Run("close leaves no goroutine", func(t *testing.T) {
		before := runtime.NumGoroutine()
		wrap(t, func(t *testing.T) { leavesNothing(begin(t, open)) })
		until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// check is one clause of the contract.
type check struct {
	name string
	run  func(c *bench)
}

// bench is what a check works with: two replicas' handles and a context that ends it if it hangs.
type bench struct {
	*testing.T
	ctx  context.Context
	a, b Store
}

const (
	long  = time.Minute           // a term that no check outlives
	short = 80 * time.Millisecond // a term that checks wait out
	limit = 20 * time.Second      // of a whole check
)

func begin(t *testing.T, open Open) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	a, b := open(t)
	return &bench{T: t, ctx: ctx, a: a, b: b}
}

// until waits for what another goroutine or the store itself brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("still not: %s", what)
		}
	}
}

// page is a page's own key.
func page(name string) policy.Key { return policy.Key{Primary: "api http://example.com/" + name} }

// variant is the key of one of its variants.
func variant(name, variant string) policy.Key {
	return policy.Key{Primary: page(name).Primary, Variant: variant}
}

func want(token string) store.Want {
	return store.Want{Token: token, Holder: "peer of " + token, TTL: long, At: time.Now()}
}

func look() store.Want { return store.Want{At: time.Now()} }

func (c *bench) take(s Store, key policy.Key, w store.Want) store.Taken {
	c.Helper()
	got, err := s.Take(c.ctx, key, w)
	if err != nil {
		c.Fatalf("take: %v", err)
	}
	return got
}

// lease takes the lease, which must be free.
func (c *bench) lease(s Store, key policy.Key, w store.Want) store.Lease {
	c.Helper()
	got := c.take(s, key, w)
	if got.Lease == nil {
		c.Fatalf("take by %s: no lease: %+v", w.Token, got)
	}
	return *got.Lease
}

func (c *bench) commit(s Store, l store.Lease, w store.Write) {
	c.Helper()
	if err := s.Commit(c.ctx, l, w); err != nil {
		c.Fatalf("commit by %s: %v", l.Token, err)
	}
}

// seed puts an answer into the store, as any other way there is none.
func (c *bench) seed(key policy.Key, body string, fresh time.Duration) store.Lease {
	c.Helper()
	l := c.lease(c.a, key, want("seed "+body))
	c.commit(c.a, l, write(key, answer(body, fresh)))
	return l
}

// answer is fresh for so long (or was), and may be served stale and stand in for an hour more.
func answer(body string, fresh time.Duration) *store.Entry {
	now := time.Now()
	e := &store.Entry{Body: store.Bytes{[]byte(body)}}
	e.Status, e.Header = 200, map[string][]string{"Content-Type": {"text/plain"}, "Etag": {`"` + body + `"`}}
	e.Asked, e.Arrived = now, now
	e.FreshUntil = now.Add(fresh)
	e.RefreshUntil, e.RescueUntil = e.FreshUntil.Add(time.Hour), e.FreshUntil.Add(time.Hour)
	return e
}

func write(key policy.Key, e *store.Entry) store.Write {
	return store.Write{Key: key, Entry: e, Keep: time.Hour}
}

// pass returns when the store has let so much time go by: a lease of that term has run out.
func (c *bench) pass(term time.Duration) {
	c.Helper()
	w := want("the hourglass")
	w.TTL = term
	c.closes(c.lease(c.a, page("hourglass"), w).Lost)
}

// holds asserts that both replicas find the body under the key.
func (c *bench) holds(key policy.Key, body string) {
	c.Helper()
	for name, s := range map[string]Store{"a": c.a, "b": c.b} {
		e := c.take(s, key, look()).Entry
		if e == nil {
			c.Fatalf("%s finds nothing, want %q", name, body)
		}
		if got := c.read(e); got != body {
			c.Fatalf("%s finds %.40q, want %.40q", name, got, body)
		}
	}
}

// empty asserts that neither replica finds anything.
func (c *bench) empty(key policy.Key) {
	c.Helper()
	for name, s := range map[string]Store{"a": c.a, "b": c.b} {
		if e := c.take(s, key, look()).Entry; e != nil {
			c.Fatalf("%s finds an entry (kind %d)", name, e.Kind)
		}
	}
}

func (c *bench) read(e *store.Entry) string {
	c.Helper()
	if e.Body == nil {
		return ""
	}
	p := make([]byte, e.Body.Size())
	if n, err := e.Body.ReadAt(c.ctx, p, 0); n != len(p) {
		c.Fatalf("body: %d of %d bytes: %v", n, len(p), err)
	}
	return string(p)
}

// waiter is one exchange in Await.
type waiter struct {
	out  store.Outcome
	err  error
	done chan struct{}
}

// await starts a waiter and returns when the store counts it.
func (c *bench) await(s Store, l store.Lease) *waiter {
	c.Helper()
	w, before := &waiter{done: make(chan struct{})}, s.Waiting()
	go func() {
		defer close(w.done)
		w.out, w.err = s.Await(c.ctx, l)
	}()
	until(c, "somebody waits", func() bool { return s.Waiting() > before })
	return w
}

// learns asserts how the wait ended.
func (c *bench) learns(w *waiter, end store.End) store.Outcome {
	c.Helper()
	select {
	case <-w.done:
	case <-c.ctx.Done():
		c.Fatal("the waiter learned nothing")
	}
	if w.err != nil || w.out.End != end {
		c.Fatalf("the waiter learned %+v, %v; want end %d", w.out, w.err, end)
	}
	return w.out
}

// learnsAtOnce asserts what is known of a lease that has ended.
func (c *bench) learnsAtOnce(s Store, l store.Lease, end store.End) {
	c.Helper()
	if out, err := s.Await(c.ctx, l); err != nil || out.End != end {
		c.Errorf("who asks late learns %+v, %v; want end %d", out, err, end)
	}
}

// closes asserts that the holder is told that its lease is lost.
func (c *bench) closes(lost <-chan struct{}) {
	c.Helper()
	select {
	case <-lost:
	case <-c.ctx.Done():
		c.Fatal("the holder was not told that its lease is lost")
	}
}
