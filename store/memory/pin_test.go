package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/policy"
	"weir/store"
)

func pinned(format string, args ...any) string { return key(format, args...).Primary }

// What is pinned stays, every variant of it, though nobody asks for it while all else is asked for; until it is not pinned any more.
func TestPinned(t *testing.T) {
	const size = 4 << 20
	s := open(t, size)
	de := policy.Key{Primary: pinned("hot"), Variant: "de"}
	fill(t, s, key("hot"), 1000)
	fill(t, s, de, 1000)
	flood := func(from int) {
		for i := range 1000 {
			fill(t, s, key("%d", from+i), 10_000)
			kept(s, key("%d", from+i))
		}
	}
	s.Pin([]string{pinned("absent"), pinned("hot")})
	flood(0)
	if !there(s, key("hot")) || !there(s, de) || s.Stats().Pinned < 2000 {
		t.Fatalf("what was pinned is gone: %+v", s.Stats())
	}
	s.Pin(nil)
	if n := s.Stats().Pinned; n != 0 {
		t.Errorf("%d bytes are still pinned", n)
	}
	flood(1000)
	if there(s, key("hot")) || there(s, de) {
		t.Error("what is pinned no more never goes")
	}
}

// A quarter is pinned at most, the first ones first; what grows beyond that is pinned no more.
func TestPinnedShare(t *testing.T) {
	const size = 16 << 20
	s := open(t, size)
	var pages []string
	for i := range 15 {
		fill(t, s, key("%d", i), size/20)
		pages = append(pages, pinned("%d", i))
	}
	s.Pin(pages)
	if n := s.Stats().Pinned; n < size/5 || n > size/4 {
		t.Fatalf("%d bytes are pinned, want four of %d", n, size/20)
	}
	for i := range 60 {
		fill(t, s, key("new %d", i), size/17)
	}
	for i := range 15 {
		if there(s, key("%d", i)) != (i < 4) {
			t.Errorf("number %d is there: %v", i, i >= 4)
		}
	}
	for i := range 4 {
		fill(t, s, key("%d", i), size/17)
		if n := s.Stats().Pinned; n > size/4 {
			t.Errorf("%d bytes are pinned", n)
		}
	}
	if !there(s, key("3")) {
		t.Error("what has grown is gone")
	}
}

// Whatever is pinned, asked for and large: there is always room for what comes, and the last eight stay.
func TestPinnedLeavesRoom(t *testing.T) {
	const size = 1 << 20
	largest := size/largest - int(footprint(&store.Entry{Key: key("00"), Stored: answer(0).Stored, Body: store.Bytes{}}))
	for range 20 {
		seed := rand.Uint64()
		dice := rand.New(rand.NewPCG(seed, 0))
		s := open(t, size)
		var last []policy.Key
		for i := range 1000 {
			k := key("%d", dice.IntN(40))
			big := largest
			if dice.IntN(3) == 0 {
				big = dice.IntN(big)
			}
			fill(t, s, k, big)
			last = append(last, k)
			for range dice.IntN(20) {
				kept(s, key("%d", dice.IntN(40)))
			}
			if dice.IntN(5) == 0 {
				var pages []string
				for range dice.IntN(20) {
					pages = append(pages, pinned("%d", dice.IntN(40)))
				}
				s.Pin(pages)
			}
			for _, k := range last[max(0, len(last)-8):] {
				if !there(s, k) {
					t.Fatalf("seed %d, step %d: %s is gone", seed, i, k.Primary)
				}
			}
			if st := s.Stats(); st.Bytes > size || st.Pinned > size/4 {
				t.Fatalf("seed %d, step %d: %s", seed, i, fmt.Sprintf("%+v", st))
			}
		}
	}
}
