package storetest

import (
	"context"
	"errors"
	"time"

	"weir/policy"
	"weir/store"
)

func failureChecks() []check {
	return []check{
		{"a remembered failure spares the upstream while a copy can stand in", func(c *bench) {
			fault := c.fail(page("x"), long)
			got := c.take(c.b, page("x"), want("t3"))
			if got.Lease != nil || got.Entry == nil || got.Failed == nil {
				c.Fatalf("taken = %+v, want the copy and the failure", got)
			}
			if got.Failed.End != store.Failed || got.Failed.Fault != fault {
				c.Errorf("failed = %+v, want %+v", *got.Failed, fault)
			}
		}},
		{"despite a remembered failure the lease can be had", func(c *bench) {
			c.fail(page("x"), long)
			w := want("t3")
			w.Despite = store.EveryFailure
			l := c.lease(c.b, page("x"), w)
			c.commit(c.b, l, write(page("x"), answer("two", -time.Second)))
			// The upstream has answered: nothing of the failure is left.
			c.lease(c.a, page("x"), want("t4"))
		}},
		{"who goes on despite a failure does not go on despite a newer one", failsAgain},
		{"how long a failure is remembered is told by what is left of it", func(c *bench) {
			c.fail(page("x"), long)
			c.pass(short)
			for name, s := range map[string]Store{"a": c.a, "b": c.b} {
				got := c.take(s, page("x"), want("t3"))
				if got.Failed == nil {
					c.Fatalf("%s: taken = %+v, want the failure", name, got)
				}
				if left := got.Failed.Remember; left <= 0 || left > long-short {
					c.Errorf("%s: %v are left, want %v at most", name, left, long-short)
				}
			}
		}},
		{"a failure is remembered for a while only", func(c *bench) {
			c.fail(page("x"), short)
			until(c, "the lease can be had", func() bool {
				return c.take(c.b, page("x"), want("t3")).Lease != nil
			})
		}},
		{"without a copy the next request asks", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			c.release(c.a, l, store.Outcome{End: store.Failed, Remember: long})
			c.lease(c.b, page("x"), want("t2"))
		}},
		{"a copy that may not stand in does not count", failsBesideUseless},
		{"a failure that is not to be remembered is not", func(c *bench) {
			c.fail(page("x"), 0)
			c.lease(c.b, page("x"), want("t3"))
		}},
	}
}

func failsBesideUseless(c *bench) {
	l := c.lease(c.a, page("x"), want("t1"))
	e := answer("one", -time.Minute)
	e.RefreshUntil, e.RescueUntil = e.FreshUntil, e.FreshUntil
	c.commit(c.a, l, write(page("x"), e))
	l = c.lease(c.a, page("x"), want("t2"))
	c.release(c.a, l, store.Outcome{End: store.Failed, Remember: long})
	c.lease(c.b, page("x"), want("t3"))
}

// failsAgain: two replicas find at once that a failure no longer counts.
func failsAgain(c *bench) {
	c.fail(page("x"), long)
	here, there := want("t3"), want("t4")
	here.Despite = c.take(c.a, page("x"), here).Failed.Taken
	there.Despite = c.take(c.b, page("x"), there).Failed.Taken
	again := store.Outcome{End: store.Failed, Fault: policy.Fault{Kind: policy.Refused}, Remember: long}
	c.release(c.a, c.lease(c.a, page("x"), here), again)
	got := c.take(c.b, page("x"), there)
	if got.Lease != nil || got.Failed == nil || got.Failed.Fault != again.Fault {
		c.Fatalf("taken = %+v, want the newer failure", got)
	}
	if got.Failed.Taken <= there.Despite {
		c.Errorf("the newer failure is of %d, the older of %d", got.Failed.Taken, there.Despite)
	}
	there.Despite = got.Failed.Taken
	c.lease(c.b, page("x"), there)
}

func closingChecks() []check {
	return []check{
		{"check passes, and fails once closed", func(c *bench) {
			if err := c.a.Check(c.ctx); err != nil {
				c.Errorf("check: %v", err)
			}
			for range 2 { // closing twice is no error
				if err := c.a.Close(); err != nil {
					c.Errorf("close: %v", err)
				}
			}
			if err := c.a.Check(c.ctx); !errors.Is(err, store.ErrUnavailable) {
				c.Errorf("check of a closed store: %v, want %v", err, store.ErrUnavailable)
			}
		}},
	}
}

func (c *bench) release(s Store, l store.Lease, out store.Outcome) {
	c.Helper()
	if err := s.Release(c.ctx, l, out); err != nil {
		c.Fatalf("release: %v", err)
	}
}

// fail leaves a stale copy that may stand in, and beside it a failure to refresh it.
func (c *bench) fail(key policy.Key, remember time.Duration) policy.Fault {
	c.Helper()
	c.seed(key, "one", -time.Second)
	l := c.lease(c.a, key, want("t2"))
	fault := policy.Fault{Kind: policy.BadStatus, Status: 502, RetryAfter: 3 * time.Second}
	c.release(c.a, l, store.Outcome{End: store.Failed, Fault: fault, Remember: remember})
	return fault
}

// leavesNothing uses all that may start a goroutine, and closes both handles under it.
func leavesNothing(c *bench) {
	w := want("t1")
	l := c.lease(c.a, page("x"), w)
	here, there := c.await(c.a, l), c.await(c.b, l)
	watched := make(chan error, 2)
	for _, s := range []Store{c.a, c.b} {
		go func() { watched <- s.Watch(context.WithoutCancel(c.ctx), func(store.Event) {}) }()
	}
	for _, s := range []Store{c.a, c.b} {
		if err := s.Close(); err != nil {
			c.Errorf("close: %v", err)
		}
	}
	for _, w := range []*waiter{here, there} {
		select {
		case <-w.done:
		case <-c.ctx.Done():
			c.Fatal("a waiter hangs in a closed store")
		}
		if !errors.Is(w.err, store.ErrUnavailable) {
			c.Errorf("a waiter in a closed store got %v, want %v", w.err, store.ErrUnavailable)
		}
	}
	for range 2 {
		select {
		case err := <-watched:
			if err == nil {
				c.Error("a watcher of a closed store learned nothing")
			}
		case <-c.ctx.Done():
			c.Fatal("a watcher hangs in a closed store")
		}
	}
}
