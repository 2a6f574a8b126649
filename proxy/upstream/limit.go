package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/policy"
)

// ErrBusy: the queue is full, or a slot did not come in time. It is our doing, not the upstream's (R22).
var ErrBusy = errors.New("upstream busy")

type limit struct {
	slots    *semaphore.Weighted
	queue    int64
	patience time.Duration
	most     int64 // streams

	running, queued, streams atomic.Int64
}

func newLimit(c Config) *limit {
	return &limit{
		slots: semaphore.NewWeighted(int64(c.MaxConcurrent)),
		queue: int64(c.Queue), patience: c.QueueTimeout, most: int64(c.MaxStreams),
	}
}

// Slot is the right to have one request under way at an upstream. Do may be called again in it (R28); Leave ends it.
type Slot struct {
	u     *Upstream
	leave sync.Once
	// stream: it has left the budget for max_streams.
	stream atomic.Bool
}

// Enter waits for a slot. ErrBusy says that the queue is full or took too long; otherwise the context's error.
// The class is the asker's place in the queue (R26); one queue in order of arrival serves all of them for now.
func (u *Upstream) Enter(ctx context.Context, _ policy.Class) (*Slot, error) {
	l := u.limit
	if !l.slots.TryAcquire(1) {
		if l.queued.Add(1) > l.queue {
			l.queued.Add(-1)
			return nil, fmt.Errorf("upstream %q: %w: %d wait already", u.config.Name, ErrBusy, l.queue)
		}
		patience, cancel := context.WithTimeout(ctx, l.patience)
		err := l.slots.Acquire(patience, 1)
		cancel()
		l.queued.Add(-1)
		if ctx.Err() != nil {
			if err == nil {
				l.slots.Release(1)
			}
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("upstream %q: %w: no slot within %v", u.config.Name, ErrBusy, l.patience)
		}
	}
	l.running.Add(1)
	return &Slot{u: u}, nil
}

// Do asks; a member that cannot be reached has the next one asked, as long as there is no body to send again. Every request that goes out is counted, those that http.Transport repeats by itself included: it does so
// for GET, HEAD and OPTIONS without a body only, and only when a kept connection broke before any answer (R29).
func (s *Slot) Do(req *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		s.u.requests.Add(1)
		expectHead(info)
	}}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	res, err := s.u.transport.RoundTrip(req)
	for range len(s.u.members) - 1 {
		if err == nil || FaultOf(err).Kind != policy.Refused || req.Body != nil {
			break
		}
		s.u.elsewhere(req)
		res, err = s.u.transport.RoundTrip(req)
	}
	if err != nil && req.Context().Err() == nil {
		s.u.failures.Add(1)
	}
	return res, err
}

// Stream takes the slot out of the budget for what never ends: upgrades and event streams. ErrBusy when max_streams
// are under way.
func (s *Slot) Stream() error {
	l := s.u.limit
	if s.stream.Load() {
		return nil
	}
	if l.streams.Add(1) > l.most {
		l.streams.Add(-1)
		return fmt.Errorf("upstream %q: %w: %d streams already", s.u.config.Name, ErrBusy, l.most)
	}
	if s.stream.CompareAndSwap(false, true) {
		l.running.Add(-1)
		l.slots.Release(1)
	}
	return nil
}

// Leave ends the slot; again, it does nothing.
func (s *Slot) Leave() {
	s.leave.Do(func() {
		l := s.u.limit
		if s.stream.Load() {
			l.streams.Add(-1)
			return
		}
		l.running.Add(-1)
		l.slots.Release(1)
	})
}
