package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/policy"
	"weir/store"
)

// The places of a take's reply, after the time.
const (
	takenHead = iota
	takenDated
	takenBound
	takenGranted
	takenHeld
	takenFailed
	takenFailedFor
	takenFailedAt
	takenRefused
)

// Take is one round trip; a body that does not lie in the value costs one more, for its first segment.
func (s *Store) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	if strings.Contains(want.Holder, "|") {
		return store.Taken{}, about("take", key, fmt.Errorf("holder %q is no address", want.Holder))
	}
	t, unusable, err := s.take(ctx, key, want, "")
	if unusable != "" {
		// Fresh by its head, but not to be read: the script must hear of it, or it would never grant the lease.
		t, _, err = s.take(ctx, key, want, unusable)
	}
	return t, about("take", key, err)
}

// take answers, beside what Take does, the digest of a head that stands in the way of a lease and cannot be used.
func (s *Store) take(ctx context.Context, key policy.Key, want store.Want, broken string) (store.Taken, string, error) {
	n := s.of(key)
	r, err := s.run(ctx, s.steps.take, []string{n.head, n.lease, n.page, n.fail, n.notes},
		n.place, n.host[:], want.Token, want.Holder, millis(want.TTL), s.clock.micros(want.At), int(want.Class), want.Despite, broken, want.Over)
	if err != nil {
		return store.Taken{}, "", err
	}
	t := store.Taken{HeldBy: parseLease(key, r.text(takenHeld))}
	if taken := r.int(takenGranted); taken > 0 {
		t.Lease = &store.Lease{Key: key, Token: want.Token, Holder: want.Holder, Taken: uint64(taken)}
		t.Lease.Lost = s.leases.hold(*t.Lease, want.Class, want.TTL)
	}
	if head := r.text(takenHead); head != "" {
		if t.Entry, err = s.entry(ctx, key, r, want.At); err != nil && t.Lease == nil && t.HeldBy == nil {
			switch {
			case !errors.Is(err, store.ErrUnreadable) && !errors.Is(err, errGone) && !errors.Is(err, errForgotten):
				return store.Taken{}, "", err
			case want.TTL > 0 && broken == "":
				return store.Taken{}, digest(head), nil
			}
		}
	}
	if failed := r.text(takenFailed); failed != "" && t.Entry != nil {
		out := parseOutcome(failed)
		out.Remember = time.Duration(max(r.int(takenFailedFor), 0)) * time.Millisecond
		out.Taken = uint64(r.int(takenFailedAt))
		t.Failed = &out
	}
	if why := r.text(takenRefused); why != "" {
		return t, "", fmt.Errorf("%w: %s", store.ErrReadOnly, why)
	}
	return t, "", nil
}

// headLengthAt is where a head says how long it is (store/encoding.go).
const headLengthAt = 54

// entry is the entry that a take found, as this replica's clock and the purge notes have it.
func (s *Store) entry(ctx context.Context, key policy.Key, r reply, at time.Time) (*store.Entry, error) {
	raw := []byte(r.text(takenHead))
	e, size, err := store.DecodeHead(raw, key)
	if err != nil {
		return nil, err
	}
	if s.forgotten(&e, r) {
		return nil, errForgotten
	}
	b, err := s.bodyOf(s.of(key), raw[binary.BigEndian.Uint32(raw[headLengthAt:]):], size)
	if err != nil {
		return nil, err
	}
	if err := b.begins(ctx); err != nil {
		return nil, err
	}
	e.Body = b
	e.Stored = s.clock.toLocal(e.Stored)
	if b.why != policy.None {
		e.Why = b.why
	}
	purged := &e
	if dated := r.int(takenDated); dated > 0 {
		purged = store.Dated(purged, store.Soft, s.purgedAt(dated, at))
	}
	if bound := r.int(takenBound); bound > 0 {
		purged = store.Dated(purged, store.MustValidate, s.purgedAt(bound, at))
	}
	return purged, nil
}

// purgedAt is when a purge was. The moment of the look-up counts too, lest an inexact offset between the clocks lets the
// entry live a millisecond longer than the purge.
func (s *Store) purgedAt(date int64, at time.Time) time.Time {
	if t := s.clock.local(date); at.IsZero() || t.Before(at) {
		return t
	}
	return at
}

// millis is a term as Redis takes it: what is not nothing must not become nothing.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(d.Milliseconds(), 1)
}
