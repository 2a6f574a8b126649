package memory

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// An entry of a sixteenth is kept; a larger one is not, nor its signpost, and what was there stays.
func TestLargest(t *testing.T) {
	const size = 16 << 20
	ctx := context.Background()
	s := open(t, size)
	e := answer(0)
	most := size/16 - int(footprint(&store.Entry{Key: key("a"), Stored: e.Stored, Body: e.Body}))
	fill(t, s, key("a"), most)
	if e, ok := s.Peek(key("a")); !ok || e.Body.Size() != int64(most) {
		t.Fatal("an entry of a sixteenth is not kept")
	}

	l := takes(t, s, key("a"))
	write := store.Write{Key: key("a"), Entry: answer(most + 1), Keep: time.Hour, Sign: key("a")}
	write.Key.Variant, write.Variant = "v", &policy.Variant{Variant: "v"}
	for range 2 { // again is the same
		if err := s.Commit(ctx, l, write); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	if out, err := s.Await(ctx, l); err != nil || out.End != store.Lapsed {
		t.Errorf("its waiters learn %+v, %v", out, err)
	}
	if e, ok := s.Peek(key("a")); !ok || e.Kind != policy.Answer || e.Body.Size() != int64(most) {
		t.Errorf("under the page's key lies %+v", e)
	}
	if kept(s, write.Key) {
		t.Error("an entry of more than a sixteenth is kept")
	}
}

// The bound holds over all shards together, and entries of one shard may take it all.
func TestBound(t *testing.T) {
	const size = 8 << 20
	s := open(t, size)
	for i := range 3000 {
		fill(t, s, key("%d", i), 100+i%20_000)
		if st := s.Stats(); st.Bytes > size {
			t.Fatalf("after %d: %d bytes of %d", i, st.Bytes, size)
		}
	}
	st := s.Stats()
	if st.Bytes < size*9/10 || st.Evictions+st.Entries != 3000 {
		t.Errorf("%+v: want it nearly full, and every entry here or evicted", st)
	}

	s = open(t, size)
	for i := range 100 {
		k := key("one page")
		k.Variant = fmt.Sprint(i)
		fill(t, s, k, 64<<10)
	}
	if st := s.Stats(); st.Entries < 100 {
		t.Errorf("%d variants of one page are kept, of 100 that fit", st.Entries)
	}
}

// The last eight to come stay, however large they are and whatever the store is full of.
func TestFreshFillStays(t *testing.T) {
	const size = 16 << 20
	for name, wanted := range map[string]bool{"what is wanted": true, "what nobody wants": false} {
		s := open(t, size)
		for i := range 40 {
			fill(t, s, key("old %d", i), size/40)
			for range most {
				if wanted {
					kept(s, key("old %d", i))
				}
			}
		}
		for i := range 100 {
			fill(t, s, key("new %d", i), size/17)
			for back := range min(8, i+1) {
				if !there(s, key("new %d", i-back)) {
					t.Fatalf("full of %s: entry %d is gone after %d more", name, i-back, back)
				}
			}
		}
	}
}

// It stays too where all others are wanted and it is not: where it came again, and they are asked for all the time.
func TestFreshFillStaysAmongTheWanted(t *testing.T) {
	const size = 16 << 20
	s := open(t, size)
	k, n := key("the one"), 0
	next := func() {
		fill(t, s, key("%d", n), size/17)
		n++
		for i := range n {
			kept(s, key("%d", i))
		}
	}
	for range 16 {
		next()
	}
	fill(t, s, k, size/17)
	for there(s, k) {
		next()
	}
	fill(t, s, k, size/17)
	for back := range 7 {
		next()
		if !there(s, k) {
			t.Fatalf("it is gone after %d more", back+1)
		}
	}
}

// A refreshed entry is as fresh as a new one, wherever it stood.
func TestRefreshedStays(t *testing.T) {
	const size = 16 << 20
	s := open(t, size)
	for i := range 30 {
		fill(t, s, key("%d", i), size/17)
		if i >= 14 {
			fill(t, s, key("%d", i-3), size/17)
			if !there(s, key("%d", i-3)) {
				t.Fatalf("%d is gone as soon as it was filled again", i-3)
			}
		}
	}
}

// A scan of pages that are asked for once leaves those alone that are asked for again and again.
func TestScan(t *testing.T) {
	const size, each = 8 << 20, 8 << 10
	s := open(t, size)
	const hot = size / each / 2
	for range 3 {
		for i := range hot {
			if !kept(s, key("hot %d", i)) {
				fill(t, s, key("hot %d", i), each)
			}
		}
	}
	for i := range 10 * size / each {
		fill(t, s, key("scan %d", i), each)
		kept(s, key("hot %d", i%hot))
	}
	left := 0
	for i := range hot {
		if kept(s, key("hot %d", i)) {
			left++
		}
	}
	if left < hot*95/100 {
		t.Errorf("%d of %d are left", left, hot)
	}
}

// Who comes again after it went is one that is wanted: it outlives the scan that goes on.
func TestComesAgain(t *testing.T) {
	const size, each = 4 << 20, 32 << 10
	s := open(t, size)
	for i := range size / each * 7 / 8 {
		fill(t, s, key("hot %d", i), each)
		kept(s, key("hot %d", i))
	}
	k, n := key("again"), 0
	scan := func(many int) {
		for range many {
			fill(t, s, key("scan %d", n), each)
			n++
		}
	}
	fill(t, s, k, each)
	scan(size / each)
	if there(s, k) {
		t.Fatal("asked for once, it is still there")
	}
	fill(t, s, k, each)
	scan(size / each / 4) // more than twice the part of the new
	if !there(s, k) {
		t.Error("asked for twice, it went with the scan")
	}
}

// A victim that was filled again, after it was chosen and before it went, stays.
func TestVictimComesBack(t *testing.T) {
	s := open(t, 1<<20)
	for i := range 17 {
		fill(t, s, key("%d", i), 50<<10)
	}
	s.queue.max = 500 << 10
	it, admission := s.queue.victim()
	if it == nil {
		t.Fatal("too much is held, and nothing has to go")
	}
	fill(t, s, it.key, 10)
	if s.queue.expel(it, admission) || !there(s, it.key) {
		t.Error("it went")
	}
}

// TestFootprint holds what is counted against what the heap says, for entries where the overhead is most of it.
func TestFootprint(t *testing.T) {
	const n = 20_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := open(t, 1<<30)
	for i := range n {
		k := key("%d", i)
		e := answer(100)
		e.Header = map[string][]string{}
		for _, name := range []string{"Content-Type", "Etag", "Date", "Cache-Control", "Last-Modified"} {
			e.Header[name] = []string{fmt.Sprintf("the value of %d", i)}
		}
		l := takes(t, s, k)
		if err := s.Commit(context.Background(), l, store.Write{Key: k, Entry: e, Keep: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	counted, grown := s.Stats().Bytes, int64(heap()-before)
	t.Logf("%d bytes an entry are counted, %d are held", counted/n, grown/n)
	if counted < grown*2/3 || counted > grown*3/2 {
		t.Errorf("counted %d, held %d", counted, grown)
	}
	runtime.KeepAlive(s)
}

// TestBetterThanLRU plays the traffic of a site: popular pages, sizes of all kinds, and three requests in ten for
// something that nobody asks for again.
func TestBetterThanLRU(t *testing.T) {
	const size, pages, asked = 4 << 20, 20_000, 40_000
	dice := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(dice, 1.01, 10, pages-1)
	s, plain := open(t, size), lru{items: map[policy.Key]*list.Element{}}
	hits, plainHits := 0, 0
	for i := range asked {
		k := key("once %d", i)
		if dice.IntN(10) >= 3 {
			k = key("%d", popular.Uint64())
		}
		bytes := 200 << (len(k.Primary) * 7 % 6)
		if kept(s, k) {
			hits++
		} else {
			fill(t, s, k, bytes)
		}
		e := answer(bytes)
		e.Key = k
		if plain.ask(k, footprint(e), size) {
			plainHits++
		}
	}
	t.Logf("of %d requests %d hit, with least-recently-used %d", asked, hits, plainHits)
	if hits < plainHits*11/10 {
		t.Errorf("%d hits, want a tenth more than the %d of least-recently-used", hits, plainHits)
	}
}

// lru is the policy to beat.
type lru struct {
	items map[policy.Key]*list.Element
	order list.List
	bytes int64
}

type used struct {
	key  policy.Key
	size int64
}

func (l *lru) ask(k policy.Key, size, most int64) bool {
	if e, ok := l.items[k]; ok {
		l.order.MoveToBack(e)
		return true
	}
	l.items[k] = l.order.PushBack(used{k, size})
	for l.bytes += size; l.bytes > most; {
		u := l.order.Remove(l.order.Front()).(used)
		l.bytes -= u.size
		delete(l.items, u.key)
	}
	return false
}
