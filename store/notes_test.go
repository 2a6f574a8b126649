package store

import (
	"fmt"
	"testing"
	"time"

	"weir/policy"
)

// by gives an entry under a key, tagged and brought by a route.
func by(route string, tags ...string) *policy.Stored { return &policy.Stored{Route: route, Tags: tags} }

// TestNotes: one note of each kind, and what it is about, told by the notes and by Covers alike.
func TestNotes(t *testing.T) {
	page := policy.Key{Primary: "api https://example.com:8443/catalogue/1?x=y"}
	for _, c := range []struct {
		sel    policy.Selector
		s      *policy.Stored
		covers bool
	}{
		{policy.Selector{All: true}, nil, true},
		{policy.Selector{Tag: "a"}, by("r", "b", "a"), true},
		{policy.Selector{Tag: "a"}, by("a", "b", "aa"), false},
		{policy.Selector{Tag: "a"}, nil, false},
		{policy.Selector{Route: "r"}, by("r", "a"), true},
		{policy.Selector{Route: "r"}, by("s", "r"), false},
		{policy.Selector{Route: "r"}, by(""), false},
		{policy.Selector{Host: "example.com"}, nil, true},
		{policy.Selector{Host: "example.com"}, by("r"), true},
		{policy.Selector{Host: "example.com:8443"}, by("r"), false},
		{policy.Selector{Host: "ample.com"}, by("ample.com", "ample.com"), false},
		{policy.Selector{Prefix: "example.com:8443/cat"}, nil, true},
		{policy.Selector{Prefix: "example.com:8443/catalogue/1?x=y"}, by("r"), true},
		{policy.Selector{Prefix: "example.com:8443/catalogue/2"}, by("r"), false},
		{policy.Selector{Prefix: "example.com/"}, nil, false},
	} {
		for mode := range MustValidate + 1 {
			var n Notes
			n.Add(c.sel, mode, 7)
			var want Said
			if c.covers {
				want = Says(mode, 7)
			}
			if got := n.About(page, c.s); got != want {
				t.Errorf("%+v, mode %d, of %+v: %v, want %v", c.sel, mode, c.s, got, want)
			}
		}
		if got := Covers(c.sel, page, c.s); got != c.covers {
			t.Errorf("%+v covers %+v: %v", c.sel, c.s, got)
		}
	}
	for _, primary := range []string{page.Primary, "api http://other/"} {
		if Covers(policy.Selector{Page: page.Primary}, policy.Key{Primary: primary, Variant: "v"}, nil) != (primary == page.Primary) {
			t.Errorf("the page, of %s", primary)
		}
	}
	if Covers(policy.Selector{}, page, by("")) {
		t.Error("a selector that names nothing covers something")
	}
}

// The latest note of each mode counts, whatever the order and the kind.
func TestNotesAddUp(t *testing.T) {
	var n Notes
	key, s := policy.Key{Primary: "api http://a/b"}, by("r", "t", "u")
	for at, sel := range []policy.Selector{{}, {Tag: "t"}, {Tag: "u"}, {Host: "a"}, {Tag: "t"}, {Route: "r"}, {Prefix: "a/"}, {All: true}} {
		if at > 0 {
			n.Add(sel, Mode(at%3), uint64(at))
		}
	}
	n.Add(policy.Selector{Tag: "u"}, Soft, 1) // heard late
	if got := n.About(key, s); got != (Said{Hard: 6, Soft: Dates{7, 4, 1}, MustValidate: 5}) || got.Newest() != 7 {
		t.Errorf("%v", got)
	}
	if n.Count() != 8 || n.Len() != 5 {
		t.Errorf("%d notes of %d", n.Len(), n.Count())
	}
	n.Forget(5)
	if got := n.About(key, s); got != (Said{Hard: 6, Soft: Dates{7}, MustValidate: 5}) || n.Len() != 2 {
		t.Errorf("after forgetting: %v, %d", got, n.Len())
	}
}

// Prefixes past the bound are about their whole host.
func TestPrefixesWiden(t *testing.T) {
	var n Notes
	for i := range Prefixes {
		n.Add(policy.Selector{Prefix: fmt.Sprintf("a:1/%d/", i)}, Hard, 1)
	}
	n.Add(policy.Selector{Prefix: "a:1/0/"}, Hard, 2)
	other := policy.Key{Primary: "api http://a:2/"}
	if got := n.About(other, nil); got != (Said{}) || n.Len() != Prefixes {
		t.Fatalf("%v, %d", got, n.Len())
	}
	n.Add(policy.Selector{Prefix: "a:1/more"}, Soft, 3)
	if got := n.About(other, nil); got != (Said{Soft: Dates{3}}) {
		t.Errorf("past the bound: %v", got)
	}
	if got := n.About(policy.Key{Primary: "api http://b/"}, nil); got != (Said{}) {
		t.Errorf("another host: %v", got)
	}
}

// An entry is stale since the first soft note that is about it, as far as those are remembered.
func TestSince(t *testing.T) {
	var n Notes
	add := func(sel policy.Selector, dates ...uint64) {
		for _, at := range dates {
			n.Add(sel, Soft, at)
		}
	}
	key, s := policy.Key{Primary: "api http://a/b"}, by("r", "t")
	add(policy.Selector{Tag: "t"}, 30, 10, 30) // heard late, and twice
	add(policy.Selector{Host: "a"}, 20)
	for leased, want := range map[uint64]uint64{5: 10, 10: 10, 11: 20, 20: 20, 25: 30, 30: 30, 31: 0} {
		if got := n.About(key, s).Soft.since(leased); got != want {
			t.Errorf("leased at %d: stale since %d, want %d", leased, got, want)
		}
	}
	add(policy.Selector{All: true}, 40, 50) // so 10 is forgotten
	for leased, want := range map[uint64]uint64{5: 5, 20: 20, 21: 30, 50: 50, 51: 0} {
		if got := n.About(key, s).Soft.since(leased); got != want {
			t.Errorf("of more than are remembered, leased at %d: stale since %d, want %d", leased, got, want)
		}
	}
}

func TestObeyed(t *testing.T) {
	at := func(micro uint64) time.Time { return time.Unix(0, 0).Add(time.Duration(micro) * time.Second) }
	e := &Entry{}
	e.Leased = 10
	e.FreshUntil, e.RefreshUntil, e.RescueUntil = at(60), at(90), at(160)
	moments := func(e *Entry) [3]time.Time { return [3]time.Time{e.FreshUntil, e.RefreshUntil, e.RescueUntil} }
	for _, c := range []struct {
		said Said
		want [3]time.Time
	}{
		{Said{Hard: 9, Soft: Dates{9}, MustValidate: 9}, [3]time.Time{at(60), at(90), at(160)}},
		{Said{Soft: Dates{20}}, [3]time.Time{at(20), at(50), at(120)}},
		{Said{Soft: Dates{70}}, [3]time.Time{at(60), at(90), at(160)}}, // stale by then
		{Said{MustValidate: 20}, [3]time.Time{at(20), at(20), at(20)}},
		{Said{MustValidate: 100}, [3]time.Time{at(60), at(90), at(100)}},
		{Said{Soft: Dates{20}, MustValidate: 30}, [3]time.Time{at(20), at(30), at(30)}},
	} {
		if got := c.said.Obeyed(e, at); moments(got) != c.want {
			t.Errorf("%v: %v, want %v", c.said, moments(got), c.want)
		}
	}
	for mode, strict := range map[Mode]bool{Soft: false, MustValidate: true} {
		for _, dated := range []uint64{20, 200} { // the second finds it stale already
			said := Says(mode, dated)
			if got := said.Obeyed(e, at); got.NoStale != strict {
				t.Errorf("%v: stale answers are forbidden: %v", said, got.NoStale)
			}
		}
	}
	if got := (Said{Hard: 10, Soft: Dates{20}}).Obeyed(e, at); got != nil {
		t.Errorf("a hard note, and there is %+v", got)
	}
	if got := (Said{Soft: Dates{20}}).Obeyed(e, at); got == e || e.FreshUntil != at(60) {
		t.Error("the entry has been written to")
	}
	e.RefreshUntil = e.FreshUntil
	if got := (Said{Soft: Dates{20}}).Obeyed(e, at); got.RefreshUntil != at(20) {
		t.Errorf("without grace stale is served until %v", got.RefreshUntil)
	}
	e.Kind = policy.Signpost
	if got := (Said{Soft: Dates{20}, MustValidate: 20}).Obeyed(e, at); got.FreshUntil != at(60) {
		t.Error("a signpost is dated")
	}
}

func BenchmarkAbout(b *testing.B) {
	var n Notes
	n.Add(policy.Selector{Tag: "other"}, Hard, 1)
	n.Add(policy.Selector{Prefix: "example.com/other"}, Hard, 1)
	key, s := policy.Key{Primary: "api https://example.com/catalogue/1"}, by("all", "a", "b", "c", "d", "e")
	b.ReportAllocs()
	for b.Loop() {
		n.About(key, s)
	}
}
