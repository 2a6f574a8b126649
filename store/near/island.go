package near

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

// island are the leases that this replica has granted to itself while the far store was away, each with the reason.
type island struct {
	mu     sync.Mutex
	leases map[string]error
}

func (i *island) grant(token string, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.leases == nil {
		i.leases = make(map[string]error)
	}
	i.leases[token] = why
}

func (i *island) of(token string) (why error, mine bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	why, mine = i.leases[token]
	return why, mine
}

func (i *island) forget(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.leases, token)
}

// granter is the store that granted a lease.
func (s *Store) granter(token string) store.Store {
	if _, mine := s.island.of(token); mine {
		return s.memory
	}
	return s.far
}

// isAway: the far store does not answer. A caller that has left says nothing of it.
func isAway(err error) bool { return errors.Is(err, store.ErrUnavailable) }

// isAlone: nobody else can give the right to fill.
func isAlone(err error) bool { return isAway(err) || errors.Is(err, store.ErrReadOnly) }

// alone answers from the copies, and grants the lease here.
func (s *Store) alone(ctx context.Context, key policy.Key, want store.Want, far store.Taken, why error) (store.Taken, error) {
	// What was not checked since the line was last whole may have been purged before that.
	if _, asOf := s.memory.Held(key); asOf.Before(s.line.Load().since) {
		s.memory.Drop(key, always)
	}
	got, err := s.memory.Take(ctx, key, want)
	if err != nil {
		return far, why
	}
	if got.Lease != nil {
		s.island.grant(got.Lease.Token, why)
	}
	if got.Entry == nil {
		got.Entry = far.Entry
	}
	got.Alone = why
	return got, nil
}

// commitAlone keeps what a lease of this replica's own has brought. A far store that did not answer when the lease was
// taken may have granted it all the same (R14): if it answers by now, it decides.
func (s *Store) commitAlone(ctx context.Context, lease store.Lease, write store.Write, why error) error {
	defer s.island.forget(lease.Token)
	if !errors.Is(why, store.ErrReadOnly) {
		err := s.far.Commit(ctx, store.Lease{Key: lease.Key, Token: lease.Token}, write)
		if !isAway(err) {
			out := store.Outcome{End: store.Lapsed}
			if err == nil {
				out.End = store.Filled
			}
			return errors.Join(err, s.memory.Release(ctx, lease, out))
		}
	}
	write.Entry = s.capped(write.Entry)
	return s.memory.Commit(ctx, lease, write)
}

// unverified keeps here what the far store was to be given when it went away: others may not have it, and it may not be
// the latest.
func (s *Store) unverified(lease store.Lease, write store.Write, a asked) {
	select {
	case <-lease.Lost:
		return
	default:
	}
	if write.Entry.Kind == policy.Marker {
		return
	}
	e := s.capped(write.Entry)
	e.Key, e.Leased = write.Key, lease.Taken
	s.keep(e, a)
}

// capped is an entry that only this replica vouches for.
func (s *Store) capped(e *store.Entry) *store.Entry {
	c := *store.Dated(e, store.Soft, time.Now().Add(s.awayTTL))
	c.Unverified = true
	return &c
}
