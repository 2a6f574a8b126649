package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
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
			s.retire(ctx, n, raw, plan{})
		}
	}
	return estimate, r.int(1), s.replicated(ctx, n.page, r.int(3))
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
		if err := s.replicated(ctx, n.all, r.int(3)); err != nil {
			return 0, err
		}
		heard = r.int(1)
	}
	return heard, nil
}

// replicated waits, where there is a replica to take over from this Redis, until one has the note too: a purge that a
// change of master could undo is not done (R11). WAIT goes by the writes of its own connection, so the pipeline's
// begins with one, which is behind the note in the stream that replicas read. A cluster's WAIT cannot be sent by
// key, so there nothing is waited for.
func (s *Store) replicated(ctx context.Context, note string, replicas int64) error {
	if replicas == 0 || s.cluster {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var have *redis.Cmd
	_, err := s.client.Pipelined(ask, func(p redis.Pipeliner) error {
		p.PExpire(ask, note, longest)
		have = p.Do(ask, "wait", 1, millis(min(s.replies, s.timeout/2)))
		return nil
	})
	if err != nil {
		return sentinel(ctx, err)
	}
	if n, _ := have.Int64(); n == 0 {
		return fmt.Errorf("%w: no replica of Redis has the purge yet", store.ErrUnavailable)
	}
	return nil
}

// listeners is how many replicas hear the bell. A publication tells that, but in a cluster only of its own node.
func (s *Store) listeners(ctx context.Context, heard int64) int64 {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return heard
	}
	var all atomic.Int64
	err := c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := node.PubSubNumSub(ctx, s.channel()).Result()
		all.Add(n[s.channel()])
		return err
	})
	if err != nil {
		return math.MaxInt64 // unknown: give them all the time
	}
	return all.Load()
}

// replied counts the replicas that ring back.
func (s *Store) replied(ctx context.Context, acks <-chan struct{}, heard int64) (n int) {
	enough := time.NewTimer(s.replies)
	defer enough.Stop()
	for heard = s.listeners(ctx, heard); int64(n) < heard; {
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
