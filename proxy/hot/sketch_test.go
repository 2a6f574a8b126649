package hot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The bounds of Space-Saving, against exact counts, on streams as pages have them (Zipf) and on worse ones.
func TestSketchIsWithinItsBounds(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		dice := rand.New(rand.NewPCG(seed, 0))
		size, n := 20+dice.IntN(200), 20_000
		zipf := rand.NewZipf(dice, 1.01+dice.Float64(), 1+dice.Float64()*10, 1<<20)
		now := time.Now()
		s, exact := newSketch(size, window, now), map[string]float64{}
		for i := range n {
			page := fmt.Sprint(zipf.Uint64())
			if i%3 == 0 {
				page = fmt.Sprint("once ", i) // a scan
			}
			amount := float64(1 + dice.IntN(3))
			s.add(page, amount, now)
			exact[page] += amount
		}
		check(t, seed, &s, exact)
	}
}

func check(t *testing.T, seed uint64, s *sketch, exact map[string]float64) {
	t.Helper()
	var total float64
	for page, n := range exact {
		total += n
		switch c := s.of[page]; {
		case c == nil:
		case c.count < n || c.count-c.over > n:
			t.Fatalf("seed %d: %s is %v, counted between %v and %v", seed, page, n, c.count-c.over, c.count)
		}
	}
	for page, n := range exact {
		if s.of[page] == nil && n > total/float64(s.size) {
			t.Fatalf("seed %d: %s is %v of %v, and not among %d", seed, page, n, total, s.size)
		}
	}
	var sum float64
	for i, c := range s.least {
		sum += c.count
		if c.place != i || s.of[c.page] != c || c.count < s.least[(i-1)/2].count {
			t.Fatalf("seed %d: the heap is out of order at %d", seed, i)
		}
	}
	if len(s.least) > s.size || sum != total {
		t.Errorf("seed %d: %d counters have %v of %v", seed, len(s.least), sum, total)
	}
}

// What is asked for steadily has its rate times the window; when nobody asks, a third of that is left after one.
func TestSketchDecays(t *testing.T) {
	now := time.Now()
	s := newSketch(10, window, now)
	near := func(want float64) {
		t.Helper()
		if got := s.sure(now)["x"]; math.Abs(got-want) > want/100 {
			t.Errorf("%v, want %v", got, want)
		}
	}
	for range 2 * renewed * 60 * 2 { // so that the weights begin anew
		now = now.Add(500 * time.Millisecond)
		s.add("x", 1, now)
	}
	near(2 * window.Seconds())
	now = now.Add(window)
	near(2 * window.Seconds() / math.E)
	now = now.Add(2 * renewed * window)
	if got := s.sure(now)["x"]; got > 1e-9 {
		t.Errorf("long after: %v", got)
	}
	s.add("x", 5, now)
	near(5)
}

// Who was hot gives way to who is, though it was asked for far more often in all.
func TestSketchForgets(t *testing.T) {
	now := time.Now()
	s := newSketch(1, window, now)
	for range 1000 {
		s.add("old", 1, now)
	}
	now = now.Add(10 * window)
	for range 3 {
		s.add("new", 1, now)
	}
	if got := s.sure(now); got["new"] < 2.9 || len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	now := time.Now()
	s := newSketch(100, window, now)
	for i := range 100 {
		s.add(fmt.Sprint(i), 1, now)
	}
	if n := testing.AllocsPerRun(100, func() { s.add("7", 1, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
