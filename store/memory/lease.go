package memory

import (
	"context"
	"time"

	"weir/policy"
	"weir/store"
)

// remembered is how long it is known how a lease ended, for those who ask late and for commits that come again.
const remembered = 10 * time.Second

// lease is a lease held or ended. All is guarded by the shard's lock, but for out once done is closed.
type lease struct {
	store.Lease // as it is told to others: Lost is nil
	shard       *shard
	began       time.Time // by this process's clock
	class       policy.Class
	lost        chan struct{} // closed when it is revoked or runs out
	done        chan struct{} // closed when it has ended, whatever way
	ended       bool
	committed   bool
	out         store.Outcome
	// timer goes off at until: then a held lease runs out, and an ended one is forgotten. It may go off too early, when
	// until was moved while it waited for the lock.
	timer *time.Timer
	until time.Time
}

// Take looks up, and grants the lease when nothing fresh enough is stored, nobody holds it and no failure forbids it.
func (s *Store) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	if err := s.refused(); err != nil {
		return store.Taken{}, failed("take", key, err)
	}
	if err := ctx.Err(); err != nil {
		return store.Taken{}, failed("take", key, err)
	}
	// Most takes find something fresh: they need no more than the read lock.
	if e, ok := s.Peek(key); ok && e.FreshUntil.After(want.At) {
		return store.Taken{Entry: e}, nil
	}
	sh, now := s.shard(key), time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sl := sh.current(key)
	e := sh.entry(key, now)
	if e != nil && e.FreshUntil.After(want.At) {
		return store.Taken{Entry: e}, nil
	}
	if sl != nil && sl.lease != nil && !sl.lease.ended {
		if want.TTL <= 0 || want.Over == "" || want.Over != sl.lease.Token {
			return held(e, sl.lease, want), nil
		}
		sl.lease.lose(store.Lapsed, now)
	}
	if want.TTL <= 0 {
		return store.Taken{Entry: e}, nil
	}
	sl = sh.need(key)
	if out := spared(sl.item, now); out != nil && out.Taken > want.Despite {
		return store.Taken{Entry: e, Failed: out}, nil
	}
	return store.Taken{Entry: e, Lease: s.grant(sh, sl, want).granted()}, nil
}

// held answers who holds the lease, and leaves the waiter's class in it; to the holder, that it is the holder.
func held(e *store.Entry, l *lease, want store.Want) store.Taken {
	if want.TTL > 0 && want.Token == l.Token {
		l.prolong(time.Now().Add(want.TTL))
		return store.Taken{Entry: e, Lease: l.granted()}
	}
	if want.TTL > 0 {
		l.class = min(l.class, want.Class)
	}
	by := l.Lease
	return store.Taken{Entry: e, HeldBy: &by}
}

// spared is the failure that is still remembered, when a copy that may stand in for it is there.
func spared(it *item, now time.Time) *store.Outcome {
	if it == nil || it.failed == nil || !now.Before(it.failedUntil) ||
		!now.Before(it.until) || !it.entry.RescueUntil.After(now) {
		return nil
	}
	out := *it.failed
	out.Remember = it.failedUntil.Sub(now)
	return &out
}

// grant puts a new lease into the slot.
func (s *Store) grant(sh *shard, sl *slot, want store.Want) *lease {
	now := time.Now()
	if sl.lease != nil {
		sl.lease.timer.Stop()
	}
	l := &lease{
		Lease: store.Lease{Key: sl.key, Token: want.Token, Holder: want.Holder, Taken: s.stamp()},
		shard: sh, began: now, class: want.Class,
		lost: make(chan struct{}), done: make(chan struct{}),
		until: now.Add(want.TTL),
	}
	l.timer = time.AfterFunc(want.TTL, func() { sh.due(l) })
	sl.lease = l
	sh.held[l] = struct{}{}
	return l
}

// due is the timer's deed.
func (sh *shard) due(l *lease) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sl, now := sh.slot(l.Key), time.Now()
	switch {
	case sl == nil || sl.lease != l:
	case now.Before(l.until):
		l.prolong(l.until)
	case l.ended:
		sl.lease = nil
		sh.prune(sl)
	default:
		l.lose(store.Lapsed, now)
	}
}

// forget stops the timers of leases that have ended.
func (sh *shard) forget() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, p := range sh.pages {
		for _, sl := range p {
			if sl.lease != nil && sl.lease.ended {
				sl.lease.timer.Stop()
				sl.lease = nil
				sh.prune(sl)
			}
		}
	}
}

// lease is the lease with this token, held or the last that was.
func (sh *shard) lease(key policy.Key, token string) *lease {
	if sl := sh.slot(key); sl != nil && sl.lease != nil && sl.lease.Token == token {
		return sl.lease
	}
	return nil
}

// revoked reports whether a purge ended a lease whose place somebody else's has taken.
func (sh *shard) revoked(l store.Lease) bool {
	sl := sh.slot(l.Key)
	return sl != nil && l.Taken > 0 && l.Taken <= sl.revoked
}

func (l *lease) granted() *store.Lease {
	mine := l.Lease
	mine.Lost = l.lost
	return &mine
}

func (l *lease) prolong(until time.Time) {
	l.until = until
	l.timer.Reset(time.Until(until))
}

func (l *lease) end(out store.Outcome, now time.Time) {
	l.ended, l.out = true, out
	delete(l.shard.held, l)
	close(l.done)
	l.prolong(now.Add(remembered))
}

// lose ends a lease against its holder's will: Revoked by a purge, or Lapsed.
func (l *lease) lose(how store.End, now time.Time) {
	close(l.lost)
	if how == store.Revoked {
		l.shard.slot(l.Key).revoked = l.Taken
	}
	l.end(store.Outcome{End: how}, now)
}

// Renew prolongs a lease that is still held.
func (s *Store) Renew(_ context.Context, held store.Lease, ttl time.Duration) (policy.Class, error) {
	sh := s.shard(held.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lease(held.Key, held.Token)
	if l == nil || l.ended {
		return 0, failed("renew", held.Key, store.ErrLost)
	}
	l.prolong(time.Now().Add(ttl))
	return l.class, nil
}

// Release ends the lease, and remembers a failure with the copy that may stand in for it.
func (s *Store) Release(_ context.Context, held store.Lease, out store.Outcome) error {
	sh, now := s.shard(held.Key), time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lease(held.Key, held.Token)
	if l == nil || l.ended {
		return nil
	}
	l.end(out, now)
	if it := sh.slot(held.Key).item; it != nil && out.End == store.Failed {
		out.Taken = l.Taken
		it.failed, it.failedUntil = &out, now.Add(out.Remember)
	}
	return nil
}

// Await returns how the lease ended; at once when it has, or is not known.
func (s *Store) Await(ctx context.Context, held store.Lease) (store.Outcome, error) {
	sh := s.shard(held.Key)
	sh.mu.RLock()
	l := sh.lease(held.Key, held.Token)
	revoked := sh.revoked(held)
	sh.mu.RUnlock()
	switch {
	case l == nil && revoked:
		return store.Outcome{End: store.Revoked}, nil
	case l == nil:
		return store.Outcome{End: store.Lapsed}, nil
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-l.done:
		return l.out, nil
	case <-ctx.Done():
		return store.Outcome{}, failed("await", held.Key, ctx.Err())
	case <-s.closed:
		return store.Outcome{}, failed("await", held.Key, s.refused())
	}
}
