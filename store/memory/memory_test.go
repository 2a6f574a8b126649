package memory

import (
	"context"
	"errors"
	"fmt"
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
	return policy.Key{Primary: "api http://example.com/" + fmt.Sprintf(format, args...)}
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
	want.Evictions, want.Pinned = s.Stats().Evictions, s.Stats().Pinned
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
		e.FreshUntil, e.Tags = time.Now(), []string{fmt.Sprint(i % 7), "all"}
		write := store.Write{Key: k, Entry: e, Keep: time.Hour, Sign: k}
		if i%17 == 0 {
			write.Key.Variant, write.Variant = "v", &policy.Variant{Variant: "v", Arrived: time.Now()}
		}
		if err := s.Commit(ctx, *got.Lease, write); err != nil && !errors.Is(err, store.ErrLost) {
			t.Error(err)
		}
	case got.HeldBy != nil:
		_, _ = s.Await(ctx, *got.HeldBy)
	}
	s.Peek(k)
	if i%20 == 0 {
		_, _ = s.Purge(ctx, policy.Selector{Page: k.Primary}, store.Mode(i/20%3))
	}
	if i%40 == 0 {
		s.Pin([]string{k.Primary, key("%d", g).Primary, key("%d", i%300).Primary})
	}
	if i%50 == 0 {
		_, _ = s.Purge(ctx, policy.Selector{Tag: fmt.Sprint(i % 7)}, store.Mode(i/50%3))
	}
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
