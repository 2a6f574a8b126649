package policy

import "time"

// FaultKind says how an upstream failed.
type FaultKind uint8

const (
	Refused       FaultKind = iota + 1 // could not be reached: refused, DNS, TLS
	Reset                              // closed before a head came
	TimeoutBefore                      // no head in time
	TimeoutAfter                       // stalled in the body
	Truncated                          // body ended short
	Garbage                            // not HTTP
	BadStatus                          // a 5xx, or a status the route counts as one
	Busy                               // not the upstream's doing: our queue to it is full
	BrokenWait                         // not the upstream's doing: the wait ended without an answer
)

// Fault is an upstream's failure, the input of Rescue.
type Fault struct {
	Kind       FaultKind
	Status     int // of BadStatus
	RetryAfter time.Duration
}

// Rescue answers whether a stale copy may stand in for a failed upstream: Serve, or Refuse with the fault's Reason.
func (p *Policy) Rescue(plan Plan, stored *Stored, f Fault, at Moment) Decision { panic("unbuilt") }
