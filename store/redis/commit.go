package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"

	"weir/policy"
	"weir/store"
)

// merges is how often a commit reads the signpost again because another was written meanwhile. Each time somebody's
// commit went through, so they all do.
const merges = 64

// errNothing: what nobody would be able to read, or Redis has dropped already, is not written. That is nobody's failure,
// there is just nothing to keep.
var errNothing = errors.New("nothing to keep")

// Commit stages a large body, and then writes everything in one step. A signpost is written as the last one seen with
// one line more; was there another by then, the step says which, and nothing was written.
func (s *Store) Commit(ctx context.Context, lease store.Lease, write store.Write) error {
	if write.Key.Primary != lease.Key.Primary || (write.Variant != nil && write.Sign.Primary != lease.Key.Primary) {
		return about("commit", lease.Key, errors.New("another page's key"))
	}
	if lost(lease) {
		return about("commit", lease.Key, store.ErrLost)
	}
	if lease.Taken > 0 && s.notes.About(write.Key, &write.Entry.Stored).Newest() >= lease.Taken {
		out := store.Outcome{End: store.Revoked}
		return about("commit", lease.Key, errors.Join(store.ErrLost, s.Release(ctx, lease, out)))
	}
	d := draft{names: s.of(write.Key), entry: write.Entry, token: lease.Token}
	e := *write.Entry
	e.Key, e.Stored = write.Key, s.clock.toStore(e.Stored)
	e.Leased = lease.Taken
	head, err := store.EncodeHead(&e, bodySize(e.Body))
	if err != nil {
		return s.Release(ctx, lease, store.Outcome{End: store.Lapsed})
	}
	p, inline, err := s.stage(ctx, d)
	if err != nil {
		s.drop(ctx, d, p)
		return about("commit", lease.Key, err)
	}
	old, err := s.put(ctx, lease, write, value{p.append(append(head, inline...)), segmentNames(d.names, p.tail())})
	switch {
	case err == nil:
		s.leases.forget(lease.Token)
		s.retire(ctx, d.names, old.entry, p)
		if write.Variant != nil {
			s.retire(ctx, s.of(write.Sign), old.sign, plan{})
		}
	case errors.Is(err, store.ErrLost):
		s.leases.loseToken(lease.Token)
		s.drop(ctx, d, p)
	case errors.Is(err, store.ErrReadOnly):
		s.drop(ctx, d, p)
	case errors.Is(err, errNothing):
		s.drop(ctx, d, p)
		return s.Release(ctx, lease, store.Outcome{End: store.Lapsed})
	}
	// After any other error nobody knows whether it was written: if not, the segments run out by themselves.
	return about("commit", lease.Key, err)
}

// replaced is what a commit replaced: the ends of values.
type replaced struct{ entry, sign string }

// value is an entry as it is written, and the segments that it names.
type value struct {
	bytes    []byte
	segments []string
}

// put runs the commit step until the signpost it was made for is the one that is there.
func (s *Store) put(ctx context.Context, lease store.Lease, write store.Write, v value) (replaced, error) {
	n, l, sign := s.of(write.Key), s.of(lease.Key), s.of(write.Key).bell
	m := message{Token: lease.Token, Keys: []messageKey{keyOf(write.Key)}}
	if write.Variant != nil {
		sign = s.of(write.Sign).head
		m.Keys = append(m.Keys, keyOf(write.Sign))
	}
	keys := append([]string{n.head, l.lease, n.page, sign, n.notes, l.fail, n.bell}, v.segments...)
	keep := max(millis(min(write.Keep, longest)), 1)
	args := []any{
		lease.Token, lease.Taken, filled(), s.channel(), s.bell.message(m), v.bytes, keep, keep + readers.Milliseconds(),
	}
	there := ""
	for range merges {
		sign, err := s.sign(write, there)
		if err != nil {
			return replaced{}, err
		}
		r, err := s.run(ctx, s.steps.commit, keys, append(args[:len(args):len(args)], sign, digest(there), n.place, n.host[:])...)
		if err != nil {
			return replaced{}, err
		}
		switch r.text(0) {
		case "done":
			return replaced{r.text(1), r.text(2)}, nil
		case "lost":
			return replaced{}, store.ErrLost
		case "gone":
			return replaced{}, fmt.Errorf("%w: segments evicted", errNothing)
		case "refused":
			return replaced{}, fmt.Errorf("%w: %s", store.ErrReadOnly, r.text(1))
		}
		there = r.text(1)
	}
	return replaced{}, fmt.Errorf("%w: the signpost changed %d times", store.ErrUnavailable, merges)
}

// sign is the value of the signpost that is there with the write's line added, if it has one. A signpost that cannot be
// read is begun anew.
func (s *Store) sign(write store.Write, there string) ([]byte, error) {
	if write.Variant == nil {
		return nil, nil
	}
	var old policy.Stored
	if there != "" {
		if e, _, err := store.DecodeHead([]byte(there), write.Sign); err == nil {
			old = s.clock.toLocal(e.Stored)
		}
	}
	e := store.Entry{Key: write.Sign, Stored: s.clock.toStore(policy.AddVariant(old, *write.Variant))}
	head, err := store.EncodeHead(&e, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNothing, err)
	}
	p := plan{}
	if e.Kind == policy.Marker {
		p.why = e.Why
	}
	return p.append(head), nil
}

func digest(value string) string {
	if value == "" {
		return ""
	}
	d := sha1.Sum([]byte(value))
	return hex.EncodeToString(d[:])
}

func bodySize(b store.Body) int64 {
	if b == nil {
		return 0
	}
	return b.Size()
}
