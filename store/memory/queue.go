package memory

import (
	"container/list"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"weir/store"
)

const (
	// trial: new entries share this part of the store until they have been asked for again. So a scan, which asks for
	// nothing twice, goes through it and leaves the rest alone.
	trial = 10
	// spare: the last so many admissions are never the ones to go. What a client waited ten seconds for is not thrown
	// away by the next one that comes.
	spare = 8
	// pinnable: pinned entries take at most this part of the store.
	pinnable = 4
	// most: so many hits count, each as a turn that an entry stays when it is not asked for any more.
	most = 3
)

// queue decides what goes when the store is full, as S3-FIFO does: entries wait in order of admission in one of two
// lists, and a hit only counts. The first list is for the new; who was asked for meanwhile moves to the second. Who goes
// from the first is remembered by its hash for a while: coming again, it belongs to the second. What is pinned stands
// in a third and does not go.
type queue struct {
	mu        sync.Mutex
	max       int64
	fresh     line
	main      line
	pinned    line
	ghosts    ghosts
	admission uint64 // the last one's number
	evictions int64
}

// line is a list of items, the oldest first, and their bytes.
type line struct {
	list.List
	bytes int64
}

// place is where an item stands. The queue's lock guards it, but for hits.
type place struct {
	line      *line
	element   *list.Element
	size      int64
	admission uint64
	hits      atomic.Uint32
}

// hit counts a look. Two at once may count as one: that is near enough, and cheap when many look at the same.
func (p *place) hit() {
	if n := p.hits.Load(); n < most {
		p.hits.Store(n + 1)
	}
}

func (q *queue) bytes() int64 { return q.fresh.bytes + q.main.bytes + q.pinned.bytes }

// admit takes a new item in.
func (q *queue) admit(it *item, size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.size = size
	q.number(it)
	if q.ghosts.had(it) {
		q.enter(&q.main, it)
	} else {
		q.enter(&q.fresh, it)
	}
}

// renew counts what replaced an item's entry as another admission, and as a sign that it is wanted.
func (q *queue) renew(it *item, size int64) {
	it.hit()
	q.mu.Lock()
	defer q.mu.Unlock()
	it.line.bytes += size - it.size
	it.size = size
	q.number(it)
	if it.line == &q.pinned && !q.pins(0) { // it has outgrown the share
		q.move(it, &q.main)
	}
}

// pin has an item stay, if there is room for it in the share of those that do. The caller holds its shard's lock.
func (q *queue) pin(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.line != &q.pinned && q.pins(it.size) {
		q.move(it, &q.pinned)
	}
}

// pins reports whether so many bytes more may be pinned.
func (q *queue) pins(more int64) bool { return q.pinned.bytes+more <= q.max/pinnable }

// unpin has all that were pinned take their turn like others.
func (q *queue) unpin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.pinned.Len() > 0 {
		q.move(q.pinned.Front().Value.(*item), &q.main)
	}
}

func (q *queue) move(it *item, to *line) {
	q.leave(it)
	q.enter(to, it)
}

func (q *queue) number(it *item) {
	q.admission++
	it.admission = q.admission
}

func (q *queue) enter(l *line, it *item) {
	it.line, it.element = l, l.PushBack(it)
	l.bytes += it.size
}

func (q *queue) leave(it *item) {
	it.line.Remove(it.element)
	it.line.bytes -= it.size
}

// remove lets an item go that somebody else dropped.
func (q *queue) remove(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(it)
}

// victim chooses who goes next, and answers its admission so that expel knows it again; nil: all fits.
//
// The loop ends: past the bound there are at least thirteen items that are not pinned, as none is larger than a sixteenth
// and a quarter is pinned at most. So main, where it is chosen, has some that are not among the last admissions: it holds
// eleven or more, or fresh has nothing but the last.
func (q *queue) victim() (*item, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes() > q.max {
		if q.fresh.bytes > q.max/trial || q.main.Len() == 0 {
			it := q.fresh.Front().Value.(*item)
			if it.hits.Load() > 0 {
				it.hits.Store(0)
				q.move(it, &q.main)
				continue
			}
			if q.isOld(it) {
				return it, it.admission
			}
		}
		it := q.main.Front().Value.(*item)
		n := it.hits.Load()
		if n == 0 && q.isOld(it) {
			return it, it.admission
		}
		it.hits.Store(max(n, 1) - 1)
		q.main.MoveToBack(it.element)
	}
	return nil, 0
}

// isOld: spare others were admitted later.
func (q *queue) isOld(it *item) bool { return q.admission-it.admission >= spare }

// expel lets the victim go, unless it was admitted again or pinned meanwhile. The caller holds its shard's lock.
func (q *queue) expel(it *item, admission uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.admission != admission || it.line == &q.pinned {
		return false
	}
	if it.line == &q.fresh {
		q.ghosts.add(it, q.entries())
	}
	q.leave(it)
	q.evictions++
	return true
}

func (q *queue) stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Entries: int64(q.entries()), Bytes: q.bytes(), Pinned: q.pinned.bytes, Evictions: q.evictions}
}

func (q *queue) entries() int { return q.fresh.Len() + q.main.Len() + q.pinned.Len() }

// ghosts are the hashes of who went before being asked for again, in two generations: when the young are as many as
// the store has entries, the old are forgotten.
type ghosts struct {
	seed       maphash.Seed
	young, old map[uint64]struct{}
}

func (g *ghosts) add(it *item, many int) {
	if g.young == nil || len(g.young) >= many {
		g.old, g.young = g.young, make(map[uint64]struct{})
	}
	g.young[maphash.Comparable(g.seed, it.key)] = struct{}{}
}

func (g *ghosts) had(it *item) bool {
	h := maphash.Comparable(g.seed, it.key)
	_, young := g.young[h]
	_, old := g.old[h]
	return young || old
}

// overhead is what an entry costs beside its bytes: the entry, its slot, its places in maps and lists.
const overhead = 1200

// footprint is about how much memory an entry takes.
func footprint(e *store.Entry) int64 {
	const word = 16 // a string's own
	n := int64(overhead + len(e.Key.Primary) + len(e.Key.Variant))
	texts := func(list []string) {
		for _, s := range list {
			n += int64(word + len(s))
		}
	}
	for name, values := range e.Header {
		n += int64(4*word + len(name))
		texts(values)
	}
	texts(e.Vary)
	texts(e.Tags)
	for _, v := range e.Variants {
		n += int64(10*word + len(v.Language) + len(v.Coding) + len(v.Variant))
		texts(v.Names)
		texts(v.Values)
	}
	if e.Body != nil {
		for _, span := range e.Body.Spans() {
			n += span.Len()
		}
	}
	return n
}
