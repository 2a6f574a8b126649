package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"weir/policy"
	"weir/store"
)

// Config is the memory store's part of the file.
type Config struct {
	MaxSize int64 `mapstructure:"max_size"` // bytes
}

// Validate reports what is wrong with the numbers.
func (c Config) Validate() error {
	if c.MaxSize < 1<<20 {
		return fmt.Errorf("max_size: %d bytes hold nothing; give at least 1MiB", c.MaxSize)
	}
	return nil
}

const (
	shards = 64
	// largest: an entry is at most this part of the store (R34).
	largest = 16
)

// Store is a store.Store in this process's memory.
type Store struct {
	seed     maphash.Seed
	shards   [shards]shard
	queue    queue
	notes    store.Notes
	watchers store.Watchers
	clock    store.Clock
	taken    atomic.Uint64 // of the last lease
	waiting  atomic.Int64
	once     sync.Once
	closed   chan struct{}
}

// Stats are what operators watch.
type Stats struct {
	Entries, Bytes, Evictions int64
	Pinned                    int64 // of the bytes
	Waiting                   int64 // exchanges in Await
}

// New makes an empty store, which keeps its own time.
func New(c Config) *Store { return Near(c, local{}) }

// Near makes an empty store for what another one holds, by whose time all is dated.
func Near(c Config, clock store.Clock) *Store {
	s := &Store{clock: clock, seed: maphash.MakeSeed(), closed: make(chan struct{})}
	s.queue.max, s.queue.ghosts.seed = c.MaxSize, s.seed
	for i := range s.shards {
		s.shards[i].pages = make(map[string]page)
		s.shards[i].held = make(map[*lease]struct{})
		s.shards[i].queue, s.shards[i].notes, s.shards[i].clock = &s.queue, &s.notes, clock
	}
	return s
}

// Peek answers what is stored and not yet out of its time.
func (s *Store) Peek(key policy.Key) (*store.Entry, bool) {
	sh := s.shard(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	e := sh.entry(key, time.Now())
	return e, e != nil
}

// Holds reports whether this very body is stored.
func (s *Store) Holds(e *store.Entry) bool {
	sh := s.shard(e.Key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	sl := sh.slot(e.Key)
	if sl == nil || sl.item == nil {
		return false
	}
	held, _ := sl.item.entry.Body.(store.Bytes)
	body, _ := e.Body.(store.Bytes)
	return held.Same(body)
}

// Commit writes, and ends the lease with Filled; with Lapsed when the entry is larger than the store keeps.
func (s *Store) Commit(_ context.Context, held store.Lease, write store.Write) error {
	if err := s.refused(); err != nil {
		return failed("commit", held.Key, err)
	}
	if write.Key.Primary != held.Key.Primary || write.Variant != nil && write.Sign.Primary != held.Key.Primary {
		return failed("commit", held.Key, errors.New("the lease is for another page"))
	}
	done, err := s.commit(held, write)
	if err != nil {
		return failed("commit", held.Key, err)
	}
	s.evict()
	for _, key := range done.replaced {
		s.watchers.Tell(store.Event{Kind: store.Replaced, Key: key, At: done.taken})
	}
	return nil
}

// committed is what a commit replaced, and when its lease was taken.
type committed struct {
	replaced []policy.Key
	taken    uint64
}

// commit is Commit under the shard's lock.
func (s *Store) commit(held store.Lease, write store.Write) (done committed, err error) {
	sh, now := s.shard(held.Key), time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lease(held.Key, held.Token)
	if l == nil {
		return done, store.ErrLost
	}
	puts := sh.puts(l, write, now) // and what is there is held to the notes, which may end the lease
	switch {
	case l.ended && l.committed:
		return done, nil // the same commit, come again
	case l.ended:
		return done, store.ErrLost
	case s.notes.About(write.Key, &write.Entry.Stored).Newest() >= l.Taken:
		l.lose(store.Revoked, now) // its tags are known only now
		return done, store.ErrLost
	}
	l.committed = true
	for _, p := range puts {
		if !s.Fits(p.size) {
			l.end(store.Outcome{End: store.Lapsed}, now)
			return done, nil
		}
	}
	for _, p := range puts {
		if sh.entry(p.entry.Key, now) != nil {
			done.replaced = append(done.replaced, p.entry.Key)
		}
		sh.put(p)
	}
	l.end(store.Outcome{End: store.Filled, Taken: l.Taken}, now)
	sh.sweep(now)
	done.taken = l.Taken
	return done, nil
}

// evict takes out what the queue gives up, until the rest fits. Between the queue's choice and the shard's lock the
// entry may have been dropped or refreshed: then it is not the one that was chosen, and the queue chooses again.
func (s *Store) evict() {
	for {
		it, admission := s.queue.victim()
		if it == nil {
			return
		}
		sh := s.shard(it.key)
		sh.mu.Lock()
		if sl := sh.slot(it.key); sl != nil && sl.item == it && s.queue.expel(it, admission) {
			sl.item = nil
			sh.prune(sl)
		}
		sh.mu.Unlock()
	}
}

// Watch tells obey of events until ctx ends or the store is closed. This line never breaks.
func (s *Store) Watch(ctx context.Context, obey func(store.Event)) error {
	s.watchers.Watch(ctx, s.closed, store.Watching{Obey: obey, Begin: func() { obey(store.Event{Kind: store.Healed}) }})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return fmt.Errorf("watch: %w", s.refused())
}

// Check reports whether the store is still open.
func (s *Store) Check(context.Context) error {
	if err := s.refused(); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return nil
}

// Close wakes all who wait, and forgets how leases ended. Those still held run out in their time.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closed)
		for i := range s.shards {
			s.shards[i].forget()
		}
	})
	return nil
}

// Waiting is how many exchanges are in Await.
func (s *Store) Waiting() int64 { return s.waiting.Load() }

// Stats counts what is held.
func (s *Store) Stats() Stats {
	st := s.queue.stats()
	st.Waiting = s.Waiting()
	return st
}

func (s *Store) shard(key policy.Key) *shard {
	return &s.shards[maphash.String(s.seed, key.Primary)%shards]
}

// refused is not nil once the store is closed.
func (s *Store) refused() error {
	select {
	case <-s.closed:
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	default:
		return nil
	}
}

func failed(verb string, key policy.Key, err error) error {
	return fmt.Errorf("%s %s %s: %w", verb, key.Primary, key.Variant, err)
}
