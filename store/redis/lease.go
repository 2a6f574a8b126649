package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

// leases are those that this replica holds, by token, to tell their holders of a loss. Redis decides who holds what;
// here is only what was heard of it.
type leases struct {
	mu   sync.Mutex
	held map[string]*held
}

type held struct {
	key   policy.Key
	taken uint64
	class policy.Class
	lost  chan struct{}
	runs  *time.Timer
}

// hold notes a lease, anew or again, that Redis has just granted for ttl, and closes its Lost when it has run out.
// Redis counts whole milliseconds and began earlier: once Lost is closed, the lease can be had.
func (l *leases) hold(lease store.Lease, class policy.Class, ttl time.Duration) <-chan struct{} {
	ttl += 2 * time.Millisecond
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[lease.Token]
	if h != nil && h.taken == lease.Taken {
		h.runs.Reset(ttl)
		return h.lost
	}
	h = &held{key: lease.Key, taken: lease.Taken, class: class, lost: make(chan struct{})}
	h.runs = time.AfterFunc(ttl, func() {
		l.lose(func(token string, other *held) bool { return other == h })
	})
	if l.held == nil {
		l.held = make(map[string]*held)
	}
	l.held[lease.Token] = h
	return h.lost
}

// lose tells the holders of the leases that match.
func (l *leases) lose(match func(token string, h *held) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, h := range l.held {
		if match(token, h) {
			h.runs.Stop()
			delete(l.held, token)
			close(h.lost)
		}
	}
}

func (l *leases) loseToken(lost string) {
	l.lose(func(token string, _ *held) bool { return token == lost })
}

// forget drops a lease that its holder has ended: there is nothing to tell.
func (l *leases) forget(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[token]; h != nil {
		h.runs.Stop()
		delete(l.held, token)
	}
}

// class answers the class the lease was taken with, should it have to be written again.
func (l *leases) class(token string) policy.Class {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[token]; h != nil {
		return h.class
	}
	return policy.ClientWaits
}

func (l *leases) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		h.runs.Stop()
	}
}

// lost reports whether the holder has been told already.
func lost(l store.Lease) bool {
	select {
	case <-l.Lost:
		return true
	default:
		return false
	}
}

// Renew prolongs a lease; one that Redis lost by itself is taken again (R14).
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (policy.Class, error) {
	if lost(lease) {
		return 0, about("renew", lease.Key, store.ErrLost)
	}
	n, class := s.of(lease.Key), s.leases.class(lease.Token)
	r, err := s.run(ctx, s.steps.renew, []string{n.lease, n.page, n.notes},
		n.place, n.host[:], lease.Token, lease.Taken, max(millis(ttl), 1), leaseValue(lease, class))
	if err != nil {
		return 0, about("renew", lease.Key, err)
	}
	if r.int(0) < 0 {
		s.leases.loseToken(lease.Token)
		return 0, about("renew", lease.Key, store.ErrLost)
	}
	if lease.Lost != nil {
		s.leases.hold(lease, class, ttl)
	}
	return policy.Class(r.int(0)), nil
}

// Release ends a lease without writing.
func (s *Store) Release(ctx context.Context, lease store.Lease, out store.Outcome) error {
	s.leases.forget(lease.Token)
	n := s.of(lease.Key)
	var remember int64
	if out.End == store.Failed {
		remember = millis(min(out.Remember, longest))
	}
	_, err := s.run(ctx, s.steps.release, []string{n.lease, n.fail, n.bell},
		lease.Token, outcomeValue(out), remember, s.channel(), s.bell.message(message{Token: lease.Token}))
	return about("release", lease.Key, err)
}

// Await waits for the bell, and looks for itself now and then: a message may be lost, and a lease that runs out
// rings nothing. It listens before it looks, so that nothing falls between.
func (s *Store) Await(ctx context.Context, held store.Lease) (store.Outcome, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	w := s.bell.wait(held.Key, held.Token)
	defer s.bell.leave(w)
	for {
		out, left, err := s.look(ctx, held)
		if err != nil || left == 0 {
			return out, about("await", held.Key, err)
		}
		poll := time.After(min(left, pause()))
		select {
		case out := <-w.ended:
			return out, nil
		case <-w.look:
		case <-poll:
		case <-ctx.Done():
			return out, about("await", held.Key, ctx.Err())
		case <-s.life.Done():
			return out, about("await", held.Key, fmt.Errorf("%w: closed", store.ErrUnavailable))
		}
	}
}

// look asks whether a lease is still held, and for how long at most; 0: it has ended. Where another's is in its place by
// now, only the dates tell whether a purge came between.
func (s *Store) look(ctx context.Context, held store.Lease) (store.Outcome, time.Duration, error) {
	n := s.of(held.Key)
	r, err := s.run(ctx, s.steps.await, []string{n.lease, n.page, n.head, n.notes}, n.place, n.host[:], held.Token, held.Taken)
	if err != nil {
		return store.Outcome{}, 0, err
	}
	if left := r.int(0); left > 0 {
		// Redis drops it within a millisecond of its time.
		return store.Outcome{}, time.Duration(left+1) * time.Millisecond, nil
	}
	out := parseOutcome(r.text(1))
	if out.End == store.Filled {
		out.Taken = uint64(r.int(2))
	}
	return out, 0, nil
}
