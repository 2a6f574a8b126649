package fill

import (
	"math/rand/v2"
	"time"

	"weir/policy"
	"weir/store"
)

// recalled is how much longer a failure is remembered than it spares the upstream: what comes next is to know how long
// the last pause was.
const recalled = 10 * time.Minute

// failure is what those who wait elsewhere learn, and what the store remembers for all replicas (R23). It bears its
// pause, which the next failure doubles, unless the page was answered meanwhile: a commit ends the memory. Failed is only
// what the upstream did; for the rest another replica may try (R22).
func (f *Fill) failure(fault policy.Fault) store.Outcome {
	if isOurs(fault) {
		return store.Outcome{End: store.Lapsed}
	}
	fault.RetryAfter = policy.Pause(fault, f.ask.Paused)
	out := store.Outcome{End: store.Failed, Fault: fault}
	if f.ask.Prior != nil { // else there is nothing that could stand in
		// Pages that failed together are not to come back together.
		out.Remember = fault.RetryAfter + rand.N(fault.RetryAfter/4) + recalled
	}
	return out
}

// pauses reports whether a remembered failure spares the upstream still.
func pauses(out store.Outcome) bool { return out.Remember > recalled }

// isOurs: the upstream was not asked, or not heard out.
func isOurs(fault policy.Fault) bool {
	return fault.Kind == policy.Busy || fault.Kind == policy.BrokenWait || fault.Kind == policy.Spared
}

// spared looks for what can stand in while the upstream is sick. It only looks: a lease would be of no use (R15). ok is
// false when the upstream is to be asked all the same, or the sickness is over.
func (t *Table) spared(ask Ask) (taken Taken, ok bool) {
	up := t.options.Upstreams[ask.Plan.Route.Upstream]
	if _, sick := up.Spares(policy.ErrorWaits); !sick || ask.Look {
		return taken, false
	}
	look := t.want(ask)
	look.TTL = 0
	got, err := t.options.Store.Take(t.ctx, ask.Plan.Key, look)
	stored := got.Entry
	if err != nil || got.HeldBy != nil || stored != nil && (stored.Kind == policy.Signpost || stored.FreshUntil.After(look.At)) {
		return taken, false
	}
	after, spared := up.Spares(ask.Class(stored, t.moment(ask.Plan)))
	fault := policy.Fault{Kind: policy.Spared, RetryAfter: after}
	return Taken{Entry: stored, Failed: &store.Outcome{End: store.Lapsed, Fault: fault}}, spared
}

// moment is now, and a throw of the dice, for a decision.
func (t *Table) moment(plan policy.Plan) policy.Moment {
	return policy.Moment{Now: time.Now(), Dice: rand.Float64(), Health: t.options.Upstreams[plan.Route.Upstream].Health()}
}

// Class says who waits for an answer, given the copy that might stand in for it.
func (a Ask) Class(stale *store.Entry, at policy.Moment) policy.Class {
	switch a.Why {
	case Refresh:
		return policy.StaleWaits
	case Early:
		return policy.EarlyWaits
	case Warm:
		return policy.WarmWaits
	}
	if stale != nil && a.Policy.Rescue(a.Plan, &stale.Stored, policy.Fault{Kind: policy.Spared}, at).Action == policy.Serve {
		return policy.ErrorWaits
	}
	return policy.ClientWaits
}
