package proxy

import (
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/store"
)

// join asks the table: it gets an entry to decide on, or a fill to wait for, its own or another's.
func join() *state {
	return &state{"join", func(x *exchange) *state {
		ask := x.ask(fill.Miss)
		ask.Look = x.asItIs() && x.h.table.Running(ask.Plan) == nil
		taken, err := x.take(ask)
		switch {
		case x.gone():
			return nil
		case err != nil:
			x.report.Err = err
			return refuse(policy.Panicked)
		}
		if taken.StoreFault != "" {
			x.report.StoreFault, x.report.StoreWhy = taken.StoreFault, taken.StoreWhy
		}
		return x.taken(taken, ask)
	}}
}

// take asks the table. The seat in a fill that was started for this exchange is held from here on, so that it is given
// up with the exchange, however that ends.
func (x *exchange) take(ask fill.Ask) (fill.Taken, error) {
	t, err := x.h.table.Take(x.r.Context(), ask)
	if t.Mine {
		x.reader = t.Fill.Asker()
	}
	return t, err
}

// asItIs: a HEAD or a range of a page that nobody has, or is filling, goes upstream as it is (R7): it is not worth
// fetching the whole for. But a range other than the one that is being asked for starts a fill of the whole, which all
// others join. So does whatever nobody may wait for, though there is nothing yet.
func (x *exchange) asItIs() bool {
	if x.entry != nil && x.entry.Kind == policy.Answer {
		return false
	}
	if !x.policy.Decide(x.plan, nil, x.moment()).Collapse {
		return true
	}
	if x.r.Method == "HEAD" {
		return !x.plan.Route.Cache.ConvertHead
	}
	wanted := fill.RangeOf(x.r.Header)
	part := x.h.table.Parting(x.plan)
	return wanted != "" && (part == nil || part.Range() == wanted)
}

// taken acts on what the table has.
func (x *exchange) taken(t fill.Taken, ask fill.Ask) *state {
	before := x.entry
	x.entry = t.Entry
	switch {
	case t.Entry != nil && t.Entry.Kind == policy.Signpost:
		x.plan = x.policy.Follow(x.plan, t.Entry.Stored)
		x.entry = nil
		return join()
	case t.Failed != nil:
		return x.failedBefore(t.Failed.Fault)
	case t.Fill != nil:
		return x.meet(t)
	case t.Entry == nil && x.plan.LookOnly():
		return refuse(policy.OnlyIfCached)
	case ask.Look && (t.Entry == nil || t.Entry.Kind == policy.Part && before != nil && before.Kind == policy.Part):
		return x.nothing()
	case t.Entry == nil || before != nil && t.Entry.Leased == before.Leased && t.Entry.FreshUntil.Equal(before.FreshUntil):
		// The lease went to somebody who had no use for it: look again.
		return lookup()
	}
	return x.decide()
}

// nothing usable is stored, and nobody fills.
func (x *exchange) nothing() *state {
	x.decision = x.policy.Decide(x.plan, storedOf(x.entry), x.moment())
	switch {
	case x.decision.Action == policy.Refuse:
		return refuse(x.decision.Reason)
	case !x.decision.Collapse:
		return alone(x.decision.Reason)
	}
	why := fill.Head
	if x.r.Method != "HEAD" {
		why = fill.Part
	}
	taken, err := x.take(x.ask(why))
	switch {
	case x.gone():
		return nil
	case err != nil:
		x.report.Err = err
		return refuse(policy.Panicked)
	case taken.Fill.Range() != fill.RangeOf(x.r.Header) && why == fill.Part:
		return join()
	}
	return x.board(taken)
}

// failedBefore: the upstream failed a moment ago, and a copy that may stand in is stored (R23). The memory spares the
// upstream only where this exchange may have that copy; otherwise it asks all the same.
func (x *exchange) failedBefore(fault policy.Fault) *state {
	d := x.policy.Decide(x.plan, storedOf(x.entry), x.moment())
	x.decision = d
	if d.Action == policy.Serve || d.Action == policy.ServeAndRefresh {
		return deliver(d)
	}
	x.fault = fault
	if d := x.policy.Rescue(x.plan, storedOf(x.entry), fault, x.moment()); d.Action == policy.Serve {
		x.unasked = true
		return rescue()
	}
	if fault.Kind == policy.Spared {
		return rescue() // nor would it be asked for this exchange
	}
	x.despite, x.paused = true, fault.RetryAfter
	return join()
}

// meet decides on what the fill began with first: a stale answer may do while it is refreshed. Otherwise it boards.
func (x *exchange) meet(t fill.Taken) *state {
	if x.entry == nil {
		x.entry = t.Fill.Prior()
	}
	d := x.policy.Decide(x.plan, storedOf(x.entry), x.moment())
	x.decision = d
	switch d.Action {
	case policy.Serve, policy.ServeAndRefresh:
		x.leave() // the fill goes on
		return deliver(d)
	case policy.Refuse:
		x.leave()
		return refuse(d.Reason)
	}
	if !d.Collapse && !t.Mine {
		return alone(d.Reason)
	}
	return x.board(t)
}

// alone fetches for this client only: nobody joins, and it joins nobody. That is no turn.
func alone(why policy.Reason) *state {
	return &state{"alone", func(x *exchange) *state {
		x.leave()
		x.decision = policy.Decision{Action: policy.Fetch, Reason: why}
		ask := x.ask(fill.Miss)
		ask.Plan.Request.Method = x.r.Method
		return x.board(x.h.table.Alone(ask))
	}}
}

// board takes a seat in a fill, and waits.
func (x *exchange) board(t fill.Taken) *state {
	f := t.Fill
	x.fill, x.mine = f, t.Mine
	if t.Mine {
		x.reader = f.Asker()
		return wait()
	}
	reader, ok := f.Board(x.ask(fill.Miss).Class(x.entry, x.moment()))
	if ok && f.Complete() {
		reader.Close()
		ok = false
	}
	if !ok {
		x.fill = nil
		return x.tooLate(f)
	}
	x.reader = reader
	if x.h.waitingLocal.Load()+x.h.waitingRemote.Load() >= int64(x.h.config.MaxWaiting) {
		x.fault = policy.Fault{Kind: policy.BrokenWait}
		x.report.Detail = policy.WaitersFull
		return rescue()
	}
	return wait()
}

// tooLate: a body that is all here and is being stored is looked up in a moment; one that is only streamed to those
// who came in time is not.
func (x *exchange) tooLate(f *fill.Fill) *state {
	if f.Whole() {
		x.fill = f
		return next()
	}
	return alone(x.missed())
}

// wait parks the exchange until the fill's head is known.
func wait() *state {
	return &state{"wait", func(x *exchange) *state {
		gauge := &x.h.waitingLocal
		if x.fill.Remote() {
			gauge = &x.h.waitingRemote
		}
		gauge.Add(1)
		defer gauge.Add(-1)
		began := time.Now()
		defer func() { x.report.Waited += time.Since(began) }()
		var limit <-chan time.Time
		if most := x.plan.Route.Cache.Wait.Max; most > 0 && !x.mine {
			timer := time.NewTimer(most)
			defer timer.Stop()
			limit = timer.C
		}
		soft, stop := x.softTimeout()
		defer stop()
		var interim <-chan fill.Interim
		if x.mine {
			interim = x.fill.Interim()
		}
		for {
			select {
			case <-x.fill.Head():
				x.passOn(interim)
				return x.atHead()
			case i := <-interim:
				x.w.interim(i)
			case <-x.r.Context().Done():
				x.gone()
				return nil
			case <-soft:
				if s := x.tooSlow(); s != nil {
					return s
				}
				soft = nil
			case <-limit:
				return x.waited(policy.WaitTimeout)
			}
		}
	}}
}

// softTimeout goes off when a stale answer is due, if the route has such a time and there is something stale.
func (x *exchange) softTimeout() (soft <-chan time.Time, stop func()) {
	most := x.plan.Route.Cache.SoftTimeout
	if most <= 0 || x.entry == nil {
		return nil, func() {}
	}
	timer := time.NewTimer(most)
	return timer.C, func() { timer.Stop() }
}

// tooSlow answers stale where a failed upstream would be stood in for; the fetch goes on, and what it brings is kept.
func (x *exchange) tooSlow() *state {
	d := x.policy.Rescue(x.plan, &x.entry.Stored, policy.Fault{Kind: policy.Slow}, x.moment())
	if d.Action != policy.Serve {
		return nil
	}
	x.leave()
	return deliver(d)
}

// passOn hands on the 1xx answers that came just before the head.
func (x *exchange) passOn(interim <-chan fill.Interim) {
	for {
		select {
		case i := <-interim:
			x.w.interim(i)
		default:
			return
		}
	}
}

// atHead is where each who waits decides for itself what the fill is to it (R2).
func (x *exchange) atHead() *state {
	r := x.fill.Result()
	switch {
	case r.Outcome != nil:
		x.over = r.Gone
		out := *r.Outcome
		if r.Late {
			out.Taken = 0 // nobody waited for it: what it brought is like anything that is stored
		}
		return x.elsewhere(out)
	case r.Fault != nil:
		x.fault = *r.Fault
		x.report.FwdStatus, x.report.Err = r.Fault.Status, r.Err
		return rescue()
	}
	x.report.FwdStatus = r.Status
	if x.fill.VoidFor(x.arrived) {
		return next()
	}
	order := x.fill.Order(x.arrived)
	order.Mine = x.mine
	if x.fill.Remote() {
		// Another replica's departure is told by its lease: it began after this exchange arrived when that has seen an
		// earlier one end.
		order.Later = x.awaited.seen
	}
	d := x.policy.May(x.plan, r.Admission, order, x.moment())
	switch d.Action {
	case policy.Serve, policy.ServeAndRefresh:
		if x.mine && x.entry != nil && x.fill.Method() == "HEAD" {
			x.headed(r.Response)
		}
		if r.Entry != nil {
			x.entry = r.Entry
		}
		x.report.Collapsed = !x.mine
		d.Reason = x.missed()
		if r.Entry == nil && r.Admission.Keep > 0 && x.standsBy() {
			return whole(d)
		}
		return deliver(d)
	case policy.Lookup:
		if r.Admission.Private { // those who do not tell who they are begin anew, together
			if x.turns >= maxTurns {
				break
			}
			return lookup()
		}
		// The head tells which variant is this client's; the signpost that will say so is not laid yet.
		x.plan = x.policy.Parted(x.plan, r.Admission)
		return lookup()
	case policy.Validate:
		return next()
	}
	x.report.Detail = d.Reason
	return alone(x.missed())
}

// next waits for the fill to end, to board the one that follows: per key one is under way and one waits to depart (R3).
// All who wait here arrived before that one is sent, so it serves them all.
func next() *state {
	return &state{"next", func(x *exchange) *state {
		if x.reader != nil {
			x.reader.Close() // who reads no more must not hold up who does
			x.reader = nil
		}
		select {
		case <-x.fill.Done():
			past := x.fill.Leased()
			if past > 0 && x.fill.Order(x.arrived).Later {
				past-- // it came too late for a seat only: what this fill stores is for it, too
			}
			x.awaited.past = max(x.awaited.past, past)
			x.awaited.seen = x.awaited.seen || past > 0 // whatever is leased by now, here or elsewhere, came after it
			return lookup()
		case <-x.r.Context().Done():
			x.gone()
			return nil
		}
	}}
}

// elsewhere acts on how another replica's fill ended.
func (x *exchange) elsewhere(out store.Outcome) *state {
	switch out.End {
	case store.Filled:
		x.awaited.later, x.awaited.seen, x.awaited.taken = x.awaited.seen, true, out.Taken
		return lookup()
	case store.Failed:
		x.fault = out.Fault
		x.report.FwdStatus = out.Fault.Status
		return rescue()
	case store.Revoked:
		x.awaited.seen = true
		return x.purged()
	}
	x.awaited.seen = true
	return lookup()
}

// purged looks up again after a turn that a purge has ended, which does not count (R21).
func (x *exchange) purged() *state {
	x.turns--
	return lookup()
}

// waited is the end of a wait that took too long: stale if there is something, else as the route says (R21).
func (x *exchange) waited(why policy.Reason) *state {
	x.report.Detail = why
	if x.plan.Route.Cache.Wait.Then == "upstream" {
		return alone(why)
	}
	x.leave()
	x.fault = policy.Fault{Kind: policy.BrokenWait}
	return rescue()
}

// missed is why the exchange went upstream: what was decided on what is stored.
func (x *exchange) missed() policy.Reason {
	if x.decision.Reason == policy.None {
		return policy.URIMiss
	}
	return x.decision.Reason
}
