package memory

import "time"

// local is this process's own time.
type local struct{}

func (local) Now() uint64 { return uint64(time.Now().UnixMicro()) }

func (local) Moment(micros uint64) time.Time { return time.UnixMicro(int64(micros)) }

// Now is the store's time.
func (s *Store) Now() uint64 { return s.clock.Now() }

// Moment is a moment of the store's time in this process's own.
func (s *Store) Moment(micros uint64) time.Time { return s.clock.Moment(micros) }

// stamp is the store's time, strictly increasing.
func (s *Store) stamp() uint64 {
	for {
		last := s.taken.Load()
		next := max(last+1, s.clock.Now())
		if s.taken.CompareAndSwap(last, next) {
			return next
		}
	}
}

// moment is when a note was written; but stamps within a microsecond differ, so that the later may lie ahead.
func (sh *shard) moment(micros uint64) time.Time {
	at := sh.clock.Moment(micros)
	if now := time.Now(); now.Before(at) {
		return now
	}
	return at
}
