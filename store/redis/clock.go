package redis

import (
	"sync"
	"time"

	"weir/policy"
)

// clock turns this replica's time into the store's, which is Redis' own: replicas whose clocks differ must agree on
// when an entry is stale (R18). Every script answers the store's time, which is a sample of the difference.
//
// The difference moves only when a sample proves it wrong by more than tolerance. So as long as clocks keep step
// an entry's FreshUntil reads as the very number that was written, and, handed back as Want.At, compares as equal.
type clock struct {
	mu     sync.RWMutex
	offset time.Duration // store time less local time
}

const tolerance = 5 * time.Millisecond

// learn takes the sample of a script that was asked and answered between two moments. The true difference lies
// within the trip's length of what it shows, in either direction.
func (c *clock) learn(asked, answered time.Time, storeMicros int64) {
	trip := answered.Sub(asked) // by the monotonic clock
	// Local time as the wall clock has it now, so that a step of it is seen.
	local := answered.Round(0).Add(-trip / 2)
	sample := time.UnixMicro(storeMicros).Sub(local).Truncate(time.Microsecond)

	c.mu.Lock()
	defer c.mu.Unlock()
	if (sample - c.offset).Abs() > tolerance+trip/2 {
		c.offset = sample
	}
}

func (c *clock) difference() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.offset
}

// micros is a local moment in store time; 0 for none.
func (c *clock) micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(c.difference()).UnixMicro()
}

// local is a moment in store time as this replica's clock tells it.
func (c *clock) local(micros int64) time.Time { return time.UnixMicro(micros).Add(-c.difference()) }

// Now is the store's time as far as this replica knows it, whether Redis answers or not.
func (s *Store) Now() uint64 { return uint64(s.clock.micros(time.Now())) }

// Moment is a moment of the store's time as this replica's clock tells it.
func (s *Store) Moment(micros uint64) time.Time { return s.clock.local(int64(micros)) }

// toStore is s with its absolute times in store time.
func (c *clock) toStore(s policy.Stored) policy.Stored { return s.Shift(c.difference()) }

// toLocal is s, read from the store, with its absolute times in local time.
func (c *clock) toLocal(s policy.Stored) policy.Stored { return s.Shift(-c.difference()) }
