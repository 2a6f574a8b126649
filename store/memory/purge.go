package memory

import (
	"context"
	"fmt"
	"time"

	"weir/policy"
	"weir/store"
)

// many notes are kept; then every entry is held to them, and they are forgotten.
const many = 1 << 16

// Purge of a page covers its entries at once. Any other is a note, which entries are held to when they are looked at.
func (s *Store) Purge(_ context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	if err := s.refused(); err != nil {
		return store.Purged{}, fmt.Errorf("purge: %w", err)
	}
	if !sel.IsOne() {
		return store.Purged{}, fmt.Errorf("purge: %+v does not name one thing", sel)
	}
	at := s.stamp()
	n := s.Obey(sel, mode, at)
	if sel.All {
		n = s.settle() // which makes room, too
	}
	s.watchers.Tell(store.Event{Kind: store.PurgedNote, Selector: sel, Mode: mode, At: at})
	// This process is the one replica, and has obeyed when its watchers have.
	return store.Purged{Estimate: n, Replicas: 1, At: at}, nil
}

// Obey does what a purge of that date asks for, and answers what it covered; -1: that is not known.
func (s *Store) Obey(sel policy.Selector, mode store.Mode, at uint64) int {
	if sel.Page != "" {
		sh := s.shard(policy.Key{Primary: sel.Page})
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.purge(sh.pages[sel.Page], store.Says(mode, at))
	}
	s.note(sel, mode, at)
	return -1
}

// purge covers one page's entries and revokes its leases, and counts the entries.
func (sh *shard) purge(p page, said store.Said) (n int) {
	for _, sl := range p {
		if l := sl.lease; l != nil && !l.ended && l.Taken <= said.Newest() {
			l.lose(store.Revoked, time.Now())
		}
		if sl.item == nil || sl.item.entry.Leased > said.Newest() {
			continue
		}
		n++
		if e := said.Obeyed(sl.item.entry, sh.moment); e != nil {
			sl.item.entry = e
		} else {
			sh.drop(sl)
		}
	}
	return n
}

// note writes down what a purge said, and revokes the leases whose keys tell that it is about them. Whether it is about
// what other leases will bring, their commits find out.
func (s *Store) note(sel policy.Selector, mode store.Mode, at uint64) {
	s.notes.Add(sel, mode, at)
	now := time.Now()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for l := range sh.held {
			if l.Taken <= at && store.Covers(sel, l.Key, nil) {
				l.lose(store.Revoked, now)
			}
		}
		sh.mu.Unlock()
	}
	if s.notes.Len() > many {
		s.settle()
	}
}

// settle holds every entry to the notes, counts those that they are about, and forgets the notes: but for what a lease
// that is held may still bring.
func (s *Store) settle() (n int) {
	oldest := s.stamp()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for l := range sh.held {
			oldest = min(oldest, l.Taken)
		}
		for _, p := range sh.pages {
			for _, sl := range p {
				if sh.heed(sl) {
					n++
				}
			}
		}
		sh.mu.Unlock()
	}
	s.notes.Forget(oldest)
	return n
}

// heed makes of a slot's entry what the notes leave of it, and reports whether they change it. What is about the entry
// is about the lease too, which will probably bring something with the same tags. The caller holds the lock.
func (sh *shard) heed(sl *slot) bool {
	it, n := sl.item, sh.notes.Count()
	if it == nil || it.heeded.Load() == n {
		return false
	}
	said := sh.notes.About(it.key, &it.entry.Stored)
	if l := sl.lease; l != nil && !l.ended && l.Taken <= said.Newest() {
		l.lose(store.Revoked, time.Now())
	}
	switch e := said.Obeyed(it.entry, sh.moment); e {
	case nil:
		sh.drop(sl)
		return true
	case it.entry:
		it.heeded.Store(n)
		return false
	default:
		it.entry = e
		it.heeded.Store(n)
		return true
	}
}

// obeyed is what the notes leave of an entry, under either lock. It remembers of how many notes none was about it, so
// that as long as nobody purges a hit costs nothing more.
func (sh *shard) obeyed(it *item) *store.Entry {
	n := sh.notes.Count()
	if it.heeded.Load() == n {
		return it.entry
	}
	e := sh.notes.About(it.key, &it.entry.Stored).Obeyed(it.entry, sh.moment)
	if e == it.entry {
		it.heeded.Store(n)
	}
	return e
}
