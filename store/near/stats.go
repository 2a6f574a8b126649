package near

import (
	"sync/atomic"

	"weir/store"
)

// Stats are what operators watch; all are counted from the beginning.
type Stats struct {
	Hits     int64 // peeks that a copy answered, without a round trip
	Misses   int64 // peeks that none did
	Replaced int64 // news of a commit that makes a copy old
	Purges   int64 // notes that were heard
	Silences int64 // how often the line broke, or news was missed: no copy was believed until it had been checked
}

type counts struct{ hits, misses, replaced, purges, silences atomic.Int64 }

func (c *counts) hear(what store.EventKind) {
	switch what {
	case store.Replaced:
		c.replaced.Add(1)
	case store.PurgedNote:
		c.purges.Add(1)
	case store.Silence:
		c.silences.Add(1)
	}
}

// Stats are how the copies do.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{c.hits.Load(), c.misses.Load(), c.replaced.Load(), c.purges.Load(), c.silences.Load()}
}
