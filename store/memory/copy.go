package memory

import (
	"time"

	"weir/policy"
	"weir/store"
)

// Copies of what another store holds, which lies behind this one (store/near).

// Held answers what is kept, and as of when it was known to be the latest.
func (s *Store) Held(key policy.Key) (*store.Entry, time.Time) {
	sh := s.shard(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	e := sh.entry(key, time.Now())
	if e == nil {
		return nil, time.Time{}
	}
	return e, sh.slot(key).item.asOf
}

// Insert keeps a copy as of a moment, for as long as it can be of use; unless a later entry is there. How leases have
// ended here does not matter to it.
func (s *Store) Insert(e *store.Entry, asOf time.Time) {
	p := put{entry: e, until: later(e.FreshUntil, later(e.RefreshUntil, e.RescueUntil)), asOf: asOf, size: footprint(e)}
	if !s.Fits(p.size) || !p.until.After(time.Now()) {
		return
	}
	sh := s.shard(e.Key)
	sh.mu.Lock()
	if sl := sh.current(e.Key); sl == nil || sl.item == nil || sl.item.entry.Leased <= e.Leased {
		sh.put(p)
		sh.sweep(time.Now())
	}
	sh.mu.Unlock()
	s.evict()
}

// Drop forgets what was leased before then.
func (s *Store) Drop(key policy.Key, before uint64) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sl := sh.slot(key); sl != nil && sl.item != nil && sl.item.entry.Leased < before {
		sh.drop(sl)
	}
}

// Fits reports whether an entry of so many bytes would be kept.
func (s *Store) Fits(size int64) bool { return size <= s.queue.max/largest }

// Pin has what is kept of these pages stay when others make room, the first ones first, as long as a quarter of the
// store holds them. What was pinned before is not any more.
func (s *Store) Pin(pages []string) {
	s.queue.unpin()
	for _, name := range pages {
		sh := s.shard(policy.Key{Primary: name})
		sh.mu.RLock()
		for _, sl := range sh.pages[name] {
			if sl.item != nil {
				s.queue.pin(sl.item)
			}
		}
		sh.mu.RUnlock()
	}
}
