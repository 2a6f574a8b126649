package fill

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/store"
)

// Budget is the memory that the bodies under way in a process may take together (R25).
type Budget struct {
	limit   int64
	holds   func(*store.Entry) bool // whether the store still has its body in memory
	used    atomic.Int64
	refused atomic.Int64 // when somebody last asked in vain, in ns

	mu       sync.Mutex
	squeezed time.Time
	ended    map[*Spool]struct{} // bodies that are all here, and held for those who still read them
	lent     map[*byte]*Spool    // of those, the ones that are read in the store from their first byte on, by where it lies
	watched  bool
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	always := func(*store.Entry) bool { return true }
	return &Budget{limit: limit, holds: always, ended: map[*Spool]struct{}{}, lent: map[*byte]*Spool{}}
}

func budgetOf(o Options) *Budget {
	b := NewBudget(o.Spool)
	if o.Store != nil {
		b.holds = o.Store.Holds
	}
	return b
}

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// take is called by a spool that is being written, which holds its own lock. It may lock those that have ended: they
// take nothing any more, so nobody waits in a circle.
func (b *Budget) take(n int64) bool {
	for range 2 {
		if b.used.Add(n) <= b.limit {
			return true
		}
		b.used.Add(-n)
		b.squeeze()
	}
	b.refused.Store(time.Now().UnixNano())
	return false
}

// force takes what is too little to be refused.
func (b *Budget) force(n int64) { b.used.Add(n) }

func (b *Budget) give(n int64) { b.used.Add(-n) }

// short reports whether somebody lacks memory.
func (b *Budget) short() bool {
	return time.Since(time.Unix(0, b.refused.Load())) < patience
}

// squeeze gets back what is held for those who read too slowly, and what can be read elsewhere. Who asks often does not
// look often.
func (b *Budget) squeeze() {
	now := time.Now()
	b.mu.Lock()
	if now.Sub(b.squeezed) < glance {
		b.mu.Unlock()
		return
	}
	b.squeezed = now
	ended := slices.Collect(maps.Keys(b.ended))
	b.mu.Unlock()
	for _, s := range ended {
		s.yield(now)
	}
}

// watch finds out, as long as bodies are read that have ended, which of them the store has let go of. That may be more
// than there is memory for: then who reads too slowly leaves at once.
func (b *Budget) watch() {
	b.mu.Lock()
	ended := slices.Collect(maps.Keys(b.ended))
	b.watched = len(ended) > 0
	b.mu.Unlock()
	if len(ended) == 0 {
		return
	}
	for _, s := range ended {
		s.look(b.holds)
	}
	for _, s := range ended {
		if b.Used() > b.limit {
			s.hasten(time.Now())
		}
	}
	time.AfterFunc(glance, b.watch)
}

// linger notes a body that has ended and is still read; leave forgets it. Both are called with its lock held.
func (b *Budget) linger(s *Spool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(s)
}

func (b *Budget) note(s *Spool) {
	b.ended[s] = struct{}{}
	if !b.watched {
		b.watched = true
		time.AfterFunc(glance, b.watch)
	}
}

func (b *Budget) leave(s *Spool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ended, s)
	if body, ok := s.inMemory(); ok && b.lent[body.Address()] == s {
		delete(b.lent, body.Address())
	}
}

// lend returns a reader of a stored body that lies in memory, one body's readers all of one spool.
func (b *Budget) lend(e *store.Entry) *Reader {
	body, _ := e.Body.(store.Bytes)
	for {
		b.mu.Lock()
		s := b.lent[body.Address()]
		if s == nil {
			s = NewSpool(b, 0, func() {})
			s.entry, s.size, s.done = e, body.Size(), true
			b.lent[body.Address()] = s
			b.note(s)
			r := s.reader()
			b.mu.Unlock()
			return r
		}
		b.mu.Unlock()
		if r := s.attend(); r != nil {
			return r
		}
	}
}
