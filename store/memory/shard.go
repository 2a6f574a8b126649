package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"weir/policy"
	"weir/store"
)

// swept is how many slots a commit looks at for what is out of its time, or was purged.
const swept = 8

// shard is the part of the pages whose names hash alike.
type shard struct {
	mu    sync.RWMutex
	pages map[string]page     // by Key.Primary
	held  map[*lease]struct{} // not ended yet
	queue *queue
	notes *store.Notes
	clock store.Clock
}

// page holds a page's variants by Key.Variant, its own key's among them.
type page map[string]*slot

// slot is all that is known of one key. It is there as long as anything is.
type slot struct {
	key   policy.Key
	item  *item
	lease *lease // held now, or the last one that was
	// revoked is when the last lease that a purge ended was taken.
	revoked uint64
}

// item is a stored entry. The shard's lock guards what stands here, but for place, which is the queue's, hits and heeded.
type item struct {
	place
	key    policy.Key
	entry  *store.Entry
	until  time.Time     // it is kept
	asOf   time.Time     // it was known to be the latest
	heeded atomic.Uint64 // so many notes have left the entry as it is
	// failed is remembered until failedUntil, and then stands in the way of a lease (R23).
	failed      *store.Outcome
	failedUntil time.Time
}

// put is one thing that a commit writes.
type put struct {
	entry *store.Entry
	until time.Time
	asOf  time.Time
	size  int64
}

func (sh *shard) slot(key policy.Key) *slot { return sh.pages[key.Primary][key.Variant] }

// need is the slot, made when it is not there.
func (sh *shard) need(key policy.Key) *slot {
	p := sh.pages[key.Primary]
	if p == nil {
		p = make(page, 1)
		sh.pages[key.Primary] = p
	}
	sl := p[key.Variant]
	if sl == nil {
		sl = &slot{key: key}
		p[key.Variant] = sl
	}
	return sl
}

// prune forgets a slot that holds nothing.
func (sh *shard) prune(sl *slot) {
	if sl.item != nil || sl.lease != nil {
		return
	}
	p := sh.pages[sl.key.Primary]
	delete(p, sl.key.Variant)
	if len(p) == 0 {
		delete(sh.pages, sl.key.Primary)
	}
}

// entry is a hit, under either lock.
func (sh *shard) entry(key policy.Key, now time.Time) *store.Entry {
	sl := sh.slot(key)
	if sl == nil || sl.item == nil || !now.Before(sl.item.until) {
		return nil
	}
	sl.item.hit()
	return sh.obeyed(sl.item)
}

// current is the slot of a key with what notes have left of its entry; nil: there is none. The caller holds the lock.
func (sh *shard) current(key policy.Key) *slot {
	if sl := sh.slot(key); sl != nil {
		sh.heed(sl)
	}
	return sh.slot(key)
}

// drop takes an item out.
func (sh *shard) drop(sl *slot) {
	if sl.item != nil {
		sh.queue.remove(sl.item)
		sl.item = nil
	}
	sh.prune(sl)
}

// put writes one thing. A commit ends what was remembered of failures.
func (sh *shard) put(p put) {
	sl := sh.need(p.entry.Key)
	if sl.item == nil {
		sl.item = &item{key: p.entry.Key, entry: p.entry, until: p.until, asOf: p.asOf}
		sh.queue.admit(sl.item, p.size)
		return
	}
	it := sl.item
	it.entry, it.until, it.asOf, it.failed = p.entry, p.until, p.asOf, nil
	it.heeded.Store(0) // a note that came since the lease was compared is still to be heeded
	sh.queue.renew(it, p.size)
}

// puts is what a commit comes to: the entry, and the signpost that leads to it.
func (sh *shard) puts(l *lease, write store.Write, now time.Time) []put {
	until := now.Add(write.Keep)
	e := *write.Entry
	e.Key, e.Leased = write.Key, l.Taken
	puts := []put{{entry: &e, until: until}}
	if old := sh.current(write.Key); e.Kind == policy.Marker && old != nil && old.item != nil && now.Before(old.item.until) {
		puts[0] = put{entry: lend(old.item.entry, &e), until: later(old.item.until, until)}
	}
	if write.Variant != nil {
		puts = append(puts, sh.sign(l, write, now))
	}
	for i := range puts {
		puts[i].size, puts[i].asOf = footprint(puts[i].entry), l.began
	}
	return puts
}

// sign is the signpost with the write's line in it; past policy's limit it is a marker.
func (sh *shard) sign(l *lease, write store.Write, now time.Time) put {
	var old policy.Stored
	until := now.Add(write.Keep)
	if sl := sh.current(write.Sign); sl != nil && sl.item != nil && now.Before(sl.item.until) {
		old = sl.item.entry.Stored
		if old.Kind == policy.Signpost {
			until = later(sl.item.until, until)
		}
	}
	sign := policy.AddVariant(old, *write.Variant)
	sign.Leased = l.Taken
	return put{entry: &store.Entry{Key: write.Sign, Stored: sign}, until: until}
}

// lend is what lies under a key after a marker came to it. Another marker is replaced, and the marks of both hold.
// Whatever else is there stays as it is and bears the marks (R4).
func lend(old, marker *store.Entry) *store.Entry {
	e := *old
	if old.Kind == policy.Marker {
		e = *marker
	}
	for i := range e.Marked {
		e.Marked[i] = later(old.Marked[i], marker.Marked[i])
	}
	e.Why = marker.Why
	return &e
}

// sweep drops what is out of its time, or was purged, among some slots: a map's range begins anywhere.
func (sh *shard) sweep(now time.Time) {
	left := swept
	for _, p := range sh.pages {
		for _, sl := range p {
			if sl.item != nil && !now.Before(sl.item.until) {
				sh.drop(sl)
			} else {
				sh.heed(sl)
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
