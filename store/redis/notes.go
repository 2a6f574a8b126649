package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

// Purge writes a dated note, which take and commit heed: so no entry has to be found, and fills under way are reached
// too. It returns once every replica that heard the bell has rung back, or has had the time for it.
func (s *Store) Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	if !sel.IsOne() {
		return store.Purged{}, fmt.Errorf("purge: %+v does not name one thing", sel)
	}
	p := noteOf(sel, mode)
	p.ID = s.bell.next.Add(1)
	acks := s.bell.expect(p.ID)
	defer s.bell.expected(p.ID)
	write := s.writeNote
	if sel.Page != "" {
		write = s.purgePage
	}
	done, err := write(ctx, p)
	if err != nil {
		// It may have come to be written all the same: then it is dated twice.
		s.remember(past{sel: sel, mode: mode, at: s.Now()})
		return store.Purged{}, fmt.Errorf("purge: %w", err)
	}
	return store.Purged{Estimate: done.estimate, Replicas: s.replied(ctx, acks, done.heard), At: done.at}, nil
}

// noted is what Redis answers to a note.
type noted struct {
	at       uint64
	estimate int
	heard    int64 // the bell
}

func (s *Store) purgePage(ctx context.Context, p purgeNote) (noted, error) {
	page := policy.Key{Primary: string(p.Page)}
	c := s.pageStep(p, 0, s.bell.message(message{Purge: &p}))
	r, err := s.run(ctx, c.step, c.keys, c.args...)
	if err != nil {
		return noted{}, err
	}
	done, n := noted{at: r.date(), heard: r.int(1)}, s.of(page)
	if raw := r.text(3); raw != "" {
		done.estimate = 1
		if e, _, err := store.DecodeHead([]byte(raw), page); err == nil && e.Kind == policy.Signpost {
			done.estimate = len(e.Variants)
		}
		if p.Mode == store.Hard {
			s.retire(ctx, n, raw, plan{})
		}
	}
	if r.int(2) == 0 {
		return done, nil
	}
	return done, s.replicated(ctx, []string{n.page})
}

// writeNote writes a note under every tag, and rings once all have it. Where the tags lie on several servers, their
// clocks differ: what is rung is the latest date.
func (s *Store) writeNote(ctx context.Context, p purgeNote) (noted, error) {
	tags := s.everywhere()
	last := tags[len(tags)-1]
	var rest []call
	for _, n := range tags[:len(tags)-1] {
		rest = append(rest, s.noteStep(n, p, dating{}, nil))
	}
	replies, err := s.runAll(ctx, rest)
	if err != nil {
		return noted{}, err
	}
	var d dating
	var followed []string // notes on servers that replicas follow
	for i, r := range replies {
		d.least = max(d.least, r.date())
		if r.int(2) > 0 {
			followed = append(followed, tags[i].notes)
		}
	}
	c := s.noteStep(last, p, d, s.bell.message(message{Purge: &p}))
	r, err := s.run(ctx, c.step, c.keys, c.args...)
	if err != nil {
		return noted{}, err
	}
	if r.int(2) > 0 {
		followed = append(followed, last.notes)
	}
	return noted{at: r.date(), estimate: -1, heard: r.int(1)}, s.replicated(ctx, followed)
}

// dating says what date a note is to have: this one, or if it is 0 the present, but no earlier than least.
type dating struct{ at, least uint64 }

func (s *Store) pageStep(p purgeNote, at uint64, ring []byte) call {
	n := s.of(policy.Key{Primary: string(p.Page)})
	return call{
		s.steps.purge, []string{n.page, n.head, n.lease, n.notes, n.bell},
		[]any{n.place, n.host[:], int(p.Mode), at, s.channel(), ring},
	}
}

func (s *Store) noteStep(n names, p purgeNote, d dating, ring []byte) call {
	sel, field, host := p.selector(), []byte("prefix"), store.Label{}
	switch {
	case sel.All:
		field = []byte("all")
	case sel.Prefix != "":
		host = store.LabelOf(policy.Selector{Host: sel.PrefixHost()})
	default:
		l := store.LabelOf(sel)
		field = l[:]
	}
	return call{
		s.steps.note, []string{n.notes, n.bell},
		[]any{field, sel.Prefix, host[:], int(p.Mode), d.at, d.least, s.channel(), ring},
	}
}

// replicated waits, where there is a replica to take over from a Redis that took one of the notes, until one has it too:
// a purge that a change of master could undo is not done (R11).
func (s *Store) replicated(ctx context.Context, notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	took := make(map[redis.Cmdable]string)
	for _, note := range notes {
		master, err := s.master(ask, note)
		if err != nil {
			return sentinel(ctx, err)
		}
		took[master] = note
	}
	errs := make(chan error, len(took))
	for master, note := range took {
		go func() { errs <- s.followed(ask, master, note) }()
	}
	var all []error
	for range took {
		if err := <-errs; err != nil {
			all = append(all, sentinel(ctx, err))
		}
	}
	return errors.Join(all...)
}

// master is who writes what lies under a name.
func (s *Store) master(ctx context.Context, name string) (redis.Cmdable, error) {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, name)
	}
	return s.client, nil
}

// followed waits for one replica of a master. WAIT goes by the writes of its own connection, so the pipeline begins with
// one, which is behind all that the master took before it in the stream that replicas read.
func (s *Store) followed(ctx context.Context, master redis.Cmdable, note string) error {
	var have *redis.Cmd
	_, err := master.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.PExpire(ctx, note, longest)
		have = p.Do(ctx, "wait", 1, millis(min(s.replies, s.timeout/2)))
		return nil
	})
	if err != nil {
		return err
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
	ctx, cancel := context.WithTimeout(ctx, s.replies)
	defer cancel()
	for heard = s.listeners(ctx, heard); int64(n) < heard; {
		select {
		case <-acks:
			n++
		case <-ctx.Done():
			return n
		case <-s.life.Done():
			return n
		}
	}
	return n
}
