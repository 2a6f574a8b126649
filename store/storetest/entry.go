package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"weir/policy"
	"weir/store"
)

func entryChecks() []check {
	checks := []check{
		{"all facts of an entry survive", factsSurvive},
		{"what is committed by one is found by the other", func(c *bench) {
			c.seed(page("x"), "one", long)
			c.holds(page("x"), "one")
			c.empty(page("y"))
			c.empty(variant("x", "v"))
		}},
		{"what is peeked is what is taken", func(c *bench) {
			if _, ok := c.a.Peek(page("x")); ok {
				c.Error("peeked into an empty store and saw something")
			}
			c.seed(page("x"), "one", long)
			c.holds(page("x"), "one")
			if e, ok := c.a.Peek(page("x")); ok && c.read(e) != "one" {
				c.Errorf("peeked %q", c.read(e))
			}
		}},
		{"a body is held until another takes its place, or it is purged", bodyIsHeld},
		{"what is kept goes when its time is over", func(c *bench) {
			l := c.lease(c.a, page("x"), want("t1"))
			w := write(page("x"), answer("one", -time.Second))
			w.Keep = short
			c.commit(c.a, l, w)
			for _, s := range []Store{c.a, c.b} {
				until(c, "it is gone", func() bool { return c.take(s, page("x"), look()).Entry == nil })
				if _, ok := s.Peek(page("x")); ok {
					c.Error("gone, but it can be peeked at")
				}
			}
			if got := c.take(c.b, page("x"), want("t2")); got.Lease == nil || got.Entry != nil {
				c.Errorf("taken = %+v", got)
			}
		}},
		{"what is kept and stale is still there", func(c *bench) {
			c.seed(page("x"), "one", -2*time.Hour)
			c.holds(page("x"), "one")
		}},
	}
	const kib, mib = 1 << 10, 1 << 20
	for _, size := range []int{0, 1, 16*kib - 1, 16 * kib, 16*kib + 1, mib - 1, mib, mib + 1, 3 * mib} {
		checks = append(checks, check{fmt.Sprintf("a body of %d bytes", size), func(c *bench) { bodySurvives(c, size) }})
	}
	return checks
}

// factsSurvive writes an entry none of whose facts is zero. Times survive to the microsecond.
func factsSurvive(c *bench) {
	now := time.Now().Truncate(time.Microsecond)
	e := answer("one", long)
	e.Stored = policy.Stored{
		Response: policy.Response{
			Status: 203,
			Header: map[string][]string{"Content-Type": {"text/plain"}, "Link": {"<a>", "<b>"}, "X-Empty": {""}, "X-Umlaut": {"\xfc"}},
			Asked:  now.Add(-2 * time.Second), Arrived: now.Add(-time.Second),
			CloseDelimited: true,
		},
		Kind: policy.Answer, Audience: policy.Everyone,
		Vary: []string{"accept-encoding", "x-a"}, Tags: []string{"a", "b c"}, Route: "catalogue",
		Alone: true, NoStale: true, Immutable: true, Age: 90 * time.Second,
		Marked: [2]time.Time{now.Add(time.Minute), now.Add(2 * time.Minute)}, Why: policy.SetCookie,
		Cost: 1234567 * time.Nanosecond, Span: policy.Span{Start: 3, End: 9}, Total: -1,
		FreshUntil: now.Add(time.Minute), RefreshUntil: now.Add(2 * time.Minute), RescueUntil: now.Add(3 * time.Minute),
	}
	l := c.lease(c.a, page("x"), want("t1"))
	c.commit(c.a, l, write(page("x"), e))
	wanted := e.Stored
	wanted.Leased = l.Taken
	for name, s := range map[string]Store{"a": c.a, "b": c.b} {
		got := c.take(s, page("x"), look()).Entry
		if got == nil {
			c.Fatalf("%s finds nothing", name)
		}
		if got.Key != page("x") {
			c.Errorf("%s: key = %+v", name, got.Key)
		}
		if facts := plain(got.Stored); !reflect.DeepEqual(facts, plain(wanted)) {
			c.Errorf("%s: facts\n%+v\nwant\n%+v", name, facts, plain(wanted))
		}
	}
	if e.Leased != 0 {
		c.Error("the committer's own entry was written to")
	}
}

// plain is s with its times as one zone and clock tell them, so that equal moments are equal values.
func plain(s policy.Stored) policy.Stored {
	times := []*time.Time{&s.Asked, &s.Arrived, &s.Marked[0], &s.Marked[1], &s.FreshUntil, &s.RefreshUntil, &s.RescueUntil}
	for _, t := range times {
		*t = t.Round(0).UTC()
	}
	return s
}

// bodySurvives reads a body back as a whole, and in runs that cross the places where a store might cut it.
func bodySurvives(c *bench, size int) {
	body := make([]byte, size)
	dice := rand.NewChaCha8([32]byte{1})
	_, _ = dice.Read(body)
	half := size / 3
	e := answer("", long)
	e.Body = store.Bytes{body[:half:half], body[half:]}
	l := c.lease(c.a, page("x"), want("t1"))
	c.commit(c.a, l, write(page("x"), e))
	for name, s := range map[string]Store{"a": c.a, "b": c.b} {
		got := c.take(s, page("x"), look()).Entry
		if got == nil || got.Body == nil {
			c.Fatalf("%s: no entry with a body: %+v", name, got)
		}
		if n := got.Body.Size(); n != int64(size) {
			c.Fatalf("%s: size = %d, want %d", name, n, size)
		}
		if spans := got.Body.Spans(); size > 0 && !reflect.DeepEqual(spans, []policy.Span{{Start: 0, End: int64(size)}}) {
			c.Errorf("%s: spans = %v", name, spans)
		}
		if !bytes.Equal([]byte(c.read(got)), body) {
			c.Errorf("%s: another body came back", name)
		}
		for _, cut := range []int{16 << 10, 1 << 20, 2 << 20} {
			from, to := max(cut-100, 0), min(cut+100, size)
			if from >= to {
				continue
			}
			p := make([]byte, to-from)
			if n, err := got.Body.ReadAt(c.ctx, p, int64(from)); n != len(p) || !bytes.Equal(p, body[from:to]) {
				c.Errorf("%s: bytes %d to %d: %d read, %v, or others", name, from, to, n, err)
			}
		}
	}
}

func bodyIsHeld(c *bench) {
	put := func(body string) {
		w := want(body)
		w.At = w.At.Add(2 * long) // whatever is there
		c.commit(c.a, c.lease(c.a, page("x"), w), write(page("x"), answer(body, long)))
	}
	for _, end := range []func(){
		func() { put("two") },
		func() { c.purge(c.a, policy.Selector{Page: page("x").Primary}, store.Hard) },
	} {
		put("one")
		e := c.take(c.a, page("x"), look()).Entry
		if peeked, ok := c.a.Peek(page("x")); ok && bytesOf(peeked).Same(bytesOf(e)) && !c.a.Holds(e) {
			c.Error("not held, though it is peeked at")
		}
		end()
		if c.a.Holds(e) {
			c.Error("still held")
		}
	}
}

func bytesOf(e *store.Entry) store.Bytes {
	b, _ := e.Body.(store.Bytes)
	return b
}
