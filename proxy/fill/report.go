package fill

import (
	"time"

	"weir/policy"
)

// Why says why a fill ran.
type Why string

const (
	Miss    Why = "miss"
	Stale   Why = "stale"   // a client waits while a stale copy is validated
	Refresh Why = "refresh" // behind a stale answer
	Early   Why = "early"   // before expiry
	Alone   Why = "alone"   // behind a marker, or parted from another fill: nobody joins it
	Head    Why = "head"
	Part    Why = "part" // a range of a page that nobody has
	Warm    Why = "warm"
	Rest    Why = "rest" // of a stored body that was lost while it was being sent
)

// End says how a fill ended.
type End string

const (
	Stored    End = "stored"
	Confirmed End = "confirmed" // 304: the stored copy was freshened
	Unstored  End = "unstored"  // answered, shared or not, and not kept: see Reason
	Failed    End = "failed"    // the upstream failed
	Lost      End = "lost"      // purged meanwhile, or the lease ran out
	Awaited   End = "awaited"   // another replica filled, and its commit was waited for
	Relayed   End = "relayed"   // another replica filled, and its bytes came as it had them
	Overtaken End = "overtaken" // another replica filled, and is gone: its lease is free to be taken over
	Lapsed    End = "lapsed"    // nothing came of it, and not by the upstream's doing
)

// Report is what one fill did.
type Report struct {
	Route, Upstream string
	Page            string // policy.Key's Primary
	Why             Why
	End             End
	Reason          policy.Reason
	Started         time.Time
	Queued          time.Duration // for an upstream slot
	Head            time.Duration // from the start to the upstream's head
	Total           time.Duration
	Status          int
	Bytes           int64
	Requests        int    // upstream requests it cost
	StoreFault      string // the store verb that failed; "" when none did
	Err             error
}

// reportOf begins one.
func reportOf(plan policy.Plan, why Why) Report {
	return Report{Route: plan.Route.Name, Upstream: plan.Route.Upstream, Page: plan.Page.Primary, Why: why, Started: time.Now()}
}
