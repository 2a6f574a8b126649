package fill

import (
	"sync"
	"sync/atomic"
	"time"
)

// Budget is the memory that the bodies under way in a process may take together (R25).
type Budget struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Int64 // when somebody last asked in vain, in ns

	mu       sync.Mutex
	squeezed time.Time
	ended    map[*Spool]struct{} // bodies that are all here, and held for those who still read them
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, ended: map[*Spool]struct{}{}}
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
	ended := make([]*Spool, 0, len(b.ended))
	for s := range b.ended {
		ended = append(ended, s)
	}
	b.mu.Unlock()
	for _, s := range ended {
		s.yield(now)
	}
}

// linger notes a body that has ended and is still read; leave forgets it. Both are called with its lock held.
func (b *Budget) linger(s *Spool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[s] = struct{}{}
}

func (b *Budget) leave(s *Spool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ended, s)
}
