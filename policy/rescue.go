package policy

import (
	"net/http"
	"time"
)

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
	Slow                               // it takes longer than soft_timeout; the fetch goes on
	Spared                             // not the upstream's doing: it fails as a whole, and was not asked
)

// Fault is an upstream's failure, the input of Rescue.
type Fault struct {
	Kind       FaultKind
	Status     int // of BadStatus
	RetryAfter time.Duration
}

// Rescue answers whether a stale copy may stand in for a failed upstream: Serve, or Refuse with the fault's Reason.
func (p *Policy) Rescue(plan Plan, stored *Stored, f Fault, at Moment) Decision {
	refuse := Decision{Action: Refuse, Reason: FaultReason(f)}
	if stored == nil || stored.Kind != Answer || isFailure(stored.Status) ||
		!admits(stored.Audience, plan.Particular) || !acceptable(plan.Request.Header, stored.Header["Content-Encoding"]) || !plan.meets(stored) {
		return refuse
	}
	if stored.RescueUntil.After(at.Now) && (len(plan.Particular) == 0 || stored.RescueStated && !plan.isBoundBy(stored)) || plan.acceptsRescue(stored, at) {
		d := Decision{Action: Serve, Reason: StaleIfError, Age: stored.AgeAt(at.Now)}
		if f.Kind == Slow {
			d.Reason = SoftTimeout
		}
		return d
	}
	// must-revalidate: an error of ours, 504 (RFC 9111 §5.2.2.2), unless the upstream sent one of its own.
	if stored.NoStale && f.Kind != BadStatus {
		refuse.Reason = StaleForbidden
	}
	return refuse
}

// isFailure: an answer that says that the upstream could not, for now. It stands in for nothing, and replaces no copy
// that can still be served.
func isFailure(status int) bool { return status >= 500 || status == http.StatusTooManyRequests }

// acceptsRescue: a client may allow more than response and route do (RFC 5861 §4), but not what the response forbids.
func (p *Plan) acceptsRescue(s *Stored, at Moment) bool {
	d := &p.directives
	return !s.NoStale && len(p.Particular) == 0 && d.staleIfError >= 0 && at.Now.Sub(s.FreshUntil) <= duration(d.staleIfError)
}

// The pause after a failure is short at first and doubles, up to what a page can be left alone for. Retry-After is
// believed for longer, but not for as long as somebody may have mistyped.
const (
	firstPause   = time.Second
	longestPause = time.Minute
	longestRetry = time.Hour
)

// Pause is how long the upstream is spared after a page has failed, where a stale copy can stand in (R23); last is how
// long it was after the failure before, 0 when there was none. It ends no sooner than the upstream's own Retry-After.
func Pause(f Fault, last time.Duration) time.Duration {
	return max(firstPause, min(2*last, longestPause), min(f.RetryAfter, longestRetry))
}

// FaultReason says of a failure what an exchange that met it reports.
func FaultReason(f Fault) Reason {
	switch f.Kind {
	case Refused:
		return UpstreamRefused
	case Reset:
		return UpstreamReset
	case TimeoutBefore, TimeoutAfter:
		return UpstreamTimeout
	case Truncated:
		return UpstreamTruncated
	case Garbage:
		return UpstreamGarbage
	case BadStatus:
		return UpstreamStatus
	case Busy:
		return UpstreamBusy
	case Spared:
		return UpstreamSick
	}
	return WaitTimeout
}
