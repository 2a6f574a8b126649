package redis

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/memory"
	"weir/store/near"
	"weir/store/storetest"
)

// near puts a memory store in front of one on Redis.
func before(t testing.TB, far *Store) *near.Store {
	s := near.New(far, memory.Near(memory.Config{MaxSize: 64 << 20}, far), 30*time.Second)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestContractBehindNear: the near tier keeps the contract, Redis behind it.
func TestContractBehindNear(t *testing.T) {
	srv := startServer(t)
	var stores atomic.Int64
	storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
		c := srv.config(fmt.Sprintf("near-%d", stores.Add(1)))
		return before(t, srv.open(t, c)), before(t, srv.open(t, c))
	}, storetest.RealClock)
}

// replicas are two on one Redis, each with its near tier.
type replicas struct {
	*bench
	a, b  *near.Store
	other *Store // behind b
}

func newReplicas(t *testing.T) *replicas {
	b := newBench(t)
	other := b.srv.open(t, b.srv.config("weir"))
	return &replicas{bench: b, a: before(t, b.Store), b: before(t, other), other: other}
}

// fill keeps an answer with a tag in a's name.
func (r *replicas) fill(key policy.Key, body string) store.Lease {
	r.Helper()
	got, err := r.a.Take(r.Context(), key, store.Want{Token: "fill " + body[:min(len(body), 9)], TTL: long, At: time.Now().Add(2 * long)})
	if err != nil || got.Lease == nil {
		r.Fatalf("take: %+v, %v", got, err)
	}
	e := answer(body, long)
	e.Tags, e.Route = []string{"red"}, "all"
	r.must(r.a.Commit(r.Context(), *got.Lease, write(key, e)))
	return *got.Lease
}

// has b look, so that it holds a copy.
func (r *replicas) copied(key policy.Key, body string) {
	r.Helper()
	if _, err := r.b.Take(r.Context(), key, look()); err != nil {
		r.Fatal(err)
	}
	eventually(r, "the copy is there", func() bool { return r.peeks(r.b, key) == body })
}

// peeks is the body that a replica answers without a round trip; "": it does not.
func (r *replicas) peeks(s *near.Store, key policy.Key) string {
	e, ok := s.Peek(key)
	if !ok {
		return ""
	}
	p := make([]byte, e.Body.Size())
	if n, err := e.Body.ReadAt(r.Context(), p, 0); n != len(p) {
		r.Fatalf("%d bytes of %d: %v", n, len(p), err)
	}
	return string(p)
}

// TestNearHitsCostNothing: what was asked for, or filled here, is answered without a round trip, however large.
func TestNearHitsCostNothing(t *testing.T) {
	r := newReplicas(t)
	big := string(noise(5*mib/2, 1))
	trips := r.countTrips()
	for key, body := range map[policy.Key]string{page("small"): "one", page("big"): big} {
		r.fill(key, body)
		before := trips.n.Load()
		for range 100 {
			if got := r.peeks(r.a, key); got != body {
				t.Fatalf("its own fill: %d bytes, want %d", len(got), len(body))
			}
		}
		if n := trips.n.Load() - before; n != 0 {
			t.Errorf("100 hits cost %d round trips", n)
		}
		r.copied(key, body)
	}
	// Redis is told apart from the copies by being empty.
	r.must(r.raw.FlushDB(t.Context()).Err())
	if r.peeks(r.b, page("big")) != big || r.peeks(r.b, page("small")) != "one" {
		t.Error("what the other replica fetched is not here")
	}
}

// TestPurgeReachesNear: when a purge returns, every replica's copies have obeyed; and so it is with a newer commit.
func TestPurgeReachesNear(t *testing.T) {
	r := newReplicas(t)
	key := page("x")
	for _, sel := range []policy.Selector{
		{Page: key.Primary}, {Tag: "red"}, {Prefix: "example.com/x"}, {Host: "example.com"}, {Route: "all"}, {All: true},
	} {
		for mode := range store.MustValidate + 1 {
			r.fill(key, "one")
			r.copied(key, "one")
			p, err := r.a.Purge(t.Context(), sel, mode)
			r.must(err)
			if p.Replicas != 2 {
				t.Errorf("%+v: %d replicas rang back", sel, p.Replicas)
			}
			for name, s := range map[string]*near.Store{"its own": r.a, "the other": r.b} {
				if got := r.peeks(s, key); got != "" {
					t.Errorf("%+v, mode %d: %s copy is still answered", sel, mode, name)
				}
			}
		}
	}
	r.fill(key, "one")
	r.copied(key, "one")
	heard := make(chan store.Event, 100)
	go func() { _ = r.b.Watch(t.Context(), func(e store.Event) { heard <- e }) }()
	<-heard
	l := r.fill(key, "two")
	for e := range heard {
		if e.Kind == store.Replaced && e.Key == key && e.At == l.Taken {
			break
		}
	}
	if got := r.peeks(r.b, key); got != "" {
		t.Errorf("when the other commit is heard, %q is answered", got)
	}
	if got := r.peeks(r.a, key); got != "two" {
		t.Errorf("the replica that committed answers %q", got)
	}
}

// TestBrokenLineIsNotBelieved: what may not have been heard is checked, each page when it is asked for.
func TestBrokenLineIsNotBelieved(t *testing.T) {
	r := newReplicas(t)
	keys := []policy.Key{page("x"), page("y"), page("z")}
	for _, key := range keys {
		r.fill(key, "one")
		r.copied(key, "one")
	}
	heard := make(chan store.Event, 100)
	go func() { _ = r.b.Watch(t.Context(), func(e store.Event) { heard <- e }) }()
	<-heard
	r.must(r.raw.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	for e := range heard {
		if e.Kind == store.Healed {
			break
		}
	}
	for _, key := range keys {
		if got := r.peeks(r.b, key); got != "" {
			t.Errorf("%s is answered without being checked", key.Primary)
		}
		r.copied(key, "one")
	}
}

// TestIsland: with Redis away each replica goes on alone; when it is back, what was filled alone is not believed.
func TestIsland(t *testing.T) {
	r := newReplicas(t)
	ctx := t.Context()
	r.timeout = 100 * time.Millisecond
	r.fill(page("before"), strings.Repeat("before", 10_000))
	alone := func(key policy.Key) store.Taken {
		t.Helper()
		got, err := r.a.Take(ctx, key, want("alone"))
		if err != nil || !errors.Is(got.Alone, store.ErrUnavailable) {
			t.Fatalf("taken = %+v, %v", got, err)
		}
		return got
	}
	r.srv.pause()
	if e := alone(page("before")).Entry; e == nil || e.Body.Size() != 60_000 {
		t.Fatalf("what was here is not answered: %+v", e)
	}
	got := alone(page("x"))
	if got.Lease == nil {
		t.Fatalf("no lease: %+v", got)
	}
	r.must(r.a.Commit(ctx, *got.Lease, write(page("x"), answer("alone", time.Hour))))
	e := alone(page("x")).Entry
	if e == nil || !e.Unverified || time.Until(e.FreshUntil) > 30*time.Second {
		t.Fatalf("what was filled alone: %+v", e)
	}

	r.srv.resume()
	eventually(t, "Redis is asked again", func() bool {
		got, err := r.a.Take(ctx, page("x"), look())
		return err == nil && got.Alone == nil && got.Entry == nil
	})
	if got := r.peeks(r.a, page("x")); got != "" {
		t.Errorf("back, and %q is answered", got)
	}
}

// TestFullRedisIsAnIsland: a Redis that refuses writes costs no collapsing and no copies.
func TestFullRedisIsAnIsland(t *testing.T) {
	r := newReplicas(t)
	ctx := t.Context()
	r.must(r.raw.ConfigSet(ctx, "maxmemory", "1mb").Err())
	got, err := r.a.Take(ctx, page("x"), want("t1"))
	if err != nil || got.Lease == nil || !errors.Is(got.Alone, store.ErrReadOnly) {
		t.Fatalf("taken = %+v, %v", got, err)
	}
	if again, err := r.a.Take(ctx, page("x"), want("t2")); err != nil || again.HeldBy == nil || again.HeldBy.Token != "t1" {
		t.Errorf("the next: %+v, %v", again, err)
	}
	r.must(r.a.Commit(ctx, *got.Lease, write(page("x"), answer("one", long))))
	if got, err = r.a.Take(ctx, page("x"), want("t3")); err != nil || got.Entry == nil || got.Lease != nil {
		t.Errorf("taken = %+v, %v; want what was filled here", got, err)
	}
	r.must(r.raw.ConfigSet(ctx, "maxmemory", "0").Err())
	if got, err = r.a.Take(ctx, page("x"), want("t4")); err != nil || got.Entry != nil || got.Lease == nil || got.Alone != nil {
		t.Errorf("with room again: %+v, %v", got, err)
	}
}

// A million of them, by hand: go test ./store/memory ./store/near ./store/redis -run PurgedIsNever -v -timeout 2h -args -purges 1000000.
var purges = flag.Int("purges", 0, "how many purges a history has")

// TestPurgedIsNeverAnswered: fills, looks and purges by chance, while lines break and Redis is flushed, or comes back from a snapshot. A replica that
// has not noticed yet that it is deaf has a second; all others have none.
func TestPurgedIsNeverAnswered(t *testing.T) {
	var disturbed sync.Mutex
	for name, h := range map[string]*storetest.History{
		"undisturbed": {},
		"disturbed":   {Bound: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas(t)
			h.Seed, h.Steps, h.Pause, h.Purges = rand.Uint64(), 500, 2*time.Millisecond, *purges
			if h.Bound > 0 {
				h.Disturb = func(dice *rand.Rand) {
					disturbed.Lock()
					defer disturbed.Unlock()
					switch n := dice.IntN(60); {
					case n == 0: // it comes back as it was some time ago
						r.srv.kill()
						r.srv.start()
					case n < 3:
						r.must(r.raw.Save(t.Context()).Err())
					case n < 15:
						r.must(r.raw.FlushDB(t.Context()).Err())
					default:
						r.must(r.raw.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
					}
				}
				r.replies, r.other.replies = 50*time.Millisecond, 50*time.Millisecond
			}
			h.Play(t, r.a, r.b)
		})
	}
}
