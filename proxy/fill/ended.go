package fill

import (
	"time"

	"weir/store"
)

// A body that has ended is held for those who still read it: here, or in the store, which may let go of it.

// settle gives the budget back once nobody reads and nobody will.
func (s *Spool) settle() {
	switch {
	case !s.done:
	case len(s.readers) == 0:
		s.budget.leave(s)
		s.charge(0)
	default:
		s.charge(s.held())
		s.budget.linger(s)
	}
}

// held is how much memory a body takes that has ended, beside what the store has of it, and what its readers have in hand.
func (s *Spool) held() int64 {
	switch {
	case s.entry == nil:
		return s.room - s.start
	case s.loose:
		return s.size
	}
	return 0
}

// inMemory is what is read in the store, if it lies in memory there.
func (s *Spool) inMemory() (body store.Bytes, ok bool) {
	if s.entry == nil {
		return nil, false
	}
	body, ok = s.entry.Body.(store.Bytes)
	return body, ok
}

// look counts the body from when the store lets go of it.
func (s *Spool) look(holds func(*store.Entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, lies := s.inMemory(); lies && !s.loose && !holds(s.entry) {
		s.loose = true
		s.settle()
	}
}

// hasten cuts off whoever is behind in a body that the store has let go of.
func (s *Spool) hasten(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loose {
		s.cutBehind(now, hurry)
	}
}

// Stored says that the body has been committed, and how it can be had from the store.
func (s *Spool) Stored(find func() *store.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find = find
}

// yield gives memory back to those who lack it. What is stored is read there from now on; else who reads too slowly is
// cut off.
func (s *Spool) yield(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moving {
		return // whoever can go on in the store is not cut off
	}
	if find := s.find; find != nil {
		s.find, s.moving = nil, true
		go func() { s.move(find()) }() // who lacks memory does not wait for the store
		return
	}
	s.cutBehind(now, patience)
}

// cutBehind cuts off whoever is that far behind.
func (s *Spool) cutBehind(now time.Time, far time.Duration) {
	for r := range s.readers {
		if r.behind(now) > far {
			s.cut(r)
		}
	}
	s.settle()
}

// move sends the readers to the store, unless somebody cannot go.
func (s *Spool) move(entry *store.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving = false
	for r := range s.readers {
		if r.stays {
			return
		}
	}
	s.entry = entry
	if entry != nil {
		s.segments = nil
	}
	s.settle()
}

// cut ends a reader, which hears of it at once if it can, and else when it next reads.
func (s *Spool) cut(r *Reader) {
	r.cut = true
	delete(s.readers, r)
	if r.sever != nil {
		r.sever()
	}
	s.signal(&s.grown)
}
