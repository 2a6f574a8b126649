package storetest

import (
	"errors"
	"time"

	"weir/policy"
	"weir/store"
)

func leaseChecks() []check {
	return []check{
		{"an empty key grants the lease", func(c *bench) {
			got := c.take(c.a, page("x"), want("t1"))
			if got.Entry != nil || got.HeldBy != nil || got.Failed != nil {
				c.Errorf("beside the lease there is %+v", got)
			}
			l := got.Lease
			if l == nil || l.Key != page("x") || l.Token != "t1" || l.Holder != "peer of t1" || l.Taken == 0 || l.Lost == nil {
				c.Errorf("lease = %+v", l)
			}
		}},
		{"a second take is told who holds it", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			got := c.take(c.b, page("x"), want("t2"))
			if got.Lease != nil || got.HeldBy == nil {
				c.Fatalf("taken = %+v", got)
			}
			h := got.HeldBy
			if h.Token != "t1" || h.Holder != "peer of t1" || h.Taken != l.Taken || h.Key != page("x") || h.Lost != nil {
				c.Errorf("held by %+v, want the first: %+v", h, l)
			}
		}},
		{"a lease is taken over from a holder that is gone, and should it live it writes nothing", func(c *bench) {
			dead := c.lease(c.a, page("x"), want("t1"))
			w := want("t2")
			w.Over = "somebody else"
			if got := c.take(c.b, page("x"), w); got.Lease != nil || got.HeldBy == nil {
				c.Fatalf("taken over from a holder that was not named: %+v", got)
			}
			waiter := c.await(c.b, dead)
			w.Over = "t1"
			heir := c.lease(c.b, page("x"), w)
			if heir.Taken <= dead.Taken {
				c.Errorf("taken at %d, after %d", heir.Taken, dead.Taken)
			}
			c.learns(waiter, store.Lapsed)
			if err := c.a.Commit(c.ctx, dead, write(page("x"), answer("dead", long))); !errors.Is(err, store.ErrLost) {
				c.Errorf("the former holder's commit: %v", err)
			}
			c.commit(c.b, heir, write(page("x"), answer("heir", long)))
			c.holds(page("x"), "heir")
		}},
		{"variants of a page have leases of their own", func(c *bench) {
			c.lease(c.a, page("x"), want("t1"))
			c.lease(c.b, variant("x", "v"), want("t2"))
		}},
		{"taking again by the same token is the same lease", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			again := c.lease(c.a, page("x"), want("t1"))
			if again.Taken != l.Taken {
				c.Errorf("taken at %d, then at %d", l.Taken, again.Taken)
			}
			c.commit(c.a, again, write(page("x"), answer("one", long)))
			c.holds(page("x"), "one")
		}},
		{"leases are told apart by when they were taken", func(c *bench) {
			var last uint64
			for i, s := range []Store{c.a, c.b, c.a, c.b} {
				l := c.lease(s, page("x"), want(string(rune('p'+i))))
				if l.Taken <= last {
					c.Errorf("taken at %d after %d", l.Taken, last)
				}
				last = l.Taken
				if err := s.Release(c.ctx, l, store.Outcome{End: store.Lapsed}); err != nil {
					c.Fatal(err)
				}
			}
		}},
		{"looking takes no lease", func(c *bench) {
			if got := c.take(c.a, page("x"), look()); got != (store.Taken{}) {
				c.Errorf("a look at nothing = %+v", got)
			}
			c.lease(c.b, page("x"), want("t1"))
			if got := c.take(c.a, page("x"), look()); got.Lease != nil || got.HeldBy == nil || got.HeldBy.Token != "t1" {
				c.Errorf("a look at a leased key = %+v", got)
			}
		}},
		{"what is fresh is answered without a lease", func(c *bench) {
			c.seed(page("x"), "one", long)
			got := c.take(c.b, page("x"), want("t2"))
			if got.Lease != nil || got.HeldBy != nil || got.Entry == nil {
				c.Errorf("taken = %+v", got)
			}
		}},
		{"what is stale is answered with the lease", func(c *bench) {
			c.seed(page("x"), "one", -time.Second)
			got := c.take(c.b, page("x"), want("t2"))
			if got.Lease == nil || got.Entry == nil || c.read(got.Entry) != "one" {
				c.Errorf("taken = %+v", got)
			}
			if got = c.take(c.a, page("x"), want("t3")); got.HeldBy == nil || got.Entry == nil {
				c.Errorf("the next, with the lease held: %+v", got)
			}
		}},
		{"a fresh entry is refreshed by the FreshUntil that was seen", refreshesBySeen},
		{"only the holder commits", onlyHolder},
		{"a commit again by the same token is the same commit", func(c *bench) {
			l := c.seed(page("x"), "one", long)
			c.commit(c.a, l, write(page("x"), answer("one", long)))
			c.holds(page("x"), "one")
		}},
		{"a commit by an older token is lost", func(c *bench) {
			old := c.seed(page("x"), "one", -time.Second)
			l := c.lease(c.b, page("x"), want("t2"))
			c.lost(c.a, old, write(page("x"), answer("old", long)))
			c.commit(c.b, l, write(page("x"), answer("two", long)))
			c.lost(c.a, old, write(page("x"), answer("old", long)))
			c.holds(page("x"), "two")
		}},
		{"a lease that ran out is another's", func(c *bench) {
			w := want("t1")
			w.TTL = short
			l := c.lease(c.a, page("x"), w)
			c.closes(l.Lost)
			next := c.lease(c.b, page("x"), want("t2"))
			c.lost(c.a, l, write(page("x"), answer("late", long)))
			if _, err := c.a.Renew(c.ctx, l, long); !errors.Is(err, store.ErrLost) {
				c.Errorf("renew of a lease that is another's: %v", err)
			}
			c.commit(c.b, next, write(page("x"), answer("two", long)))
			c.holds(page("x"), "two")
		}},
		{"a renewed lease lives on", renewedLives},
		{"renew answers the best class that waits", renewAnswersClass},
		{"released, the key is free", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			for range 2 { // a second time is no error
				if err := c.a.Release(c.ctx, l, store.Outcome{End: store.Lapsed}); err != nil {
					c.Fatalf("release: %v", err)
				}
			}
			c.lease(c.b, page("x"), want("t2"))
			if err := c.a.Release(c.ctx, l, store.Outcome{End: store.Lapsed}); err != nil {
				c.Errorf("release of a lease that is another's: %v", err)
			}
			if got := c.take(c.a, page("x"), want("t3")); got.HeldBy == nil || got.HeldBy.Token != "t2" {
				c.Errorf("a late release freed another's lease: %+v", got)
			}
			c.lost(c.a, l, write(page("x"), answer("late", long)))
		}},
		{"commit refuses another page's key", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			if err := c.a.Commit(c.ctx, l, write(page("y"), answer("one", long))); err == nil {
				c.Error("no error")
			}
			c.empty(page("y"))
		}},
	}
}

// lost asserts that nothing was written.
func (c *bench) lost(s Store, l store.Lease, w store.Write) {
	c.Helper()
	if err := s.Commit(c.ctx, l, w); !errors.Is(err, store.ErrLost) {
		c.Errorf("commit by %s: %v, want %v", l.Token, err, store.ErrLost)
	}
}

func refreshesBySeen(c *bench) {
	c.seed(page("x"), "one", long)
	seen := c.take(c.b, page("x"), look()).Entry
	w := want("t2")
	w.At = seen.FreshUntil
	got := c.take(c.b, page("x"), w)
	if got.Lease == nil || got.Entry == nil {
		c.Fatalf("taken = %+v, want the entry and the lease", got)
	}
	c.commit(c.b, *got.Lease, write(page("x"), answer("two", 2*long)))

	// Another replica saw the same and comes later: somebody has refilled meanwhile.
	w.Token = "t3"
	got = c.take(c.a, page("x"), w)
	if got.Lease != nil || got.Entry == nil || c.read(got.Entry) != "two" {
		c.Errorf("taken = %+v, want the new entry and no lease", got)
	}
}

func onlyHolder(c *bench) {
	l := c.lease(c.a, page("x"), want("t1"))
	thief := l
	thief.Token = "t2"
	c.lost(c.b, thief, write(page("x"), answer("stolen", long)))
	c.empty(page("x"))
	c.commit(c.a, l, write(page("x"), answer("one", long)))
	c.holds(page("x"), "one")
	if got := c.take(c.b, page("x"), look()).Entry; got.Leased != l.Taken {
		c.Errorf("leased at %d, want the lease's %d", got.Leased, l.Taken)
	}
}

func renewedLives(c *bench) {
	w := want("t1")
	w.TTL = short
	l := c.lease(c.a, page("x"), w)
	if _, err := c.a.Renew(c.ctx, l, long); err != nil {
		c.Fatalf("renew: %v", err)
	}
	c.pass(short)
	select {
	case <-l.Lost:
		c.Fatal("the renewed lease ran out")
	default:
	}
	if got := c.take(c.b, page("x"), want("t3")); got.HeldBy == nil {
		c.Errorf("the renewed lease is free: %+v", got)
	}
	c.commit(c.a, l, write(page("x"), answer("one", long)))
}

func renewAnswersClass(c *bench) {
	w := want("t1")
	w.Class = policy.WarmWaits
	l := c.lease(c.a, page("x"), w)
	renewed := func() policy.Class {
		class, err := c.a.Renew(c.ctx, l, long)
		if err != nil {
			c.Fatalf("renew: %v", err)
		}
		return class
	}
	if got := renewed(); got != policy.WarmWaits {
		c.Errorf("class = %d before anybody waits", got)
	}
	for i, class := range []policy.Class{policy.StaleWaits, policy.ClientWaits, policy.EarlyWaits} {
		w := want(string(rune('p' + i)))
		w.Class = class
		c.take(c.b, page("x"), w)
	}
	if got := renewed(); got != policy.ClientWaits {
		c.Errorf("class = %d, want the best that came", got)
	}
}
