package fill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weir/store"
)

var (
	// errDeserted: the body can no longer be kept, and nobody reads it any more.
	errDeserted = errors.New("nobody reads the body")
	// ErrTooSlow: the reader held up others for too long.
	ErrTooSlow = errors.New("too slow, and others waited")
	// ErrMoved: what follows is to be read from the store. Nothing is wrong with it.
	ErrMoved = errors.New("body is read from the store")
)

const (
	smallSegment = 4 << 10
	largeSegment = 64 << 10
	narrow       = 32 << 10
	// window is there for every body, whatever the budget says: one that is no larger is kept whole.
	window = 64 << 10
	// share of the budget is what a body takes at most that is not kept.
	share = 16
)

// Spool is a body that grows while several read it.
//
// As long as it is whole, byte 0 is held, anybody may join and it can be committed. When it outgrows what may be kept,
// when the budget has nothing left, or when its fill gives up keeping it, what everybody has read is dropped: then
// nobody may join any more, and the writer runs ahead of the slowest reader only a little. One goroutine writes; a
// segment's bytes beyond size belong to it alone, so readers need no lock for what they were shown.
type Spool struct {
	budget   *Budget
	most     int64       // what may be kept whole
	deserted func()      // called when the last reader of a body that is not kept leaves
	queued   func() bool // somebody waits for what the writer holds while it writes

	mu       sync.Mutex
	segments []segment
	start    int64 // offset of segments[0]
	room     int64 // offset of the end of the last segment
	size     int64 // bytes written
	length   int64 // as announced; -1: unknown
	charged  int64 // taken from the budget: what is held, and, while it is kept, what is announced
	unkept   bool
	refused  bool                // there was no memory to keep it
	find     func() *store.Entry // looks for what was committed; nil: nothing was, or it has been looked for
	moving   bool                // it is being looked for
	entry    *store.Entry        // what was found: it is read there, and nothing is held here any more
	loose    bool                // the store has let go of it since: its readers alone hold it
	done     bool
	err      error // of the end; nil: clean
	readers  map[*Reader]struct{}
	grown    chan struct{} // closed when there is more to read, or the end
	moved    chan struct{} // closed when a reader moved or left
}

// segment is a piece of the body, and where it begins.
type segment struct {
	at    int64
	bytes []byte
}

// NewSpool makes a spool for a body of which at most most bytes may be kept whole. It calls deserted, perhaps more than
// once and holding a lock, when the last reader of a body that is not kept leaves before its end.
func NewSpool(b *Budget, most int64, deserted func()) *Spool {
	return &Spool{
		budget: b, most: most, deserted: deserted, length: -1, queued: func() bool { return false },
		readers: map[*Reader]struct{}{},
		grown:   make(chan struct{}), moved: make(chan struct{}),
	}
}

// Hurry has queued asked whether somebody waits for the body's end, who need not wait for slow readers. It is called
// before anything is written.
func (s *Spool) Hurry(queued func() bool) { s.queued = queued }

// Announce says how long the body will be; -1: unknown. There is memory for all of it or it is not kept: a part that
// is held for long only keeps others from being whole.
func (s *Spool) Announce(length int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.length = length
	switch {
	case s.unkept || s.done || length <= window:
	case length > s.most:
		s.unkeep()
	case !s.budget.take(length):
		s.refuse()
	default:
		s.charged = length
	}
}

// Whole reports whether byte 0 is still held and will be: the body may be stored.
func (s *Spool) Whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.unkept
}

// Refused reports whether the body is not kept because the budget had nothing left for it.
func (s *Spool) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
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
	s.unkeep()
}

func (s *Spool) unkeep() {
	if s.unkept {
		return
	}
	s.unkept = true
	s.charge(s.room - s.start)
	s.signal(&s.moved)
	s.signal(&s.grown)
}

func (s *Spool) refuse() {
	s.refused = true
	s.unkeep()
}

// charge gives back what is taken from the budget beyond n.
func (s *Spool) charge(n int64) {
	s.budget.give(s.charged - n)
	s.charged = n
}

// Space returns where the next bytes go. Unless the body is kept it waits for the readers, and fails when none is left.
func (s *Spool) Space(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if s.unkept && s.drop() == nil && !s.full() {
			return nil, errDeserted
		}
		if s.size < s.room || s.grow() {
			return s.tail(), nil
		}
		if s.unkept {
			s.pause(ctx)
		} else {
			s.refuse()
		}
	}
}

// grow makes room for more, if there is memory for it.
func (s *Spool) grow() bool {
	n := s.nextSegment()
	held := s.room - s.start + n
	lacks := held - s.charged
	switch {
	case lacks <= 0:
		lacks = 0
	case held <= window, s.full():
		s.budget.force(lacks)
	case s.unkept && held > s.budget.limit/share, !s.budget.take(lacks):
		return false
	}
	s.charged += lacks
	s.segments = append(s.segments, segment{s.room, make([]byte, n)})
	s.room += n
	return true
}

func (s *Spool) nextSegment() int64 {
	switch {
	case s.full():
		return 1
	case s.unkept: // pieces that can be dropped one by one
		return narrow
	case s.length >= 0:
		return min(largeSegment, s.length-s.size)
	case s.size < largeSegment:
		return max(smallSegment, s.size)
	}
	return largeSegment
}

// full reports whether nothing but the end is to come.
func (s *Spool) full() bool { return s.length >= 0 && s.size >= s.length }

func (s *Spool) tail() []byte {
	last := s.segments[len(s.segments)-1]
	return last.bytes[s.size-last.at:]
}

// pause waits for a reader to move. The slowest is cut off when it is too far behind, unless it holds up nobody.
// It is called, and returns, with mu held.
func (s *Spool) pause(ctx context.Context) {
	moved := s.moved
	s.mu.Unlock()
	timer := time.NewTimer(glance)
	select {
	case <-ctx.Done():
	case <-moved:
	case <-timer.C:
	}
	timer.Stop()
	queued := s.queued()
	s.mu.Lock()
	slowest := s.slowest()
	if slowest == nil {
		return
	}
	behind := slowest.behind(time.Now())
	if queued && behind > hurry || behind > patience && (len(s.readers) > 1 || s.budget.short()) {
		s.cut(slowest)
	}
}

func (s *Spool) slowest() (slowest *Reader) {
	for r := range s.readers {
		if slowest == nil || r.off < slowest.off {
			slowest = r
		}
	}
	return slowest
}

// drop lets go of the segments that every reader is done with, and returns the slowest reader; nil: there is none.
func (s *Spool) drop() *Reader {
	slowest := s.slowest()
	if slowest == nil {
		return nil
	}
	n := 0
	for n < len(s.segments) && s.segments[n].at+int64(len(s.segments[n].bytes)) <= slowest.off {
		s.start += int64(len(s.segments[n].bytes))
		n++
	}
	s.segments = slices.Delete(s.segments, 0, n)
	s.charge(s.room - s.start)
	return slowest
}

// Wrote publishes n bytes of what Space returned.
func (s *Spool) Wrote(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += int64(n)
	if s.size > s.most {
		s.unkeep()
	}
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
	s.charge(s.room - s.start)
	s.signal(&s.grown)
	s.settle()
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
	for _, seg := range s.segments {
		n := min(s.size-seg.at, int64(len(seg.bytes)))
		if part := seg.bytes[:n:n]; n > 0 && n < int64(len(seg.bytes))/2 {
			b = append(b, append([]byte(nil), part...)) // do not keep a large segment for a few bytes
		} else if n > 0 {
			b = append(b, part)
		}
	}
	return b, true
}
