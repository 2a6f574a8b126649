package near

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/memory"
	"weir/store/storetest"
)

// slow is a far store whose answers take a while after the deed, and whose line can be cut.
type slow struct {
	*memory.Store
	cut  atomic.Bool
	obey func(store.Event)
	mu   sync.Mutex // no event is on its way while the line's state changes
}

func (s *slow) pause() { <-time.After(time.Duration(rand.Int64N(int64(2 * time.Millisecond)))) }

func (s *slow) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	s.pause()
	defer s.pause()
	return s.Store.Take(ctx, key, want)
}

func (s *slow) Commit(ctx context.Context, l store.Lease, w store.Write) error {
	s.pause()
	defer s.pause()
	return s.Store.Commit(ctx, l, w)
}

func (s *slow) Watch(ctx context.Context, obey func(store.Event)) error {
	s.obey = obey
	return s.Store.Watch(ctx, func(e store.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.cut.Load() {
			obey(e)
		}
	})
}

// toggle cuts the line, or mends it.
func (s *slow) toggle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cut := !s.cut.Load(); cut {
		s.obey(store.Event{Kind: store.Silence})
		s.cut.Store(true)
	} else {
		s.obey(store.Event{Kind: store.Healed})
		s.cut.Store(false)
	}
}

// A million of them, by hand: go test ./store/memory ./store/near ./store/redis -run PurgedIsNever -v -timeout 2h -args -purges 1000000.
var purges = flag.Int("purges", 0, "how many purges a history has")

// No replica whose line is whole answers what was purged, however fills, purges and cuts fall.
func TestPurgedIsNeverAnswered(t *testing.T) {
	seed := rand.Uint64()
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New(memory.Config{MaxSize: 256 << 20})
		fars := []*slow{{Store: shared}, {Store: shared}}
		h := storetest.History{Seed: seed, Steps: 2000, Pause: 5 * time.Millisecond, Purges: *purges, Disturb: func(dice *rand.Rand) {
			fars[dice.IntN(2)].toggle()
		}}
		h.Play(t, open(t, fars[0]), open(t, fars[1]))
	})
}
