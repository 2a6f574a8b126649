package redis

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

// opens asks until the breaker has opened, and answers the longest that one question took.
func (b *bench) opens() (slowest time.Duration) {
	b.Helper()
	eventually(b, "the breaker opens", func() bool {
		asked := time.Now()
		_, err := b.Take(b.Context(), page("x"), want("t1"))
		b.fails(err, store.ErrUnavailable)
		slowest = max(slowest, time.Since(asked))
		return !b.breaker.closed()
	})
	return slowest
}

// costsNothing asserts that with the breaker open no verb asks Redis.
func (b *bench) costsNothing(body store.Body) {
	b.Helper()
	trips := b.countTrips()
	ctx, l := b.Context(), store.Lease{Key: page("x"), Token: "t1", Taken: 1}
	_, err := b.Take(ctx, page("x"), want("t1"))
	b.fails(err, store.ErrUnavailable)
	_, err = b.Renew(ctx, l, long)
	b.fails(err, store.ErrUnavailable)
	b.fails(b.Commit(ctx, l, write(page("x"), answer("one", long))), store.ErrUnavailable)
	b.fails(b.Commit(ctx, l, write(page("x"), answer(string(noise(mib, 1)), long))), store.ErrUnavailable)
	b.fails(b.Release(ctx, l, store.Outcome{}), store.ErrUnavailable)
	_, err = b.Await(ctx, l)
	b.fails(err, store.ErrUnavailable)
	_, err = b.Purge(ctx, policy.Selector{Page: "p"}, store.Hard)
	b.fails(err, store.ErrUnavailable)
	_, err = body.ReadAt(ctx, make([]byte, 1), 2*mib)
	b.fails(err, store.ErrUnavailable)
	// The breaker's own probe pings by the same client.
	if n := trips.n.Load(); n > 2 {
		b.Errorf("%d round trips were tried", n)
	}
}

func TestKilledRedis(t *testing.T) {
	b := newBench(t)
	b.seed(page("big"), string(noise(3*mib, 1)), long)
	body := b.taken(page("big"), look()).Entry.Body
	l := b.lease(page("y"), "t2")
	heard := b.watch()
	waits := make(chan error, 1)
	go func() {
		_, err := b.Await(t.Context(), l)
		waits <- err
	}()
	eventually(t, "somebody waits", func() bool { return b.Waiting() == 1 })

	b.srv.kill()
	b.fails(<-waits, store.ErrUnavailable)
	b.opens()
	b.costsNothing(body)
	b.fails(b.Check(t.Context()), store.ErrUnavailable)
	eventually(t, "watchers know", func() bool { return heard.has(store.Event{Kind: store.Silence}) })

	b.srv.start()
	eventually(t, "the breaker closes", b.breaker.closed)
	eventually(t, "watchers know", func() bool { return heard.has(store.Event{Kind: store.Healed}) })
	// Redis has forgotten everything, which is no purge: the fill that ran through it all is stored.
	b.must(b.Commit(t.Context(), l, write(page("y"), answer("one", long))))
	b.holds(page("y"), "one")
}

// TestPausedRedis: a black hole, which takes bytes and answers nothing.
func TestPausedRedis(t *testing.T) {
	b := newBench(t)
	b.timeout = 100 * time.Millisecond
	b.seed(page("big"), string(noise(3*mib, 1)), long)
	body := b.taken(page("big"), look()).Entry.Body
	heard := b.watch()
	b.srv.pause()
	if slowest := b.opens(); slowest > 5*b.timeout { // on loaded cores
		t.Errorf("a question took %v", slowest)
	}
	b.costsNothing(body)
	eventually(t, "watchers know", func() bool { return heard.has(store.Event{Kind: store.Silence}) })
	b.srv.resume()
	eventually(t, "the breaker closes", b.breaker.closed)
	eventually(t, "watchers know", func() bool { return heard.has(store.Event{Kind: store.Healed}) })
	b.holds(page("big"), string(noise(3*mib, 1)))
}

// TestCallersDeadline: what ended because the caller gave up says nothing about Redis.
func TestCallersDeadline(t *testing.T) {
	b := newBench(t)
	b.srv.pause()
	for range 2 * patience {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := b.Take(ctx, page("x"), want("t1"))
		cancel()
		b.fails(err, context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		_, err = b.Take(ctx, page("x"), want("t1"))
		b.fails(err, context.Canceled)
	}
	if !b.breaker.closed() {
		t.Error("the breaker took impatience for an outage")
	}
	b.srv.resume()
}

// TestBulkFeedsNoBreaker: that a megabyte takes long says little about Redis.
func TestBulkFeedsNoBreaker(t *testing.T) {
	b := newBench(t)
	b.seed(page("big"), string(noise(2*mib+1, 1)), long)
	body := b.taken(page("big"), look()).Entry.Body
	b.srv.pause()
	b.timeout = time.Millisecond
	for range 2 * patience {
		if n, err := body.ReadAt(t.Context(), make([]byte, 1), 2*mib); n != 0 || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if !b.breaker.closed() {
		t.Error("the breaker counts bulk transfers")
	}
	b.srv.resume()
	b.timeout = long
	if n, err := body.ReadAt(t.Context(), make([]byte, 1), 2*mib); n != 1 {
		t.Errorf("the fault has outlived itself: %v", err)
	}
}

func TestUnreachableAtStart(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Mode: "single", Addresses: []string{"/nowhere/redis.sock"}, Prefix: "weir", Timeout: time.Second})
	if err != nil {
		t.Fatalf("open: %v, want only Check to tell", err)
	}
	if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("check: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dead, probes := true, 0
		b := breaker{every: 100 * time.Millisecond, probe: func() error {
			mu.Lock()
			defer mu.Unlock()
			probes++
			if dead {
				return errFault
			}
			return nil
		}}
		for range patience - 1 {
			if b.fault() {
				t.Fatal("opened too early")
			}
		}
		b.fine() // a good answer between them, and they are no row
		for i := range patience {
			if opened := b.fault(); opened != (i == patience-1) {
				t.Fatalf("fault %d: opened = %v", i+1, opened)
			}
		}
		if b.closed() || b.fault() {
			t.Fatal("it opens twice, or not at all")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go b.heal(ctx)
		time.Sleep(10 * time.Second) // in the bubble's time
		mu.Lock()
		if b.closed() || probes < 66 || probes > 200 { // each after 50 to 150 ms
			t.Errorf("closed %v after %d probes", b.closed(), probes)
		}
		dead = false
		mu.Unlock()
		time.Sleep(150 * time.Millisecond)
		if !b.closed() {
			t.Error("still open, though a probe got through")
		}
		cancel()
	})
}
