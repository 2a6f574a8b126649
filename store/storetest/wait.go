package storetest

import (
	"context"
	"errors"
	"time"

	"weir/policy"
	"weir/store"
)

func waitChecks() []check {
	return []check{
		{"waiters on both replicas learn Filled", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			here, there := c.await(c.a, l), c.await(c.b, l)
			c.commit(c.a, l, write(page("x"), answer("one", long)))
			for _, w := range []*waiter{here, there} {
				if out := c.learns(w, store.Filled); out.Taken != l.Taken {
					c.Errorf("filled by the lease of %d, want %d", out.Taken, l.Taken)
				}
			}
			c.holds(page("x"), "one")
		}},
		{"waiters learn Failed, with the upstream's fault", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			here, there := c.await(c.a, l), c.await(c.b, l)
			fault := policy.Fault{Kind: policy.BadStatus, Status: 503, RetryAfter: 7 * time.Second}
			if err := c.a.Release(c.ctx, l, store.Outcome{End: store.Failed, Fault: fault}); err != nil {
				c.Fatal(err)
			}
			for _, w := range []*waiter{here, there} {
				if out := c.learns(w, store.Failed); out.Fault != fault {
					c.Errorf("fault = %+v, want %+v", out.Fault, fault)
				}
			}
			c.lease(c.b, page("x"), want("t2"))
		}},
		{"waiters learn Lapsed when the holder gives up", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			here, there := c.await(c.a, l), c.await(c.b, l)
			if err := c.a.Release(c.ctx, l, store.Outcome{End: store.Lapsed}); err != nil {
				c.Fatal(err)
			}
			c.learns(here, store.Lapsed)
			c.learns(there, store.Lapsed)
		}},
		{"waiters learn Lapsed when the lease runs out", func(c *bench) {
			w := want("t1")
			w.TTL = short
			l := c.lease(c.a, page("x"), w)
			here, there := c.await(c.a, l), c.await(c.b, l)
			c.learns(here, store.Lapsed)
			c.learns(there, store.Lapsed)
			c.closes(l.Lost)
			c.lease(c.b, page("x"), want("t2"))
		}},
		{"who waits for a lease that has ended is told at once", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			c.commit(c.a, l, write(page("x"), answer("one", long)))
			if out, err := c.b.Await(c.ctx, l); err != nil || out.End != store.Filled {
				c.Errorf("after the commit: %+v, %v", out, err)
			}
			// A lease that nobody knows of may have ended long ago.
			if out, err := c.b.Await(c.ctx, store.Lease{Key: page("x"), Token: "unheard of"}); err != nil || out.End != store.Lapsed {
				c.Errorf("of a lease unheard of: %+v, %v", out, err)
			}
			c.lease(c.a, page("y"), want("t2"))
			if out, err := c.b.Await(c.ctx, store.Lease{Key: page("y"), Token: "t1"}); err != nil || out.End != store.Lapsed {
				c.Errorf("of a lease before the one that is held: %+v, %v", out, err)
			}
		}},
		{"a waiter that leaves stops waiting", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			for _, s := range []Store{c.a, c.b} {
				ctx, leave := context.WithCancel(c.ctx)
				done := make(chan error, 1)
				go func() {
					_, err := s.Await(ctx, l)
					done <- err
				}()
				until(c, "it waits", func() bool { return s.Waiting() == 1 })
				leave()
				if err := <-done; !errors.Is(err, context.Canceled) {
					c.Errorf("await: %v, want %v", err, context.Canceled)
				}
				if n := s.Waiting(); n != 0 {
					c.Errorf("%d still wait", n)
				}
			}
		}},
		{"no verb hangs on a cancelled context", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			// Each may do its deed or refuse, but it returns: the check's own limit is what fails here.
			for _, s := range []Store{c.a, c.b} {
				_, _ = s.Take(ctx, page("x"), want("t2"))
				_, _ = s.Renew(ctx, l, long)
				_, _ = s.Await(ctx, l)
				_ = s.Commit(ctx, l, write(page("x"), answer("one", long)))
				_ = s.Release(ctx, l, store.Outcome{End: store.Lapsed})
				_, _ = s.Purge(ctx, policy.Selector{Page: page("x").Primary}, store.Hard)
				_ = s.Watch(ctx, func(store.Event) {})
				_ = s.Check(ctx)
			}
			if err := c.ctx.Err(); err != nil {
				c.Error(err)
			}
		}},
	}
}
