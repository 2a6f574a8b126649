package fill

import (
	"math/rand/v2"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

// setbacks knows how often in a row pages failed, as far as this replica has heard: the store forgets a failure when its
// time is over, and the next one must be told from the first (R23). In a row means over one and the same copy: where a
// newer one is stored, the upstream has answered meanwhile, whoever asked it.
type setbacks struct {
	mu   sync.Mutex
	last map[policy.Key]setback
}

type setback struct {
	over  uint64 // Leased of the copy that stood in
	times int
}

// mostSetbacks bounds what is known. Past it all is forgotten: then pages begin with the shortest pause again.
const mostSetbacks = 10_000

// heard takes down a failure that the store, or another replica, tells of.
func (s *setbacks) heard(key policy.Key, stale *store.Entry, out *store.Outcome) {
	if out == nil || out.End != store.Failed || stale == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.last[key]; last.over == stale.Leased && last.times >= out.Times {
		return
	}
	s.put(key, setback{stale.Leased, out.Times})
}

// another counts one more failure, and answers how many in a row that makes.
func (s *setbacks) another(key policy.Key, stale *store.Entry) int {
	if stale == nil {
		return 1 // nothing can stand in: it will not be remembered
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[key]
	if last.over != stale.Leased {
		last = setback{over: stale.Leased}
	}
	last.times++
	s.put(key, last)
	return last.times
}

func (s *setbacks) put(key policy.Key, last setback) {
	if s.last == nil || len(s.last) >= mostSetbacks {
		s.last = map[policy.Key]setback{}
	}
	s.last[key] = last
}

// failure is what those who wait elsewhere learn. Failed is only what the upstream did; for the rest another replica may
// try (R22).
func (f *Fill) failure(fault policy.Fault) store.Outcome {
	if isOurs(fault) {
		return store.Outcome{End: store.Lapsed}
	}
	times := f.table.setbacks.another(f.lease.Key, f.ask.Prior)
	return store.Outcome{End: store.Failed, Fault: fault, Times: times, Remember: policy.Pause(fault, times, rand.Float64())}
}

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
	after, spared := up.Spares(ask.class(stored, t.moment(ask.Plan)))
	fault := policy.Fault{Kind: policy.Spared, RetryAfter: after}
	return Taken{Entry: stored, Failed: &store.Outcome{End: store.Lapsed, Fault: fault}}, spared
}

// moment is now, and a throw of the dice, for a decision.
func (t *Table) moment(plan policy.Plan) policy.Moment {
	return policy.Moment{Now: time.Now(), Dice: rand.Float64(), Health: t.options.Upstreams[plan.Route.Upstream].Health()}
}

// class says who waits for an answer, given the copy that might stand in for it.
func (a Ask) class(stale *store.Entry, at policy.Moment) policy.Class {
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
