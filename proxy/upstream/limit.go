package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/policy"
)

// ErrBusy: the queue is full, or a slot did not come in time. It is our doing, not the upstream's (R22).
var ErrBusy = errors.New("upstream busy")

type limit struct {
	slots    queue
	patience time.Duration
	most     int64 // streams

	running, queued, streams atomic.Int64
}

func newLimit(c Config) *limit {
	return &limit{
		slots:    queue{free: c.MaxConcurrent, most: c.Queue},
		patience: c.QueueTimeout, most: int64(c.MaxStreams),
	}
}

// Slot is the right to have one request under way at an upstream. Do may be called again in it (R28); Leave ends it.
type Slot struct {
	u     *Upstream
	tries bool   // whether the upstream is well again; the circuit's, under its lock
	page  string // see For

	mu    sync.Mutex
	holds holding
	ready bool // the client's body has come: nothing is lent any more
}

// holding is what a request under way counts for.
type holding uint8

const (
	slot   holding = iota // one of max_concurrent
	lent                  // its slot is lent: for max_streams, until its body has come
	stream                // for max_streams
	nothing
)

// Enter waits for a slot. ErrBusy says that the queue is full or took too long, Spared that the upstream is sick;
// otherwise it is the context's error. The place says who asks; it may be raised meanwhile.
func (u *Upstream) Enter(ctx context.Context, p *Place) (*Slot, error) {
	if err := u.wait(ctx, p); err != nil {
		return nil, err
	}
	tries, err := u.circuit.enter(p.Class())
	if err != nil {
		u.limit.slots.release()
		return nil, err
	}
	u.limit.running.Add(1)
	return &Slot{u: u, tries: tries}, nil
}

// wait takes one of the slots, in turn. Who is spared does not queue for it.
func (u *Upstream) wait(ctx context.Context, p *Place) error {
	if after, spared := u.circuit.spares(p.Class()); spared {
		u.circuit.refused.Add(1)
		return &Spared{u.config.Name, after}
	}
	return u.line(ctx, p)
}

func (u *Upstream) line(ctx context.Context, p *Place) error {
	l := u.limit
	now, waits := l.slots.take(p)
	switch {
	case now:
		return nil
	case !waits && p.Class() == policy.EarlyWaits:
		return u.busy("too busy for an early refresh")
	case !waits:
		return u.busy(fmt.Sprintf("%d wait already", l.slots.most))
	}
	l.queued.Add(1)
	defer l.queued.Add(-1)
	patience := time.NewTimer(l.patience)
	defer patience.Stop()
	select {
	case slot := <-p.turn:
		if !slot {
			return u.busy("gave way to who is waited for")
		}
		return nil
	case <-ctx.Done():
		l.slots.leave(p)
		return ctx.Err()
	case <-patience.C:
		l.slots.leave(p)
		return u.busy(fmt.Sprintf("no slot within %v", l.patience))
	}
}

func (u *Upstream) busy(why string) error {
	return fmt.Errorf("upstream %q: %w: %s", u.config.Name, ErrBusy, why)
}

// For names the page that is asked for on everybody's behalf: its failure may be the upstream's. Of a slot that is for
// no page, a failure is taken for the request's own doing, and says nothing of the upstream.
func (s *Slot) For(page string) { s.page = page }

// Broke says that the body ended short, or stalled: beside the head that came, its page has failed (R23).
func (s *Slot) Broke() {
	s.u.failures.Add(1)
	v := its
	if s.page == "" {
		v = requests
	}
	s.u.circuit.record(v, new(bool), s.page)
}

// Stream takes the request out of the budget for what never ends: upgrades and event streams. ErrBusy when max_streams
// are under way.
func (s *Slot) Stream() error { return s.become(stream) }

// lend lets others have the slot while the client's body is waited for; reclaim waits for one again. When max_streams
// are under way nothing is lent. Whether the upstream is well again is for others to try.
func (s *Slot) lend() {
	if s.become(lent) == nil {
		s.u.circuit.record(unknown, &s.tries, "")
	}
}

// crowds reports whether others are held up by this request's body, which is waited for.
func (s *Slot) crowds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.u.limit
	return s.holds == slot && l.queued.Load() > 0 || s.holds == lent && l.streams.Load() >= l.most
}

func (s *Slot) become(what holding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.u.limit
	switch {
	case s.holds != slot:
		s.holds = max(s.holds, what)
		return nil
	case what == lent && s.ready:
		return nil
	}
	if l.streams.Add(1) > l.most {
		l.streams.Add(-1)
		return fmt.Errorf("upstream %q: %w: %d streams already", s.u.config.Name, ErrBusy, l.most)
	}
	s.holds = what
	l.running.Add(-1)
	l.slots.release()
	return nil
}

func (s *Slot) reclaim(ctx context.Context) error {
	if !s.isLent() {
		return nil
	}
	if err := s.u.line(ctx, At(policy.ClientWaits)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.u.limit
	if s.holds != lent { // the answer came first
		l.slots.release()
		return nil
	}
	s.holds = slot
	l.streams.Add(-1)
	l.running.Add(1)
	return nil
}

// isLent is asked when the body has come.
func (s *Slot) isLent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
	return s.holds == lent
}

// streams reports whether it left the budget for good.
func (s *Slot) streams() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds == stream
}

// Leave ends the slot; again, it does nothing.
func (s *Slot) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.u.limit
	if s.holds != nothing {
		s.u.circuit.record(unknown, &s.tries, "")
	}
	switch s.holds {
	case slot:
		l.running.Add(-1)
		l.slots.release()
	case lent, stream:
		l.streams.Add(-1)
	}
	s.holds = nothing
}
