package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

// Purge covers a page, or everything.
func (s *Store) Purge(_ context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	if err := s.refused(); err != nil {
		return store.Purged{}, fmt.Errorf("purge %+v: %w", sel, err)
	}
	n, now := 0, time.Now()
	switch sel {
	case policy.Selector{}:
		return store.Purged{}, errors.New("purge: the selector names nothing")
	case policy.Selector{Page: sel.Page}:
		sh := s.shard(policy.Key{Primary: sel.Page})
		sh.mu.Lock()
		n = sh.purge(sh.pages[sel.Page], mode, now)
		sh.mu.Unlock()
	case policy.Selector{All: true}:
		for i := range s.shards {
			sh := &s.shards[i]
			sh.mu.Lock()
			for _, p := range sh.pages {
				n += sh.purge(p, mode, now)
			}
			sh.mu.Unlock()
		}
	default:
		return store.Purged{}, fmt.Errorf("purge %+v: only a page or all can be purged: purge by tag, prefix, host or route is not built yet", sel)
	}
	told := s.watchers.tell(store.Event{Kind: store.PurgedNote, Selector: sel, Mode: mode})
	return store.Purged{Estimate: n, Replicas: told}, nil
}

// purge covers one page's entries and revokes its leases, and counts the entries.
func (sh *shard) purge(p page, mode store.Mode, now time.Time) (n int) {
	for _, sl := range p {
		if sl.lease != nil && !sl.lease.ended {
			sl.lease.revoke(now)
		}
		if sl.item == nil {
			continue
		}
		n++
		if mode == store.Hard {
			sh.drop(sl)
		} else {
			sl.item.entry = dated(sl.item.entry, mode, now)
		}
	}
	return n
}

// dated is the entry as a soft purge leaves it. A signpost is no answer and stays: it tells where the variants are.
func dated(e *store.Entry, mode store.Mode, now time.Time) *store.Entry {
	if e.Kind == policy.Signpost {
		return e
	}
	old := *e
	moments := []*time.Time{&old.FreshUntil}
	if mode == store.MustValidate {
		moments = append(moments, &old.RefreshUntil, &old.RescueUntil)
	}
	for _, t := range moments {
		if t.After(now) {
			*t = now
		}
	}
	return &old
}

// watchers are those who are told of events.
type watchers struct {
	mu   sync.Mutex
	list map[*watcher]struct{}
}

type watcher struct {
	obey  func(store.Event)
	calls sync.WaitGroup
}

// tell returns when all have obeyed, and how many. They are called without a lock, so that they may use the store.
func (w *watchers) tell(e store.Event) int {
	w.mu.Lock()
	told := make([]*watcher, 0, len(w.list))
	for one := range w.list {
		one.calls.Add(1)
		told = append(told, one)
	}
	w.mu.Unlock()
	for _, one := range told {
		one.obey(e)
		one.calls.Done()
	}
	return len(told)
}

// Watch tells obey of events until ctx ends or the store is closed, and returns when no call of it is under way.
func (s *Store) Watch(ctx context.Context, obey func(store.Event)) error {
	one := &watcher{obey: obey}
	s.watchers.mu.Lock()
	if s.watchers.list == nil {
		s.watchers.list = make(map[*watcher]struct{})
	}
	s.watchers.list[one] = struct{}{}
	s.watchers.mu.Unlock()
	defer one.calls.Wait()
	defer func() {
		s.watchers.mu.Lock()
		defer s.watchers.mu.Unlock()
		delete(s.watchers.list, one)
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("watch: %w", ctx.Err())
	case <-s.closed:
		return fmt.Errorf("watch: %w", s.refused())
	}
}
