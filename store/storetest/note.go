package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/policy"
	"weir/store"
)

// selectors are one of each kind that covers the page x as marked has it, and not the page beside it.
func selectors() map[string]policy.Selector {
	return map[string]policy.Selector{
		"tag":    {Tag: "red"},
		"prefix": {Prefix: page("x").Place()},
		"host":   {Host: page("x").Host()},
		"route":  {Route: "catalogue"},
	}
}

// beside is a page that none of the selectors covers.
func beside() policy.Key { return policy.Key{Primary: "api http://beside.example.com/y"} }

// tagged is an answer that has tags, and came by a route.
func tagged(body, route string, tags ...string) *store.Entry {
	e := answer(body, long)
	e.Route, e.Tags = route, tags
	return e
}

func noteChecks() []check {
	checks := []check{
		{"a purge by tag reaches the variant that has it", tagOfVariant},
		{"prefixes past the bound are purged by their host", func(c *bench) {
			for i := range store.Prefixes {
				c.purge(c.a, policy.Selector{Prefix: fmt.Sprintf("example.com/%d/", i)}, store.Hard)
			}
			c.seed(page("x"), "one", long)
			c.seed(beside(), "other", long)
			c.purge(c.b, policy.Selector{Prefix: "example.com/0/"}, store.Hard)
			c.holds(page("x"), "one")
			c.purge(c.b, policy.Selector{Prefix: "example.com/more/"}, store.Hard)
			c.empty(page("x"))
			c.holds(beside(), "other")
		}},
		{"a purge by tag frees the lease that refreshes what has it", func(c *bench) {
			c.marked()
			w := want("t3")
			w.At = time.Now().Add(2 * long)
			before := c.lease(c.a, page("x"), w)
			waiter := c.await(c.b, before)
			c.purge(c.b, policy.Selector{Tag: "red"}, store.Soft)
			after := c.lease(c.b, page("x"), want("t4"))
			c.learns(waiter, store.Revoked)
			c.lost(c.a, before, write(page("x"), answer("before the purge, and without the tag", long)))
			c.commit(c.b, after, write(page("x"), answer("after it", long)))
			c.holds(page("x"), "after it")
		}},
		{"watchers hear what a purge was about, and when", watchersHearNotes},
	}
	for kind, sel := range selectors() {
		checks = append(checks, []check{
			{"a hard purge by " + kind + " covers what it names", func(c *bench) {
				c.marked()
				c.purge(c.b, sel, store.Hard)
				c.empty(page("x"))
				for _, s := range []Store{c.a, c.b} {
					if _, ok := s.Peek(page("x")); ok {
						c.Error("it can still be peeked at")
					}
				}
				c.holds(beside(), "other")
				l := c.lease(c.a, page("x"), want("t3"))
				c.commit(c.a, l, write(page("x"), tagged("two", "catalogue", "red")))
				c.holds(page("x"), "two")
			}},
			{"a soft purge by " + kind + " makes stale what it names", func(c *bench) {
				c.marked()
				c.purge(c.b, sel, store.Soft)
				got := c.take(c.a, page("x"), want("t3"))
				if got.Lease == nil {
					c.Fatalf("taken = %+v, want the stale entry and the lease", got)
				}
				c.staleFor(got.Entry, time.Hour)
				c.fresh(beside())
				c.commit(c.a, *got.Lease, write(page("x"), tagged("two", "catalogue", "red")))
				c.holds(page("x"), "two")
				c.fresh(page("x"))
			}},
			{"an invalidation by " + kind + " leaves a copy for validation", func(c *bench) {
				c.marked()
				c.purge(c.b, sel, store.MustValidate)
				got := c.take(c.a, page("x"), want("t3"))
				if got.Lease == nil || got.Entry == nil {
					c.Fatalf("taken = %+v, want the entry and the lease", got)
				}
				for _, t := range []time.Time{got.Entry.FreshUntil, got.Entry.RefreshUntil, got.Entry.RescueUntil} {
					if t.After(time.Now()) {
						c.Errorf("usable until %v", t)
					}
				}
				c.fresh(beside())
			}},
		}...)
		for mode := range store.MustValidate + 1 {
			checks = append(checks, check{
				fmt.Sprintf("what was leased before a purge by %s in mode %d is not stored", kind, mode),
				func(c *bench) { reachesFills(c, sel, mode) },
			})
		}
	}
	return checks
}

// marked fills the page x, and one that differs from it in all that selectors name.
func (c *bench) marked() {
	c.Helper()
	l := c.lease(c.a, page("x"), want("t1"))
	c.commit(c.a, l, write(page("x"), tagged("one", "catalogue", "blue", "red")))
	l = c.lease(c.a, beside(), want("t2"))
	c.commit(c.a, l, write(beside(), tagged("other", "the rest", "blue")))
}

func (c *bench) fresh(key policy.Key) {
	c.Helper()
	for name, s := range map[string]Store{"a": c.a, "b": c.b} {
		got := c.take(s, key, want("who comes by"))
		if got.Entry == nil || got.Lease != nil || !got.Entry.FreshUntil.After(time.Now()) {
			c.Errorf("%s takes %+v, want something fresh", name, got)
		}
	}
}

// reachesFills: what a lease will bring is known at its end only, and then the notes are heeded. Where the key itself
// tells, the holder learns at once.
func reachesFills(c *bench, sel policy.Selector, mode store.Mode) {
	before, other := c.lease(c.a, page("x"), want("t1")), c.lease(c.b, beside(), want("t2"))
	waiter := c.await(c.b, before)
	c.purge(c.b, sel, mode)
	if sel.Tag == "" && sel.Route == "" {
		c.closes(before.Lost)
		c.learns(waiter, store.Revoked)
	}
	c.lost(c.a, before, write(page("x"), tagged("before the purge", "catalogue", "red")))
	c.learns(waiter, store.Revoked)
	c.empty(page("x"))
	c.commit(c.b, other, write(beside(), tagged("other", "the rest", "blue")))
	c.holds(beside(), "other")

	after := c.lease(c.b, page("x"), want("t3"))
	if after.Taken <= before.Taken {
		c.Errorf("taken at %d, after %d", after.Taken, before.Taken)
	}
	c.commit(c.b, after, write(page("x"), tagged("after it", "catalogue", "red")))
	c.holds(page("x"), "after it")
	c.fresh(page("x"))
	c.lost(c.a, before, write(page("x"), tagged("before the purge", "catalogue", "red")))
}

func tagOfVariant(c *bench) {
	for _, language := range []string{"de", "en"} {
		l := c.lease(c.a, variant("x", language), want(language))
		w := variantWrite("x", language)
		w.Entry.Tags = []string{language}
		c.commit(c.a, l, w)
	}
	c.purge(c.b, policy.Selector{Tag: "de"}, store.Hard)
	c.empty(variant("x", "de"))
	c.holds(variant("x", "en"), "en")
	if sign := c.take(c.b, page("x"), look()).Entry; sign == nil || sign.Kind != policy.Signpost {
		c.Errorf("under the page lies %+v, want its signpost", sign)
	}
	c.seedVariantBeside("x", "de")
	c.holds(variant("x", "de"), "de")
}

func watchersHearNotes(c *bench) {
	here, there := c.watch(c.a), c.watch(c.b)
	for kind, sel := range selectors() {
		l := c.lease(c.a, page(kind), want(kind))
		c.purge(c.a, sel, store.MustValidate)
		next := c.lease(c.b, page("after "+kind), want("after "+kind))
		for name, h := range map[string]*hearing{"its own": here, "the other": there} {
			if !slices.ContainsFunc(h.all(), func(e store.Event) bool {
				return e.Kind == store.PurgedNote && e.Selector == sel && e.Mode == store.MustValidate &&
					l.Taken <= e.At && e.At < next.Taken
			}) {
				c.Errorf("%s: %s replica heard only %+v", kind, name, strings.ReplaceAll(fmt.Sprint(h.all()), "} {", "}\n{"))
			}
		}
	}
}
