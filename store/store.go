package store

import (
	"context"
	"errors"
	"math"
	"time"

	"weir/policy"
)

// Entry is what is kept under a key: facts and body. It is immutable once read or committed.
type Entry struct {
	policy.Stored
	Key  policy.Key
	Body Body
	// Unverified: only this replica vouches for it, as it was brought while the shared store was away (R17).
	Unverified bool
}

// Body is a stored body. It may hold only some spans of the whole.
type Body interface {
	// Size is the length of the whole, held or not.
	Size() int64
	// Spans are the runs of bytes that are held, in order.
	Spans() []policy.Span
	// ReadAt fills p from off, as io.ReaderAt does, and fails when a byte it needs is not, or no longer, held.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
}

// Lease is the right to fill one key. Its token is the holder's own choice.
type Lease struct {
	Key    policy.Key
	Token  string
	Holder string // the holder's peer address; "" when it has none
	Taken  uint64 // store time in µs, from the store's own clock
	// Lost closes when the lease was revoked or ran out. It is nil in a lease of somebody else's.
	Lost <-chan struct{}
}

// Want is what a take asks for.
type Want struct {
	Token  string
	Holder string
	TTL    time.Duration // of the lease; 0: look only
	// At: a lease is granted when nothing is stored whose FreshUntil is later. Now, for an ordinary look-up;
	// the FreshUntil that was seen, to refresh something still fresh: has somebody refilled meanwhile, the new entry comes back.
	At    time.Time
	Class policy.Class
	// Despite is the date of a remembered failure that does not stand in the way (R23): neither does an earlier one, but
	// one that came since does. EveryFailure: none does.
	Despite uint64
	// Over is the token of a holder that is known to be gone: the lease is taken from it. Should it live after all, its
	// commit is refused.
	Over string
}

// EveryFailure is later than the date of any.
const EveryFailure uint64 = math.MaxUint64

// Taken is a look-up's whole answer, in one round trip.
type Taken struct {
	Entry  *Entry   // what is stored, fresh or not; nil: nothing
	Lease  *Lease   // granted: the caller must Commit or Release
	HeldBy *Lease   // somebody else fills
	Failed *Outcome // a failure is remembered and a copy that may stand in is stored: no lease was granted (R23)
	// Alone: the shared store failed so, and this is the answer of this replica alone (R17); nil: it is the store's.
	Alone error
}

// End says how a lease ended.
type End uint8

const (
	Filled  End = iota // look up again: an answer, a signpost or a marker is there
	Failed             // the upstream failed, with this status and Retry-After (R22)
	Lapsed             // holder gone, unable, or nothing to keep: compete for the next lease
	Revoked            // purged: the same, and nobody's fault, so that it is no turn (R21)
)

// Outcome is what those who waited for a lease learn.
type Outcome struct {
	End      End
	Fault    policy.Fault  // of Failed
	Remember time.Duration // of Failed: how long the failure is remembered (R23); in a Taken, for how much longer
	Taken    uint64        // of Filled: the lease's, which is the entry's Leased; in a Taken, the lease's that failed
}

// Write is what a commit stores.
type Write struct {
	// Key is where the entry goes: the lease's, or another variant of the same page.
	Key policy.Key
	// Entry is an Answer, or a Marker: one never replaces an Answer, it lends it its marks (R4).
	Entry *Entry
	// Variant is the entry's line in the signpost under Sign, written in the same step; nil: the entry has none.
	Variant *policy.Variant
	Sign    policy.Key
	Keep    time.Duration // from now
}

// Mode is how a purge treats what it covers.
type Mode uint8

const (
	Hard         Mode = iota // gone
	Soft                     // stale: may be served while it is refreshed, as grace allows
	MustValidate             // kept for a conditional request only (R13)
)

// Purged is a purge's receipt.
type Purged struct {
	Estimate int    // entries covered, about; -1: unknown
	Replicas int    // that rang back
	At       uint64 // its date
}

// EventKind says what a store tells its watchers.
type EventKind uint8

const (
	Replaced   EventKind = iota // Key holds something else by now: At is its Leased
	PurgedNote                  // a purge: Selector, Mode, and At, its date
	Silence                     // the line is broken: what was heard may be incomplete
	Healed                      // the line is whole
)

// Event is what Watch reports.
type Event struct {
	Kind     EventKind
	Key      policy.Key
	Selector policy.Selector
	Mode     Mode
	At       uint64 // store time, to be compared with Leased and Taken
}

// The three ways a store fails. All come wrapped with the verb and the key.
var (
	ErrLost        = errors.New("lease lost")
	ErrReadOnly    = errors.New("store refuses writes")
	ErrUnavailable = errors.New("store unavailable")
)

// Clock tells a store's time, which dates leases and notes (R18).
type Clock interface {
	Now() uint64             // µs
	Moment(uint64) time.Time // as this process's own clock tells it
}

// Store keeps entries and gives the right to fill them. doc.go is the contract; storetest is its proof.
// There is no Put: whoever writes holds a lease.
type Store interface {
	// Peek answers from this process's memory, without I/O.
	Peek(key policy.Key) (*Entry, bool)
	// Holds reports whether the body of e, which came from here, still lies in this process's memory: reading it takes no
	// more then. It does not count as use.
	Holds(e *Entry) bool
	// Take looks up, and grants the lease when asked to and nothing fresh enough is stored. Idempotent by token.
	Take(ctx context.Context, key policy.Key, want Want) (Taken, error)
	// Renew prolongs a lease by ttl from now and answers the best class left in it (R26).
	Renew(ctx context.Context, lease Lease, ttl time.Duration) (policy.Class, error)
	// Commit writes and ends the lease with Filled, both or neither. Idempotent by token. ErrLost: nothing was written.
	Commit(ctx context.Context, lease Lease, write Write) error
	// Release ends the lease without writing. Not an error when the lease is no longer ours.
	Release(ctx context.Context, lease Lease, out Outcome) error
	// Await returns when this lease, which somebody holds, has ended, however.
	Await(ctx context.Context, held Lease) (Outcome, error)
	// Purge covers what is stored, and revokes what is leased, under the selector.
	Purge(ctx context.Context, sel policy.Selector, mode Mode) (Purged, error)
	// Watch reports replacements and purges until ctx ends; obey returns once the replica has obeyed (R11). The first
	// that is reported is how the line is: Healed, or Silence.
	Watch(ctx context.Context, obey func(Event)) error
	// Check reports whether the store can be used.
	Check(ctx context.Context) error
	// Close ends everything the store started. Leases still held are left to run out.
	Close() error
}
