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
	leave sync.Once
	tries bool   // whether the upstream is well again; the circuit's
	page  string // see For
	// stream: it has left the budget for max_streams.
	stream atomic.Bool
}

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
	l := u.limit
	if after, spared := u.circuit.spares(p.Class()); spared {
		u.circuit.refused.Add(1)
		return &Spared{u.config.Name, after}
	}
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

// Do asks; a member that cannot be reached has the next one asked, as long as there is no body to send again. Every
// request that goes out is counted, those that http.Transport repeats by itself included: it does so when a kept
// connection broke before any answer, and for what has no body to send again. That is GET, HEAD and OPTIONS, as R29
// wants, and besides TRACE, and whatever names itself repeatable by Idempotency-Key or X-Idempotency-Key.
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
	if err == nil {
		res, err = sane(req, res)
	}
	if err != nil && req.Context().Err() == nil {
		s.u.failures.Add(1)
	}
	s.u.circuit.record(verdictOf(req.Context(), s.page, res, err), &s.tries, s.page)
	return res, err
}

// Broke says that the body ended short, or stalled: beside the head that came, its page has failed (R23).
func (s *Slot) Broke() {
	s.u.failures.Add(1)
	v := its
	if s.page == "" {
		v = requests
	}
	s.u.circuit.record(v, new(bool), s.page)
}

// errNotHTTP: what came can be parsed, and yet means nothing.
var errNotHTTP = errors.New("malformed answer")

// sane refuses what net/http lets through: a status that is none, and another protocol than was asked for (RFC 9110
// §7.8), which would leave our client with a connection that speaks neither.
func sane(req *http.Request, res *http.Response) (*http.Response, error) {
	switch {
	case res.StatusCode < 100 || res.StatusCode > 999:
		res.Body.Close()
		return nil, fmt.Errorf("%w: status %d", errNotHTTP, res.StatusCode)
	case res.StatusCode == http.StatusSwitchingProtocols && req.Header.Get("Upgrade") == "":
		res.Body.Close()
		return nil, fmt.Errorf("%w: 101 to a request that asked for no other protocol", errNotHTTP)
	}
	return res, nil
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
		l.slots.release()
	}
	return nil
}

// Leave ends the slot; again, it does nothing.
func (s *Slot) Leave() {
	s.leave.Do(func() {
		l := s.u.limit
		if s.tries {
			s.u.circuit.record(unknown, &s.tries, "")
		}
		if s.stream.Load() {
			l.streams.Add(-1)
			return
		}
		l.running.Add(-1)
		l.slots.release()
	})
}
