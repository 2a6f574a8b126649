package fill

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"weir/store"
)

// Budget is the memory that the bodies under way in a process may take together (R25).
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *Budget) give(n int64) { b.used.Add(-n) }

var (
	// errDeserted: the body can no longer be kept, and nobody reads it any more.
	errDeserted = errors.New("nobody reads the body")
	// errTooSlow: the reader held up others for too long.
	errTooSlow = errors.New("reader too slow for the others")
)

const (
	smallSegment = 4 << 10
	largeSegment = 64 << 10
	exactSegment = 1 << 20 // an announced length up to this gets one segment of just that size
	window       = 256 << 10
	patience     = 10 * time.Second // that the slowest reader may hold up the others without moving
)

// Spool is a body that grows while several read it.
//
// As long as it is whole, byte 0 is held, anybody may join and it can be committed. When it outgrows what may be kept,
// when the budget has nothing left, or when its fill gives up keeping it, what everybody has read is dropped: then
// nobody may join any more, and the writer runs ahead of the slowest reader only as far as the budget allows. One
// goroutine writes; a segment's bytes beyond size belong to it alone, so readers need no lock for what they were shown.
type Spool struct {
	budget   *Budget
	most     int64  // what may be kept whole, and how far the writer may run ahead
	deserted func() // called when the last reader of a body that is not kept leaves

	mu       sync.Mutex
	segments [][]byte
	start    int64 // offset of segments[0]
	room     int64 // offset of the end of the last segment
	size     int64 // bytes written
	length   int64 // as announced; -1: unknown
	charged  int64 // taken from the budget
	unkept   bool
	done     bool
	err      error // of the end; nil: clean
	readers  map[*Reader]struct{}
	grown    chan struct{} // closed when there is more to read, or the end
	moved    chan struct{} // closed when a reader moved or left
}

// NewSpool makes a spool for a body of which at most most bytes may be kept whole. It calls deserted, perhaps more than
// once and holding a lock, when the last reader of a body that is not kept leaves before its end.
func NewSpool(b *Budget, most int64, deserted func()) *Spool {
	return &Spool{
		budget: b, most: most, deserted: deserted, length: -1,
		readers: map[*Reader]struct{}{},
		grown:   make(chan struct{}), moved: make(chan struct{}),
	}
}

// Announce says how long the body will be; -1: unknown.
func (s *Spool) Announce(length int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.length = length
	s.unkept = s.unkept || length > s.most
}

// Whole reports whether byte 0 is still held and will be: the body may be stored.
func (s *Spool) Whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.unkept
}

// Complete reports whether the body has ended cleanly.
func (s *Spool) Complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done && s.err == nil
}

// Unkeep gives up keeping the body: it is its readers' from now on, and lives only while there are some (R6).
func (s *Spool) Unkeep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unkept = true
	s.signal(&s.moved)
	s.signal(&s.grown)
}

// Space returns where the next bytes go. Unless the body is kept it waits for the readers, and fails when none is left.
func (s *Spool) Space(ctx context.Context) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unkept {
		if err := s.pace(ctx, s.most); err != nil {
			return nil, err
		}
	}
	if s.size < s.room {
		return s.tail(), nil
	}
	n := s.nextSegment()
	for !s.budget.take(n) {
		if !s.unkept {
			s.unkept = true
			s.signal(&s.grown)
		}
		n = largeSegment
		if s.size-s.start < window+largeSegment {
			// A window is small, and there for every body that moves: counted, and taken in any case.
			s.budget.used.Add(n)
			break
		}
		if err := s.pace(ctx, window); err != nil {
			return nil, err
		}
	}
	s.charged += n
	s.segments = append(s.segments, make([]byte, n))
	s.room += n
	return s.tail(), nil
}

func (s *Spool) nextSegment() int64 {
	switch {
	case s.unkept: // pieces that can be dropped one by one
		return largeSegment
	case s.length >= 0 && s.size == 0 && s.length <= exactSegment:
		return max(s.length, 1)
	case s.length < 0 && s.size < largeSegment:
		return max(smallSegment, s.size)
	}
	return largeSegment
}

func (s *Spool) tail() []byte {
	last := s.segments[len(s.segments)-1]
	return last[int64(len(last))-(s.room-s.size):]
}

// pace drops what all have read, and waits until less than ahead is held. It is called, and returns, with mu held.
func (s *Spool) pace(ctx context.Context, ahead int64) error {
	for {
		slowest := s.drop()
		if slowest == nil {
			return errDeserted
		}
		if s.size-slowest.off < max(ahead, window) {
			return nil
		}
		moved := s.moved
		s.mu.Unlock()
		timer := time.NewTimer(patience)
		select {
		case <-ctx.Done():
		case <-moved:
		case <-timer.C:
		}
		expired := !timer.Stop()
		s.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if expired && moved == s.moved && len(s.readers) > 1 {
			slowest.cut = true
			delete(s.readers, slowest)
			s.signal(&s.grown)
		}
	}
}

// drop lets go of the segments that every reader is past, and returns the slowest reader; nil: there is none.
func (s *Spool) drop() (slowest *Reader) {
	for r := range s.readers {
		if slowest == nil || r.off < slowest.off {
			slowest = r
		}
	}
	for slowest != nil && len(s.segments) > 0 && s.start+int64(len(s.segments[0])) <= slowest.off {
		n := int64(len(s.segments[0]))
		s.start += n
		s.segments[0] = nil
		s.segments = s.segments[1:]
		s.charged -= n
		s.budget.give(n)
	}
	return slowest
}

// Wrote publishes n bytes of what Space returned.
func (s *Spool) Wrote(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += int64(n)
	s.unkept = s.unkept || s.size > s.most
	s.signal(&s.grown)
}

// End closes the spool; err is what readers learn after the last byte, nil a clean end.
func (s *Spool) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	s.done, s.err = true, err
	s.signal(&s.grown)
	s.settle()
}

// settle gives the budget back once nobody reads and nobody will.
func (s *Spool) settle() {
	if s.done && len(s.readers) == 0 {
		s.budget.give(s.charged)
		s.charged = 0
	}
}

func (s *Spool) signal(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// Size is how many bytes have come so far.
func (s *Spool) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Body is the whole body, once it ended cleanly; ok is false when it did not, or is not held whole.
func (s *Spool) Body() (b store.Bytes, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done || s.err != nil || s.unkept {
		return nil, false
	}
	left := s.size
	for _, seg := range s.segments {
		n := min(left, int64(len(seg)))
		if part := seg[:n:n]; n > 0 && n < int64(len(seg))/2 {
			b = append(b, append([]byte(nil), part...)) // do not keep a large segment for a few bytes
		} else if n > 0 {
			b = append(b, part)
		}
		left -= n
	}
	return b, true
}

// Join returns a reader from byte 0; ok is false when that is no longer held.
func (s *Spool) Join() (r *Reader, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start > 0 || s.done && s.charged == 0 && s.size > 0 {
		return nil, false
	}
	r = &Reader{s: s}
	s.readers[r] = struct{}{}
	return r, true
}

// Reader reads a spool at its own pace. It belongs to one goroutine.
type Reader struct {
	s   *Spool
	off int64
	cut bool // guarded by s.mu
}

// Next returns the bytes that follow, as many as are held in one piece, waiting for at least one. The bytes stay valid.
// io.EOF is the clean end; any other error means that the body broke off.
func (r *Reader) Next(ctx context.Context) ([]byte, error) {
	for {
		p, wait, err := r.look()
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *Reader) look() (p []byte, wait <-chan struct{}, err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.cut {
		return nil, nil, errTooSlow
	}
	if r.off < s.size {
		at := s.start
		for _, seg := range s.segments {
			if end := at + int64(len(seg)); r.off < end {
				p = seg[r.off-at : min(end, s.size)-at]
				break
			}
			at += int64(len(seg))
		}
		r.off += int64(len(p))
		if s.unkept {
			s.signal(&s.moved)
		}
		return p, nil, nil
	}
	if s.done {
		if s.err != nil {
			return nil, nil, s.err
		}
		return nil, nil, io.EOF
	}
	return nil, s.grown, nil
}

// Reach waits until the byte before off is here, or no more will come: then it returns the body's length, else -1. ok is
// false when it will not wait: the body is not kept, and whoever waits for a later byte keeps it from coming.
func (r *Reader) Reach(ctx context.Context, off int64) (size int64, ok bool) {
	for {
		r.s.mu.Lock()
		size, ended, grown := r.s.size, r.s.done && r.s.err == nil, r.s.grown
		stuck := r.s.unkept || r.s.done && r.s.err != nil
		r.s.mu.Unlock()
		switch {
		case ended:
			return size, true
		case size >= off:
			return -1, true
		case stuck || ctx.Err() != nil:
			return -1, false
		}
		select {
		case <-grown:
		case <-ctx.Done():
		}
	}
}

// Broken is why the body broke off; nil while it has not.
func (r *Reader) Broken() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.err
}

// Pending reports whether Next would return bytes at once.
func (r *Reader) Pending() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.off < r.s.size
}

// Close lets the reader go.
func (r *Reader) Close() {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
	s.signal(&s.moved)
	s.settle()
	if s.unkept && !s.done && len(s.readers) == 0 {
		s.deserted()
	}
}
