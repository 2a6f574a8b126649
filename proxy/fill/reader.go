package fill

import (
	"context"
	"io"
	"slices"
	"time"

	"weir/store"
)

// portion is what a reader gets at once of a body that is not kept, so that soon after a client has stopped to read its
// pace shows it.
const portion = 16 << 10

// Reader reads a spool at its own pace. It belongs to one goroutine; what it has in hand counts as not read.
type Reader struct {
	s     *Spool
	off   int64 // what is before it has been read
	next  int64 // what is between has been handed out
	pace  Pace
	stays bool // it cannot go on in the store
	cut   bool
	sever func() // called when it is cut off, with the spool's lock held; nil: nobody is
}

// Join returns a reader from byte 0; ok is false when that is no longer held.
func (s *Spool) Join() (r *Reader, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start > 0 || s.done && s.charged == 0 && s.size > 0 {
		return nil, false
	}
	r = s.reader()
	if s.done {
		s.settle()
	}
	return r, true
}

func (s *Spool) reader() *Reader {
	r := &Reader{s: s}
	s.readers[r] = struct{}{}
	return r
}

// attend returns one more reader who reads in the store, and only tells of it; nil when the last has left: then the
// spool is forgotten.
func (s *Spool) attend() *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) == 0 {
		return nil
	}
	return s.reader()
}

// OnCut has sever called when the reader is cut off: whoever is being written to would not hear of it before he has
// taken that, and what he has in hand would be held as long. Sever must not wait, nor call the reader.
func (r *Reader) OnCut(sever func()) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.sever = sever; r.cut {
		sever()
	}
}

// Took notes that n bytes more are written to a client who reads in the store.
func (r *Reader) Took(n int) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.pace.Moved(n, time.Now())
}

// Stored is what the rest is read from after ErrMoved.
func (r *Reader) Stored() *store.Entry {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.entry
}

// Stay keeps the body here until this reader has read it, should it be stored or not.
func (r *Reader) Stay() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.stays = true
}

// Next returns the bytes that follow, as many as are held in one piece, waiting for at least one. They stay valid.
// io.EOF is the clean end, ErrMoved says that the rest is to be read from the store; any other error means that the
// body broke off, for this reader at least.
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
	if r.off < r.next {
		r.off = r.next
		if s.unkept {
			s.signal(&s.moved)
		}
	}
	switch {
	case r.cut:
		return nil, nil, ErrTooSlow
	case r.off < s.size && s.entry != nil:
		return nil, nil, ErrMoved
	case r.off < s.size:
		p = s.piece(r.off)
		r.next += int64(len(p))
		r.pace.Moved(len(p), time.Now())
		return p, nil, nil
	case s.done && s.err != nil:
		return nil, nil, s.err
	case s.done:
		return nil, nil, io.EOF
	}
	r.pace.Rests()
	return nil, s.grown, nil
}

// piece is what is held at off.
func (s *Spool) piece(off int64) []byte {
	i, found := slices.BinarySearchFunc(s.segments, off, func(seg segment, off int64) int { return int(seg.at - off) })
	if !found {
		i-- // off is within the one before
	}
	p := s.segments[i].bytes[off-s.segments[i].at:]
	p = p[:min(int64(len(p)), s.size-off)]
	if s.unkept {
		p = p[:min(len(p), portion)]
	}
	return p
}

// behind is how far it is behind the minimum rate. Who has not begun to read is waited for from now on.
func (r *Reader) behind(now time.Time) time.Duration {
	r.pace.Moved(0, now)
	return r.pace.Behind(now)
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
	return r.next < r.s.size
}

// Close lets the reader go.
func (r *Reader) Close() {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
	s.signal(&s.moved)
	s.settle()
	if s.unkept && !s.done && !s.full() && len(s.readers) == 0 {
		s.deserted()
	}
}
