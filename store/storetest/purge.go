package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

// repeatedPurgeChecks: what is purged softly again keeps the windows that began with the first purge since it was leased.
func repeatedPurgeChecks() (checks []check) {
	kinds := selectors()
	kinds["page"], kinds["all"] = policy.Selector{Page: page("x").Primary}, policy.Selector{All: true}
	for kind, sel := range kinds {
		checks = append(checks,
			check{"soft purges by " + kind + " do not begin the grace anew", func(c *bench) {
				c.marked()
				c.purge(c.b, sel, store.Soft)
				first := c.take(c.a, page("x"), look()).Entry
				c.pass(3 * short)
				c.purge(c.b, sel, store.Soft)
				c.began(first.FreshUntil)
			}},
			check{"nor where nobody looks between the purges by " + kind, func(c *bench) {
				c.seed(page("x"), "zero", -time.Second)
				c.purge(c.b, sel, store.Soft)
				c.marked()
				c.purge(c.b, sel, store.Soft)
				first := time.Now()
				for range store.Softs {
					c.pass(3 * short)
					c.purge(c.b, sel, store.Soft)
				}
				c.began(first)
			}},
		)
	}
	return checks
}

// began asserts that an hour's windows began at that moment or before, long before now.
func (c *bench) began(first time.Time) {
	c.Helper()
	for name, s := range map[string]Store{"a": c.a, "b": c.b} {
		got := c.take(s, page("x"), look()).Entry
		c.staleFor(got, time.Hour)
		if late := got.FreshUntil.Sub(first); late > short {
			c.Errorf("%s: the windows began %v after the first purge", name, late)
		}
	}
}

func purgeChecks() []check {
	return []check{
		{"a hard purge drops the page, its variants and its signpost", func(c *bench) {
			c.seedVariant("x", "de")
			c.seedVariantBeside("x", "en")
			c.seed(page("y"), "other", long)
			c.purge(c.b, policy.Selector{Page: page("x").Primary}, store.Hard)
			for _, key := range []policy.Key{page("x"), variant("x", "de"), variant("x", "en")} {
				c.empty(key)
				for _, s := range []Store{c.a, c.b} {
					if _, ok := s.Peek(key); ok {
						c.Errorf("%v can still be peeked at", key)
					}
				}
			}
			c.holds(page("y"), "other")
		}},
		{"a hard purge revokes running leases", func(c *bench) { revokes(c, store.Hard) }},
		{"a soft purge revokes running leases", func(c *bench) { revokes(c, store.Soft) }},
		{"an invalidation revokes running leases", func(c *bench) { revokes(c, store.MustValidate) }},
		{"a soft purge makes stale and keeps the rest", func(c *bench) {
			c.seed(page("x"), "one", long)
			before := c.take(c.a, page("x"), look()).Entry
			c.purge(c.b, policy.Selector{Page: page("x").Primary}, store.Soft)
			got := c.take(c.a, page("x"), want("t2"))
			if got.Entry == nil || got.Lease == nil {
				c.Fatalf("taken = %+v, want the stale entry and the lease", got)
			}
			c.staleFor(got.Entry, time.Hour)
			if !before.FreshUntil.After(time.Now()) {
				c.Error("an entry that was read has been written to")
			}
			c.holds(page("x"), "one")
		}},
		{"where nothing stale may be served, a soft purge leaves nothing to serve", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			e := answer("one", long)
			e.RefreshUntil, e.RescueUntil = e.FreshUntil, e.FreshUntil
			c.commit(c.a, l, write(page("x"), e))
			c.purge(c.b, policy.Selector{Page: page("x").Primary}, store.Soft)
			c.staleFor(c.take(c.a, page("x"), want("t2")).Entry, 0)
		}},
		{"an invalidation leaves a copy for validation only", func(c *bench) {
			c.seed(page("x"), "one", long)
			c.purge(c.a, policy.Selector{Page: page("x").Primary}, store.MustValidate)
			e := c.take(c.b, page("x"), look()).Entry
			if e == nil {
				c.Fatal("the copy is gone")
			}
			for _, t := range []time.Time{e.FreshUntil, e.RefreshUntil, e.RescueUntil} {
				if t.After(time.Now()) {
					c.Errorf("usable until %v", t)
				}
			}
			if !e.NoStale {
				c.Errorf("a client that takes stale answers is given it")
			}
			c.holds(page("x"), "one")
		}},
		{"a soft purge makes fresh nothing that was stale", func(c *bench) {
			c.seed(page("x"), "one", -time.Minute)
			before := c.take(c.a, page("x"), look()).Entry.FreshUntil
			c.purge(c.b, policy.Selector{Page: page("x").Primary}, store.Soft)
			if got := c.take(c.a, page("x"), look()).Entry.FreshUntil; !got.Equal(before) {
				c.Errorf("fresh until %v, before %v", got, before)
			}
		}},
		{"a soft purge of a page reaches its variants", func(c *bench) {
			c.seedVariant("x", "de")
			c.purge(c.b, policy.Selector{Page: page("x").Primary}, store.Soft)
			sign := c.take(c.a, page("x"), want("t2"))
			if sign.Entry == nil || sign.Entry.Kind != policy.Signpost || sign.Lease != nil {
				c.Errorf("at the page: %+v, want the signpost and no lease: it still tells where the variants are", sign)
			}
			got := c.take(c.a, variant("x", "de"), want("t3"))
			if got.Entry == nil || got.Lease == nil {
				c.Errorf("at the variant: %+v, want the stale entry and the lease", got)
			}
		}},
		{"after a purge the page can be filled again", func(c *bench) {
			c.seed(page("x"), "one", long)
			c.purge(c.a, policy.Selector{Page: page("x").Primary}, store.Hard)
			l := c.lease(c.b, page("x"), want("t2"))
			c.commit(c.b, l, write(page("x"), answer("two", long)))
			c.holds(page("x"), "two")
		}},
		{"who comes too late to wait for what was purged is told so, whoever holds the next lease", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			c.purge(c.b, policy.Selector{Page: page("x").Primary}, store.Hard)
			c.lease(c.b, page("x"), want("t2"))
			for _, s := range []Store{c.a, c.b} {
				c.learnsAtOnce(s, l, store.Revoked)
			}
		}},
		{"a purge of all covers every page and lease", func(c *bench) {
			for _, name := range []string{"x", "y", "z"} {
				c.seed(page(name), name, long)
			}
			l := c.lease(c.a, page("w"), want("t1"))
			c.purge(c.b, policy.Selector{All: true}, store.Hard)
			for _, name := range []string{"x", "y", "z"} {
				c.empty(page(name))
			}
			c.closes(l.Lost)
			c.lost(c.a, l, write(page("w"), answer("late", long)))
		}},
		{"a selector that names nothing, or two things, is refused", func(c *bench) {
			for _, sel := range []policy.Selector{{}, {Page: page("x").Primary, All: true}, {Tag: "a", Host: "b"}} {
				if _, err := c.a.Purge(c.ctx, sel, store.Hard); err == nil {
					c.Errorf("%+v: no error", sel)
				}
			}
		}},
		{"watchers on both replicas hear of purges before it returns", watchersHear},
		{"a watcher is told first how the line is", func(c *bench) {
			for _, s := range []Store{c.a, c.b} {
				if first := c.watch(s).all()[0]; first != (store.Event{Kind: store.Healed}) {
					c.Errorf("told first: %+v", first)
				}
			}
		}},
		{"watchers hear of a signpost with a line more", func(c *bench) {
			c.seedVariant("x", "de")
			heard := c.watch(c.b)
			c.seedVariantBeside("x", "en")
			until(c, "the other replica has heard", func() bool {
				return slices.ContainsFunc(heard.all(), func(e store.Event) bool {
					return e.Kind == store.Replaced && e.Key == page("x")
				})
			})
		}},
		{"watchers hear of replacements", func(c *bench) {
			c.seed(page("x"), "one", -time.Second)
			heard := c.watch(c.b)
			l := c.lease(c.a, page("x"), want("t2"))
			c.commit(c.a, l, write(page("x"), answer("two", long)))
			until(c, "the other replica has heard", func() bool {
				return slices.ContainsFunc(heard.all(), func(e store.Event) bool {
					return e.Kind == store.Replaced && e.Key == page("x") && e.At == l.Taken
				})
			})
		}},
	}
}

func (c *bench) seedVariantBeside(name, language string) {
	c.Helper()
	l := c.lease(c.a, variant(name, language), want("seed "+language))
	c.commit(c.a, l, variantWrite(name, language))
}

func (c *bench) purge(s Store, sel policy.Selector, mode store.Mode) {
	c.Helper()
	if _, err := s.Purge(c.ctx, sel, mode); err != nil {
		c.Fatalf("purge: %v", err)
	}
}

// staleFor asserts that an entry is stale since a moment ago, and of use for so long after that moment: the same windows
// as before, counted from the purge.
func (c *bench) staleFor(e *store.Entry, window time.Duration) {
	c.Helper()
	if e == nil {
		c.Fatal("the stale entry is gone")
	}
	now := time.Now()
	if since := now.Sub(e.FreshUntil); since < 0 || since > limit {
		c.Errorf("fresh until %v, want until just now, %v", e.FreshUntil, now)
	}
	for _, t := range []time.Time{e.RefreshUntil, e.RescueUntil} {
		// What the store counts in microseconds is not compared by nanoseconds.
		if left := t.Sub(e.FreshUntil); (left - window).Abs() > time.Microsecond {
			c.Errorf("stale for %v, want %v", left, window)
		}
	}
}

// revokes: what was asked for before a purge is not stored after it, whatever key of the page it is leased under.
func revokes(c *bench, mode store.Mode) {
	l := c.lease(c.a, page("x"), want("t1"))
	v := c.lease(c.a, variant("x", "v"), want("t2"))
	here, there := c.await(c.a, l), c.await(c.b, l)
	c.purge(c.b, policy.Selector{Page: page("x").Primary}, mode)
	c.closes(l.Lost)
	c.closes(v.Lost)
	c.learns(here, store.Revoked)
	c.learns(there, store.Revoked)
	c.lost(c.a, l, write(page("x"), answer("before the purge", long)))
	c.lost(c.a, v, write(variant("x", "v"), answer("before the purge", long)))
	c.empty(page("x"))
	c.empty(variant("x", "v"))
	c.lease(c.b, page("x"), want("t3"))
	c.lost(c.a, l, write(page("x"), answer("before the purge", long)))
}

// hearing is what a watcher has been told.
type hearing struct {
	mu     sync.Mutex
	events []store.Event
}

func (h *hearing) all() []store.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// watch starts a watcher and returns when it hears. That it does is known from a purge of another page.
func (c *bench) watch(s Store) *hearing {
	c.Helper()
	h := &hearing{}
	ctx, stop := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Watch(ctx, func(e store.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		})
	}()
	c.Cleanup(func() {
		stop()
		<-done
	})
	until(c, "the watcher hears", func() bool {
		c.purge(s, policy.Selector{Page: page("nobody's").Primary}, store.Hard)
		return len(h.all()) > 0
	})
	return h
}

func watchersHear(c *bench) {
	here, there := c.watch(c.a), c.watch(c.b)
	c.seed(page("x"), "one", long)
	sel := policy.Selector{Page: page("x").Primary}
	c.purge(c.a, sel, store.Soft)
	for name, h := range map[string]*hearing{"its own": here, "the other": there} {
		if !slices.ContainsFunc(h.all(), func(e store.Event) bool {
			return e.Kind == store.PurgedNote && e.Selector == sel && e.Mode == store.Soft
		}) {
			c.Errorf("%s replica heard only %+v", name, h.all())
		}
	}
}
