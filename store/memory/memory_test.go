package memory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
		s := open(t, 64<<20)
		return s, s
	}, synctest.Test)
}

func open(t testing.TB, size int64) *Store {
	s := New(Config{MaxSize: size})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func key(format string, args ...any) policy.Key {
	return policy.Key{Primary: "api http example.com:80 /" + fmt.Sprintf(format, args...)}
}

// takes gives the lease of a key whatever is stored there.
func takes(t testing.TB, s *Store, k policy.Key) store.Lease {
	t.Helper()
	got, err := s.Take(context.Background(), k, store.Want{Token: "t", TTL: time.Minute, At: time.Now().Add(1000 * time.Hour)})
	if err != nil || got.Lease == nil {
		t.Fatalf("take: %+v, %v", got, err)
	}
	return *got.Lease
}

// fill keeps a body under a key for an hour.
func fill(t testing.TB, s *Store, k policy.Key, size int) {
	t.Helper()
	write := store.Write{Key: k, Entry: answer(size), Keep: time.Hour}
	if err := s.Commit(context.Background(), takes(t, s, k), write); err != nil {
		t.Fatal(err)
	}
}

func answer(size int) *store.Entry {
	e := &store.Entry{Body: store.Bytes{make([]byte, size)}}
	e.Status, e.FreshUntil = 200, time.Now().Add(time.Hour)
	return e
}

// each visits all slots; timers may be at work meanwhile.
func each(s *Store, visit func(*slot)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		for _, p := range sh.pages {
			for _, sl := range p {
				visit(sl)
			}
		}
		sh.mu.RUnlock()
	}
}

// there is kept without a look that counts as a hit.
func there(s *Store, k policy.Key) bool {
	sl := s.shard(k).slot(k)
	return sl != nil && sl.item != nil
}

// kept looks, as an exchange does.
func kept(s *Store, k policy.Key) bool {
	_, ok := s.Peek(k)
	return ok
}

func TestConfig(t *testing.T) {
	if err := (Config{MaxSize: 1 << 20}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{}).Validate(); err == nil || !strings.Contains(err.Error(), "max_size") {
		t.Errorf("max_size 0: %v", err)
	}
}

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
	if out, err := s.Await(ctx, key("a"), l.Token); err != nil || out.End != store.Lapsed {
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

// A timer that goes off before its time, as one does that waited for the lock of a renewal, ends nothing.
func TestTimerTooEarly(t *testing.T) {
	s := open(t, 1<<20)
	held := takes(t, s, key("x"))
	sh := s.shard(held.Key)
	sh.due(sh.lease(held.Key, held.Token))
	if _, err := s.Renew(context.Background(), held, time.Minute); err != nil {
		t.Error(err)
	}
}

// Watch does not return while its function is being called.
func TestWatchWaitsForItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, 1<<20)
		ctx, cancel := context.WithCancel(t.Context())
		gate, returned := make(chan struct{}), false
		go func() {
			_ = s.Watch(ctx, func(store.Event) { <-gate })
			returned = true
		}()
		synctest.Wait()
		go func() { _, _ = s.Purge(ctx, policy.Selector{All: true}, store.Hard) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if returned {
			t.Error("it returned")
		}
		close(gate)
		synctest.Wait()
		if !returned {
			t.Error("it did not return when the call had ended")
		}
	})
}

// Nothing is left in the maps of what is over: expired entries, ended leases, purged pages.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := open(t, 64<<20)
		slots := func() (n int) {
			each(s, func(*slot) { n++ })
			return n
		}
		for i := range 1000 {
			l := takes(t, s, key("released %d", i))
			_ = s.Release(ctx, l, store.Outcome{End: store.Failed, Remember: time.Hour})
			takes(t, s, key("revoked %d", i))
			fill(t, s, key("purged %d", i), 10)
		}
		if _, err := s.Purge(ctx, policy.Selector{All: true}, store.Hard); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			takes(t, s, key("run out %d", i))
		}
		// How leases ended is known for ten seconds; a thousand of a minute's run on.
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := slots(); n != 1000 {
			t.Errorf("%d slots are left, want the leases that are held", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := slots(); n != 0 {
			t.Errorf("%d slots are left", n)
		}

		for i := range 1000 {
			fill(t, s, key("%d", i), 10)
		}
		time.Sleep(2 * time.Hour)
		for i := range 1000 {
			fill(t, s, key("other %d", i), 10)
		}
		// Eight are looked at for one that comes.
		if n := s.Stats().Entries; n > 1150 {
			t.Errorf("%d entries, of which 1000 are in their time", n)
		}
	})
}

func TestPurgeOfMoreIsRefused(t *testing.T) {
	s := open(t, 1<<20)
	for _, sel := range []policy.Selector{{Tag: "a"}, {Prefix: "/a"}, {Host: "a"}, {Route: "a"}, {Page: "a", All: true}} {
		if _, err := s.Purge(context.Background(), sel, store.Hard); err == nil || !strings.Contains(err.Error(), "not built yet") {
			t.Errorf("%+v: %v", sel, err)
		}
	}
}

func TestPurgeCounts(t *testing.T) {
	s := open(t, 1<<20)
	for _, v := range []string{"", "a", "b"} {
		k := key("x")
		k.Variant = v
		fill(t, s, k, 10)
	}
	fill(t, s, key("y"), 10)
	for _, one := range []struct {
		sel  policy.Selector
		want int
	}{{policy.Selector{Page: key("x").Primary}, 3}, {policy.Selector{Page: key("x").Primary}, 0}, {policy.Selector{All: true}, 1}} {
		if got, err := s.Purge(context.Background(), one.sel, store.Hard); err != nil || got.Estimate != one.want {
			t.Errorf("%+v: %+v, %v; want %d", one.sel, got, err, one.want)
		}
	}
	if st := s.Stats(); st.Entries != 0 || st.Bytes != 0 {
		t.Errorf("left: %+v", st)
	}
}

func TestClosed(t *testing.T) {
	s := New(Config{MaxSize: 1 << 20})
	ctx := context.Background()
	l := takes(t, s, key("x"))
	_ = s.Close()
	_, take := s.Take(ctx, key("y"), store.Want{})
	_, purge := s.Purge(ctx, policy.Selector{All: true}, store.Hard)
	commit := s.Commit(ctx, l, store.Write{Key: key("x"), Entry: answer(1), Keep: time.Hour})
	for name, err := range map[string]error{"take": take, "purge": purge, "commit": commit} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTogether has everything happen at once, for the race detector, and then counts: what the queue holds is what the
// maps hold.
func TestTogether(t *testing.T) {
	const size = 1 << 20
	s := open(t, size)
	ctx, cancel := context.WithCancel(context.Background())
	var replaced, purged atomic.Int64
	var watch, all sync.WaitGroup
	watch.Go(func() {
		_ = s.Watch(ctx, func(e store.Event) {
			if e.Kind == store.Replaced {
				replaced.Add(1)
			} else {
				purged.Add(1)
			}
		})
	})
	for g := range 8 {
		all.Go(func() {
			for i := range 2000 {
				step(t, s, g, i)
			}
		})
	}
	all.Wait()
	cancel()
	watch.Wait()

	var want Stats
	each(s, func(sl *slot) {
		if sl.item != nil {
			want.Entries++
			want.Bytes += footprint(sl.item.entry)
		}
	})
	want.Evictions = s.Stats().Evictions
	if got := s.Stats(); got != want || got.Bytes > size {
		t.Errorf("counted %+v, held %+v", got, want)
	}
	if want.Evictions == 0 || replaced.Load() == 0 || purged.Load() == 0 {
		t.Errorf("%d evicted, %d replaced, %d purged: all should have come to pass", want.Evictions, replaced.Load(), purged.Load())
	}
}

// step does one of the many things, by number.
func step(t *testing.T, s *Store, g, i int) {
	ctx := context.Background()
	k := key("%d", (i*7+g*13)%300)
	got, err := s.Take(ctx, k, store.Want{Token: fmt.Sprint(g, i), TTL: time.Minute, At: time.Now()})
	switch {
	case err != nil:
		t.Error(err)
	case got.Lease != nil && i%5 == 0:
		_ = s.Release(ctx, *got.Lease, store.Outcome{End: store.Failed, Remember: time.Minute})
	case got.Lease != nil:
		e := answer(i * 37 % 30_000)
		e.FreshUntil = time.Now()
		write := store.Write{Key: k, Entry: e, Keep: time.Hour, Sign: k}
		if i%17 == 0 {
			write.Key.Variant, write.Variant = "v", &policy.Variant{Variant: "v", Arrived: time.Now()}
		}
		if err := s.Commit(ctx, *got.Lease, write); err != nil && !errors.Is(err, store.ErrLost) {
			t.Error(err)
		}
	case got.HeldBy != nil:
		_, _ = s.Await(ctx, k, got.HeldBy.Token)
	}
	s.Peek(k)
	if i%20 == 0 {
		_, _ = s.Purge(ctx, policy.Selector{Page: k.Primary}, store.Mode(i/20%3))
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

func TestHitsAllocateNothing(t *testing.T) {
	s := open(t, 1<<20)
	k := key("x")
	fill(t, s, k, 100)
	if n := testing.AllocsPerRun(100, func() { s.Peek(k) }); n != 0 {
		t.Errorf("a peek allocates %v times", n)
	}
	ctx, want := context.Background(), store.Want{Token: "t", TTL: time.Minute, At: time.Now()}
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Take(ctx, k, want) }); n != 0 {
		t.Errorf("a take of something fresh allocates %v times", n)
	}
}

func BenchmarkPeek(b *testing.B) {
	s := open(b, 64<<20)
	keys := make([]policy.Key, 1024)
	for i := range keys {
		keys[i] = key("catalogue/item/%d?lang=de", i)
		fill(b, s, keys[i], 1000)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, ok := s.Peek(keys[i%len(keys)]); !ok {
				b.Fatal("gone")
			}
		}
	})
}

func BenchmarkTakeFresh(b *testing.B) {
	s := open(b, 64<<20)
	k := key("x")
	fill(b, s, k, 1000)
	ctx, want := context.Background(), store.Want{Token: "t", TTL: time.Minute, At: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		if got, _ := s.Take(ctx, k, want); got.Entry == nil {
			b.Fatal("gone")
		}
	}
}

func BenchmarkTakeAndCommit(b *testing.B) {
	s := open(b, 4<<20)
	e := answer(1000)
	ctx, n := context.Background(), 0
	b.ReportAllocs()
	for b.Loop() {
		k := key("%d", n)
		n++
		got, _ := s.Take(ctx, k, store.Want{Token: "t", TTL: time.Minute, At: time.Now()})
		if err := s.Commit(ctx, *got.Lease, store.Write{Key: k, Entry: e, Keep: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
}
