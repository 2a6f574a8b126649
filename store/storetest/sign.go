package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

func signChecks() []check {
	return []check{
		{"a variant and its signpost are written in one step", func(c *bench) {
			c.seedVariant("x", "de")
			sign := c.take(c.b, page("x"), want("t2"))
			if sign.Lease != nil || sign.Entry == nil || sign.Entry.Kind != policy.Signpost {
				c.Fatalf("taken = %+v, want a signpost and no lease", sign)
			}
			if got := variantsOf(sign.Entry); !slices.Equal(got, []string{"de"}) {
				c.Errorf("signpost = %v", got)
			}
			c.holds(variant("x", "de"), "de")
		}},
		{"signposts merge what two replicas write at once", signpostsMerge},
		{"a signpost lives as long as its variants", func(c *bench) {
			c.seedVariant("x", "de")
			l := c.lease(c.a, variant("x", "en"), want("t2"))
			w := variantWrite("x", "en")
			w.Keep = short
			c.commit(c.a, l, w)
			until(c, "the second variant is gone", func() bool {
				return c.take(c.b, variant("x", "en"), look()).Entry == nil
			})
			if sign := c.take(c.b, page("x"), look()).Entry; sign == nil || sign.Kind != policy.Signpost {
				c.Errorf("the first variant's signpost went with the second: %+v", sign)
			}
		}},
		{"an answer that does not vary replaces the signpost", func(c *bench) {
			c.seedVariant("x", "de")
			l := c.lease(c.a, variant("x", "en"), want("t2"))
			c.commit(c.a, l, write(page("x"), answer("one for all", long)))
			c.holds(page("x"), "one for all")
		}},
		{"a signpost replaces an answer that did not vary", func(c *bench) {
			c.seed(page("x"), "one for all", -time.Second)
			l := c.lease(c.a, page("x"), want("t2"))
			c.commit(c.a, l, variantWrite("x", "de"))
			if sign := c.take(c.b, page("x"), look()).Entry; sign == nil || sign.Kind != policy.Signpost {
				c.Errorf("under the page lies %+v", sign)
			}
			c.holds(variant("x", "de"), "de")
		}},
		{"a lost commit changes no signpost", func(c *bench) {
			c.seedVariant("x", "de")
			l := c.lease(c.a, variant("x", "en"), want("t2"))
			l.Token = "another"
			c.lost(c.a, l, variantWrite("x", "en"))
			if got := variantsOf(c.take(c.b, page("x"), look()).Entry); !slices.Equal(got, []string{"de"}) {
				c.Errorf("signpost = %v", got)
			}
		}},
		{"a marker alone is an entry", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			until := time.Now().Add(time.Minute)
			c.commit(c.a, l, write(page("x"), marker(until, time.Time{})))
			got := c.take(c.b, page("x"), want("t2"))
			if got.Entry == nil || got.Entry.Kind != policy.Marker || got.Lease == nil {
				c.Fatalf("taken = %+v, want the marker, and the lease for who fetches first", got)
			}
			marked(c, got.Entry, until, time.Time{})
		}},
		{"a marker lies beside a good copy", markerBeside},
		{"markers of two kinds add up", func(c *bench) {
			plain, particular := time.Now().Add(time.Minute), time.Now().Add(2*time.Minute)
			l := c.lease(c.a, page("x"), want("t1"))
			c.commit(c.a, l, write(page("x"), marker(plain, time.Time{})))
			l = c.lease(c.b, page("x"), want("t2"))
			c.commit(c.b, l, write(page("x"), marker(time.Time{}, particular)))
			marked(c, c.take(c.a, page("x"), look()).Entry, plain, particular)
		}},
		{"the first storable answer ends a marker", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			c.commit(c.a, l, write(page("x"), marker(time.Now().Add(time.Minute), time.Time{})))
			l = c.lease(c.b, page("x"), want("t2"))
			c.commit(c.b, l, write(page("x"), answer("one", long)))
			c.holds(page("x"), "one")
			marked(c, c.take(c.a, page("x"), look()).Entry, time.Time{}, time.Time{})
		}},
	}
}

// variantWrite is an answer in one of a page's languages.
func variantWrite(name, language string) store.Write {
	w := write(variant(name, language), answer(language, long))
	w.Entry.Vary = []string{"accept-language"}
	w.Variant = &policy.Variant{
		Names: []string{"accept-language"}, Values: []string{language},
		Language: language, Variant: language, Arrived: w.Entry.Arrived,
	}
	w.Sign = page(name)
	return w
}

func (c *bench) seedVariant(name, language string) {
	c.Helper()
	l := c.lease(c.a, page(name), want("seed "+language))
	c.commit(c.a, l, variantWrite(name, language))
}

// variantsOf lists where a signpost points, in order of the alphabet.
func variantsOf(sign *store.Entry) []string {
	if sign == nil {
		return nil
	}
	var list []string
	for _, v := range sign.Variants {
		list = append(list, v.Variant)
	}
	slices.Sort(list)
	return list
}

func signpostsMerge(c *bench) {
	var wanted []string
	var all sync.WaitGroup
	errs := make(chan error, 16)
	for i := range cap(errs) {
		s, name := []Store{c.a, c.b}[i%2], fmt.Sprintf("v%02d", i)
		wanted = append(wanted, name)
		all.Go(func() {
			got, err := s.Take(c.ctx, variant("x", name), want(name))
			if err == nil && got.Lease == nil {
				err = fmt.Errorf("%s: no lease: %+v", name, got)
			}
			if err == nil {
				err = s.Commit(c.ctx, *got.Lease, variantWrite("x", name))
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			c.Error(err)
		}
	}
	for _, s := range []Store{c.a, c.b} {
		if got := variantsOf(c.take(s, page("x"), look()).Entry); !slices.Equal(got, wanted) {
			c.Errorf("signpost = %v, want %v", got, wanted)
		}
	}
}

func marker(plain, particular time.Time) *store.Entry {
	return &store.Entry{Stored: policy.Stored{
		Kind: policy.Marker, Why: policy.NoStore, Marked: [2]time.Time{plain, particular},
	}}
}

func markerBeside(c *bench) {
	first := c.seed(page("x"), "good", -time.Second)
	l := c.lease(c.b, page("x"), want("t2"))
	plain := time.Now().Add(time.Minute)
	w := write(page("x"), marker(plain, time.Time{}))
	w.Keep = short
	c.commit(c.b, l, w)
	c.pass(short) // of the copy's own time nothing is taken
	c.holds(page("x"), "good")
	e := c.take(c.a, page("x"), look()).Entry
	marked(c, e, plain, time.Time{})
	if e.Kind != policy.Answer || e.Why != policy.NoStore || e.Leased != first.Taken {
		c.Errorf("kind %d, why %d, leased %d; want an answer, no-store, %d", e.Kind, e.Why, e.Leased, first.Taken)
	}
	if err := c.b.Commit(c.ctx, first, write(page("x"), answer("late", long))); !errors.Is(err, store.ErrLost) {
		c.Errorf("a commit by the lease before the marker's: %v", err)
	}
}

// marked asserts the marks, which survive to the microsecond.
func marked(c *bench, e *store.Entry, plain, particular time.Time) {
	c.Helper()
	if e == nil {
		c.Fatal("there is no entry")
	}
	for i, want := range []time.Time{plain, particular} {
		if got := e.Marked[i]; got.IsZero() != want.IsZero() || got.Sub(want).Abs() >= time.Microsecond {
			c.Errorf("mark %d until %v, want %v", i, got, want)
		}
	}
}
