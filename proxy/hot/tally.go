package hot

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// enough is how many looks in a second tell what is hot. Of more, fewer are taken.
	enough = 1000
	// sparsest: one in so many is looked at when there is much to see. No fewer, lest the first quiet minute goes unseen.
	sparsest = 16
)

// tally is a sketch that many add to at once.
type tally struct {
	every  atomic.Uint32 // one in so many is looked at, and counts for all of them
	mu     sync.Mutex
	sketch sketch
	looked int // since then
	since  time.Time
}

func newTally(now time.Time) *tally {
	t := &tally{sketch: newSketch(counted, window, now), since: now}
	t.every.Store(1)
	return t
}

func (t *tally) add(page string, amount float64) {
	n := t.every.Load()
	if n > 1 && rand.Uint32N(n) != 0 {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sketch.add(page, amount*float64(n), now)
	t.pace(n, now)
}

// pace looks less often when there is much to see, and more often when there is little.
func (t *tally) pace(n uint32, now time.Time) {
	t.looked++
	switch passed := now.Sub(t.since) >= time.Second; {
	case t.looked > enough:
		t.every.Store(min(2*n, sparsest))
	case !passed:
		return
	case t.looked < enough/4:
		t.every.Store(max(n/2, 1))
	}
	t.looked, t.since = 0, now
}

func (t *tally) sure(now time.Time) map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sketch.sure(now)
}
