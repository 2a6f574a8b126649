package near

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir/policy"
	"weir/store"
)

// Far is the store behind this one, whose word counts.
type Far interface {
	store.Store
	Waiting() int64
}

// Memory keeps the copies, by the far store's time, and the leases of a replica that is alone.
type Memory interface {
	store.Store
	Waiting() int64
	// Held answers a copy, and as of when it was known to be the latest.
	Held(key policy.Key) (*store.Entry, time.Time)
	// Insert keeps a copy as of a moment, unless a later one is there.
	Insert(e *store.Entry, asOf time.Time)
	// Drop forgets a copy that was leased before then.
	Drop(key policy.Key, before uint64)
	// Obey does what a purge of that date asks for.
	Obey(sel policy.Selector, mode store.Mode, at uint64) int
	// Fits reports whether an entry of so many bytes would be kept.
	Fits(size int64) bool
	// Now is the far store's time.
	Now() uint64
}

const (
	// believed is how long a copy is answered without asking, should something not have been heard.
	believed = time.Minute
	// stripes is by how many counters it is told apart what was heard of which page.
	stripes = 1024
	// always is later than any lease.
	always = math.MaxUint64
)

// Store is a store.Store in front of a far one.
type Store struct {
	far     Far
	memory  Memory
	awayTTL time.Duration
	seed    maphash.Seed
	heard   [stripes]heard
	wide    wide
	line    atomic.Pointer[line]
	island  island
	loads   loads
	counts  counts

	watchers store.Watchers
	telling  sync.Mutex // how the line is: what is told last is so

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup
	once sync.Once
}

// line is how this replica hears of the others. What was known before since may have been void ever after.
type line struct {
	whole bool
	since time.Time
}

// New puts memory in front of far, when far has told how the line is. Both are closed with it. What is filled while far
// is away is fresh for awayTTL at most.
func New(far Far, memory Memory, awayTTL time.Duration) *Store {
	s := &Store{far: far, memory: memory, awayTTL: awayTTL, seed: maphash.MakeSeed()}
	s.line.Store(&line{})
	s.life, s.end = context.WithCancel(context.Background())
	told := make(chan struct{})
	first := sync.OnceFunc(func() { close(told) })
	s.work.Go(func() {
		defer first() // a far store that is closed already tells nothing
		_ = far.Watch(s.life, func(e store.Event) {
			s.obey(e)
			first()
		})
	})
	<-told
	return s
}

// Peek answers a copy that is fresh and believed.
func (s *Store) Peek(key policy.Key) (*store.Entry, bool) {
	e, ok := s.peek(key)
	if ok {
		s.counts.hits.Add(1)
	} else {
		s.counts.misses.Add(1)
	}
	return e, ok
}

// Holds reports whether this very body is held here.
func (s *Store) Holds(e *store.Entry) bool { return s.memory.Holds(e) }

func (s *Store) peek(key policy.Key) (*store.Entry, bool) {
	l := s.line.Load()
	if !l.whole {
		return nil, false
	}
	e, asOf := s.memory.Held(key)
	if e == nil || e.Unverified || asOf.Before(l.since) {
		return nil, false
	}
	now := time.Now()
	return e, now.Sub(asOf) < believed && e.FreshUntil.After(now)
}

// Take asks the far store, and keeps a copy of what it answers.
func (s *Store) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	a := s.ask(key)
	got, err := s.far.Take(ctx, key, want)
	a.full = errors.Is(err, store.ErrReadOnly)
	switch {
	case got.Entry != nil:
		got.Entry = s.known(got.Entry)
		s.keep(got.Entry, a)
	case err == nil:
		s.forget(a)
	}
	if isAlone(err) {
		return s.alone(ctx, key, want, got, err)
	}
	return got, err
}

// Commit writes into the far store, and keeps a copy. Where the lease is this replica's own, so is what it brings.
func (s *Store) Commit(ctx context.Context, lease store.Lease, write store.Write) error {
	if why, mine := s.island.of(lease.Token); mine {
		return s.commitAlone(ctx, lease, write, why)
	}
	a := s.ask(lease.Key)
	err := s.far.Commit(ctx, lease, write)
	if isAway(err) {
		s.unverified(lease, write, a)
	}
	// What lies there after a marker, the far store knows alone; and which lease was meant, where its take was unanswered.
	if err == nil && write.Entry.Kind != policy.Marker && lease.Taken > 0 {
		e := *write.Entry
		e.Key, e.Leased = write.Key, lease.Taken
		s.keep(&e, a)
	}
	return err
}

// Purge covers the far store and the copies here, whether the far store can be reached or not.
func (s *Store) Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	done, err := s.far.Purge(ctx, sel, mode)
	if !sel.IsOne() {
		return done, err
	}
	e := store.Event{Kind: store.PurgedNote, Selector: sel, Mode: mode, At: done.At}
	if err != nil {
		e.At = s.memory.Now()
	}
	s.hear(e) // whether the line has told it or not
	if err != nil {
		s.watchers.Tell(e)
	}
	return done, err
}

// Renew prolongs a lease where it was granted.
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (policy.Class, error) {
	return s.granter(lease.Token).Renew(ctx, lease, ttl)
}

// Release ends a lease where it was granted.
func (s *Store) Release(ctx context.Context, lease store.Lease, out store.Outcome) error {
	defer s.island.forget(lease.Token)
	return s.granter(lease.Token).Release(ctx, lease, out)
}

// Await waits for a lease where it was granted.
func (s *Store) Await(ctx context.Context, held store.Lease) (store.Outcome, error) {
	return s.granter(held.Token).Await(ctx, held)
}

// Watch tells obey of what the far store's watchers hear, when the copies have obeyed.
func (s *Store) Watch(ctx context.Context, obey func(store.Event)) error {
	s.watchers.Watch(ctx, s.life.Done(), store.Watching{Obey: obey, Begin: func() {
		s.telling.Lock()
		defer s.telling.Unlock()
		if s.line.Load().whole {
			obey(store.Event{Kind: store.Healed})
		} else {
			obey(store.Event{Kind: store.Silence})
		}
	}})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return fmt.Errorf("watch: %w: closed", store.ErrUnavailable)
}

// Check reports whether the far store can be used.
func (s *Store) Check(ctx context.Context) error { return s.far.Check(ctx) }

// Close ends this store and both that it was made of.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		s.end()
		s.loads.stop()
		err = errors.Join(s.memory.Close(), s.far.Close())
		s.work.Wait()
	})
	return err
}

// Waiting is how many exchanges wait for a fill of another's.
func (s *Store) Waiting() int64 { return s.far.Waiting() + s.memory.Waiting() }
