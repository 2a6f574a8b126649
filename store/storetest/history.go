package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// History is fills, looks and purges by chance, on two replicas at once. Every answer is held against the purges that have
// returned: of what was leased at or before one that is about it, nothing is answered after a hard purge, and nothing
// fresh after any.
type History struct {
	Seed   uint64
	Steps  int // of each of its players
	Purges int // of all; 0: as many as come about in Steps
	// Bound is how long a purge that has returned may still be unheard of by a replica whose line was disturbed.
	Bound   time.Duration
	Disturb func(dice *rand.Rand) // now and then
	Pause   time.Duration         // at most, between two steps of a fill

	mu     sync.Mutex
	purges map[what][]returned
	// What was seen, so that a history in which nothing happens does not pass for one that holds.
	fills, lost, looks, dead, purged int
}

type what struct {
	sel  policy.Selector
	mode store.Mode
}

// returned is a purge that has.
type returned struct {
	at   uint64
	when time.Time
}

// slack is how long a look may be under way before it is held against the newest purges only.
const slack = time.Second

const players = 6

// Play plays a history.
func (h *History) Play(t *testing.T, a, b Store) {
	t.Helper()
	h.purges = map[what][]returned{}
	var all sync.WaitGroup
	for i := range players {
		dice := rand.New(rand.NewPCG(h.Seed, uint64(i)))
		s := []Store{a, b}[i%2]
		all.Go(func() {
			for n := 0; h.goesOn(n) && !t.Failed(); n++ {
				h.step(t, s, dice, fmt.Sprintf("%d-%d", i, n))
			}
		})
	}
	all.Wait()
	t.Logf("seed %d: %d fills, %d of them lost; %d looks, %d at nothing; %d purges", h.Seed, h.fills, h.lost, h.looks, h.dead, h.purged)
	if h.fills-h.lost < h.Steps/10 || h.lost == 0 || h.dead == 0 || h.looks-h.dead < h.Steps/10 || h.purged < h.Steps/10 {
		t.Error("too little has happened to show anything")
	}
}

func (h *History) goesOn(n int) bool {
	if h.Purges == 0 {
		return n < h.Steps
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.purged < h.Purges
}

func (h *History) step(t *testing.T, s Store, dice *rand.Rand, name string) {
	key := policy.Key{Primary: fmt.Sprintf("api http://%c.example.com/%d/%d", 'a'+dice.IntN(2), dice.IntN(2), dice.IntN(3))}
	switch n := dice.IntN(100); {
	case n < 45:
		h.look(t, s, key)
	case n < 80:
		h.fill(s, dice, key, name)
	case n < 97 || h.Disturb == nil:
		h.purge(s, dice, key)
	default:
		h.Disturb(dice)
	}
}

func (h *History) look(t *testing.T, s Store, key policy.Key) {
	began := time.Now()
	e, ok := s.Peek(key)
	if !ok {
		got, err := s.Take(context.Background(), key, store.Want{At: time.Now()})
		if e = got.Entry; err != nil || got.Alone != nil {
			return // cut off: purges do not bind it until it is back
		}
	}
	now := time.Now() // what is dated by a purge that came meanwhile is stale by now
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	if e == nil {
		h.dead++
		return
	}
	for what, purges := range h.purges {
		if !store.Covers(what.sel, key, &e.Stored) || what.mode != store.Hard && !e.FreshUntil.After(now) {
			continue
		}
		for _, p := range purges {
			if e.Leased <= p.at && !p.when.Add(h.Bound).After(began) {
				t.Errorf("seed %d: answered (peeked: %v) what was leased at %d, fresh until %v; purged at %d, by %+v in mode %d, which returned %v before",
					h.Seed, ok, e.Leased, e.FreshUntil, p.at, what.sel, what.mode, now.Sub(p.when))
				return
			}
		}
	}
}

func (h *History) fill(s Store, dice *rand.Rand, key policy.Key, name string) {
	ctx := context.Background()
	h.pause(dice)
	got, err := s.Take(ctx, key, store.Want{Token: name, TTL: long, At: time.Now().Add(2 * long)})
	if err != nil || got.Lease == nil {
		return
	}
	h.pause(dice)
	e := tagged(name, fmt.Sprint("route ", dice.IntN(3)), fmt.Sprint("tag ", dice.IntN(5)), fmt.Sprint("tag ", dice.IntN(5)))
	err = s.Commit(ctx, *got.Lease, write(key, e))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fills++
	if err != nil {
		h.lost++
	}
}

func (h *History) purge(s Store, dice *rand.Rand, key policy.Key) {
	sel := []policy.Selector{
		{Page: key.Primary}, {Page: key.Primary}, {Tag: fmt.Sprint("tag ", dice.IntN(5))}, {Tag: fmt.Sprint("tag ", dice.IntN(5))},
		{Route: fmt.Sprint("route ", dice.IntN(3))}, {Host: key.Host()}, {Prefix: key.Host() + "/1/"}, {All: true},
	}[dice.IntN(8)]
	mode := store.Mode(dice.IntN(3))
	got, err := s.Purge(context.Background(), sel, mode)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.purged++
	h.note(what{sel, mode}, returned{got.At, time.Now()})
}

// note adds a purge, and forgets those that say no more than another which has had its time.
func (h *History) note(of what, p returned) {
	binding := uint64(0)
	for _, q := range h.purges[of] {
		if !q.when.Add(h.Bound + slack).After(p.when) {
			binding = max(binding, q.at)
		}
	}
	kept := slices.DeleteFunc(h.purges[of], func(q returned) bool { return q.at < binding })
	h.purges[of] = append(kept, p)
}

func (h *History) pause(dice *rand.Rand) {
	<-time.After(time.Duration(dice.Int64N(int64(h.Pause))))
}
