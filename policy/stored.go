package policy

import (
	"net/http"
	"time"
)

// Response is the head of an upstream's answer. Asked and Arrived are the replica's own clock
// (RFC 9111 §4.2.3's request_time and response_time).
type Response struct {
	Status         int
	Header         http.Header
	Asked, Arrived time.Time
	CloseDelimited bool // the body ends with the connection: whole and cut look alike (R34)
}

// Kind says what lies under a key.
type Kind uint8

const (
	Answer   Kind = iota // a whole answer
	Part                 // some bytes of one (R7)
	Signpost             // points to a page's variants (R5)
	Marker               // remembers "do not collapse" (R4), and nothing else
)

// Audience says whom a stored answer may be given to (R1).
type Audience uint8

const (
	PlainOnly     Audience = iota // requests that carry nothing particular: its lifetime is ours
	NotAuthorized                 // particular requests too, but none with Authorization: the response states its lifetime
	Everyone                      // public, s-maxage or must-revalidate (RFC 9111 §3.5)
)

// Span is a run of bytes, End not included.
type Span struct{ Start, End int64 }

// Len is the number of bytes in the span.
func (s Span) Len() int64 { return s.End - s.Start }

// Variant is one line of a signpost: what a request must carry to be answered by Key.
type Variant struct {
	Names, Values    []string // selecting fields, lower case and sorted, with their normalised values
	Language, Coding string   // the answer's Content-Language and Content-Encoding
	Variant          string   // Key.Variant of the answer
	Arrived          time.Time
}

// Stored is all that a later request needs to know of a stored response, but its body.
type Stored struct {
	Response
	Kind       Kind
	Audience   Audience
	Vary, Tags []string
	Route      string // of the request that brought it; a purge may name it
	// Alone: no-cache. It is always validated, and a full answer serves its asker alone (R3).
	Alone bool
	// Age is how old it was when it arrived: corrected_initial_age (RFC 9111 §4.2.3).
	Age time.Duration
	// Immutable: while it is fresh, a client's max-age=0 does not ask for a newer one (RFC 8246).
	Immutable bool
	// NoStale: must-revalidate and its like. Nothing stale is served, not even what a client's max-stale allows.
	NoStale bool
	// Marked holds until when plain [0] and particular [1] requests do not collapse (R4); it lies beside an Answer too.
	Marked   [2]time.Time
	Why      Reason    // why the marker was left
	Variants []Variant // of a Signpost
	// Cost is the smoothed time the upstream takes for it, without queueing.
	Cost   time.Duration
	Span   Span   // of a Part
	Total  int64  // of a Part: the length of the whole, -1 when unknown
	Leased uint64 // store time (µs) at which the fill that brought it was leased; what purges are compared with

	// Three moments, named by what they permit until then: serving without asking; serving while one refresh
	// runs; serving in place of an upstream's failure. FreshUntil <= RefreshUntil, FreshUntil <= RescueUntil.
	FreshUntil, RefreshUntil, RescueUntil time.Time
	// RefreshStated and RescueStated: the window is the response's own word. One that is the route's is not for
	// particular requests (R1).
	RefreshStated, RescueStated bool
}

// Lifetime is how long the answer was fresh for when it arrived; negative when it was stale on arrival.
func (s Stored) Lifetime() time.Duration { return s.FreshUntil.Sub(s.Arrived) }

// AgeAt is the answer's age at a moment (RFC 9111 §4.2.3), never negative.
func (s Stored) AgeAt(now time.Time) time.Duration { return s.Age + max(0, now.Sub(s.Arrived)) }

// Shift is the same facts told by a clock that is d ahead (R18): replicas exchange moments by a common clock.
func (s Stored) Shift(d time.Duration) Stored {
	if d == 0 {
		return s
	}
	move := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	for _, t := range []*time.Time{
		&s.Asked, &s.Arrived, &s.FreshUntil, &s.RefreshUntil, &s.RescueUntil, &s.Marked[0], &s.Marked[1],
	} {
		move(t)
	}
	s.Variants = append([]Variant(nil), s.Variants...)
	for i := range s.Variants {
		move(&s.Variants[i].Arrived)
	}
	return s
}

// Admission is policy's answer to what an upstream sent.
type Admission struct {
	Stored Stored
	// Key is where the answer belongs: VariantOf's, for the plan it was brought for. Zero in an admission made from an
	// entry that the exchange found under its own key.
	Key Key
	// Shared is the head that joiners, peers and the store may see (R2); the asker alone sees the response's own.
	Shared http.Header
	// Keep is how long the store keeps it, from Arrived; 0: not stored.
	Keep time.Duration
	// Private: nobody but the asker may have this answer, stored or not.
	Private bool
	// Particular: its asker told who he is (R1). Others have it by the lifetime that it states, and by nothing else.
	Particular bool
	// Changed: the upstream could be asked whether the prior still holds. A whole answer then says that it does not.
	Changed bool
	// Outdates: it is not kept, and says all the same that the prior is not the page any more (RFC 9111 §4.3.3).
	Outdates bool
	// Mark is how long the marker this answer leaves lasts; 0: it leaves none (R4).
	Mark   time.Duration
	Reason Reason // why it is not stored, or not shared; None when it is
}
