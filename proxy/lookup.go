package proxy

import (
	"weir/policy"
	"weir/proxy/fill"
)

// lookup looks at what is at hand without asking anybody, and decides. What it cannot answer goes on to join, which
// asks the store and, in the same round trip, for the right to fill.
func lookup() *state {
	return &state{"lookup", func(x *exchange) *state {
		x.leave()
		if x.turns++; x.turns > maxTurns {
			return x.waited(policy.TurnsSpent)
		}
		for range maxSigns {
			entry, ok := x.h.store.Peek(x.plan.Key)
			x.entry = entry
			if !ok {
				x.entry = nil
				return join()
			}
			if entry.Kind != policy.Signpost {
				return x.decide()
			}
			x.plan = x.policy.Follow(x.plan, entry.Stored)
		}
		return join()
	}}
}

// decide acts on what is stored: it is what Peek found, or Take.
func (x *exchange) decide() *state {
	if order, waited := x.waitedFor(); waited {
		return x.brought(order)
	}
	d := x.policy.Decide(x.plan, storedOf(x.entry), x.moment())
	x.decision = d
	switch d.Action {
	case policy.Serve:
		return deliver(d)
	case policy.ServeAndRefresh:
		x.h.table.Refresh(x.ask(behind(d.Reason)))
		return deliver(d)
	case policy.Refuse:
		return refuse(d.Reason)
	}
	if !d.Collapse {
		return alone(d.Reason)
	}
	return join()
}

// waitedFor reports whether the entry was brought by a fill that the exchange waited for, or by one that was sent after
// that: who wakes up late must not ask for once more what the others have boarded (R3).
func (x *exchange) waitedFor() (o policy.Order, waited bool) {
	w := &x.awaited
	switch {
	case x.entry == nil, x.entry.Kind == policy.Marker: // whom a marker binds is Decide's to say
	case w.past != 0 && x.entry.Leased > w.past:
		w.past = x.entry.Leased
		return policy.Order{Later: true}, true
	case w.taken != 0 && w.taken == x.entry.Leased:
		w.taken = 0
		return policy.Order{Later: w.later}, true
	}
	return o, false
}

// brought decides on such an entry.
func (x *exchange) brought(order policy.Order) *state {
	adm := policy.Admission{Stored: x.entry.Stored, Key: x.entry.Key, Shared: x.entry.Header, Keep: 1}
	d := x.policy.May(x.plan, adm, order, x.moment())
	switch d.Action {
	case policy.Serve, policy.ServeAndRefresh:
		x.report.Collapsed = true
		d.Reason = x.missed()
		return deliver(d)
	case policy.Fetch:
		return alone(d.Reason)
	}
	return join()
}

func behind(r policy.Reason) fill.Why {
	if r == policy.EarlyRefresh {
		return fill.Early
	}
	return fill.Refresh
}

// ask is the exchange's question to the table. Fills fetch the whole by GET, whatever the client's method and range
// (B090), but for a HEAD of a page that nobody has.
func (x *exchange) ask(why fill.Why) fill.Ask {
	plan := x.plan
	if why != fill.Head {
		plan.Request.Method = "GET"
	}
	return fill.Ask{
		Policy: x.policy, Plan: plan, Arrived: x.arrived, Prior: x.entry, Why: why,
		Despite: x.despite, Paused: x.paused, Over: x.over, Awaited: x.awaited.taken, Later: x.awaited.later, Past: x.awaited.past,
	}
}
