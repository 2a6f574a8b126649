package fill

import (
	"context"
	"errors"
	"time"

	"weir/policy"
	"weir/store"
)

// dismiss ends the lease at the head of an answer that is not kept, so that other replicas are as free as those
// aboard: nobody waits for a body that is not theirs.
func (f *Fill) dismiss(adm policy.Admission) {
	if adm.Private {
		f.table.remove(f)
	}
	if f.lease == nil || f.ended {
		return
	}
	switch {
	case adm.Mark > 0:
		f.commit(store.Write{Key: f.lease.Key, Entry: f.marker(adm), Keep: adm.Mark})
	default:
		f.release(store.Outcome{End: store.Lapsed})
	}
}

// outdate has what is stored asked about from now on: what came in its place is not kept, and yet it is the page. No byte
// of that waits for the replicas to confirm; where the store is away, the copy's own time ends it.
func (f *Fill) outdate() {
	page := policy.Selector{Page: f.ask.Plan.Page.Primary}
	f.table.running.Go(func() { _, _ = f.table.options.Store.Purge(f.table.ctx, page, store.MustValidate) })
}

// giveUp ends a fill for all who come later: they ask for themselves (R23), and find neither it nor its lease. It is
// called before those aboard learn of the failure, so that none of them comes too early.
func (f *Fill) giveUp(fault policy.Fault) {
	f.table.remove(f)
	if f.lease != nil && !f.ended {
		f.release(f.failure(fault))
	}
}

// marker remembers that answers to this kind of request are not shared (R4).
func (f *Fill) marker(adm policy.Admission) *store.Entry {
	until := time.Now().Add(adm.Mark)
	s := policy.Stored{Kind: policy.Marker, Why: adm.Reason, FreshUntil: until, RefreshUntil: until, RescueUntil: until}
	s.Arrived, s.Asked = adm.Stored.Arrived, adm.Stored.Asked
	kind := 0
	if len(f.ask.Plan.Particular) > 0 {
		kind = 1
	}
	s.Marked[kind] = until
	return &store.Entry{Stored: s, Key: f.lease.Key, Body: store.Bytes{}}
}

// keep commits an answer under the key that its Vary gives it.
func (f *Fill) keep(entry *store.Entry, adm policy.Admission) {
	left := adm.Keep - time.Since(adm.Stored.Arrived)
	if left <= 0 {
		f.release(store.Outcome{End: store.Lapsed})
		return
	}
	w := store.Write{Entry: entry, Sign: f.ask.Plan.Page, Keep: left}
	w.Key, w.Variant = f.ask.Policy.VariantOf(f.ask.Plan, entry.Stored)
	entry.Key = w.Key
	if f.commit(w) {
		f.spool.Stored(func() *store.Entry { return f.stored(w.Key) })
	}
}

// stored is what the fill has stored; nil: it is not there, or no more.
func (f *Fill) stored(key policy.Key) *store.Entry {
	if e, ok := f.table.options.Store.Peek(key); ok && e.Leased == f.lease.Taken {
		return e
	}
	taken, err := f.table.options.Store.Take(f.table.ctx, key, store.Want{At: time.Now()})
	if e := taken.Entry; err == nil && e != nil && e.Leased == f.lease.Taken {
		return e
	}
	return nil
}

// lateLease asks for the right to store what was fetched without it. Who meets another holder keeps nothing.
func (f *Fill) lateLease() bool {
	if !f.mayAskLate() {
		return false
	}
	taken, err := f.table.options.Store.Take(f.table.ctx, f.ask.Plan.Key, f.table.want(f.ask))
	if err != nil || taken.Lease == nil {
		return false
	}
	f.lease = taken.Lease
	return true
}

// mayAskLate: a part is fetched without a lease (R7), and so is what lies behind a marker, which the first storable
// answer ends (R4).
func (f *Fill) mayAskLate() bool {
	p, kind := f.ask.Prior, min(len(f.ask.Plan.Particular), 1)
	return f.ask.Why == Part || f.ask.Why == Alone && p != nil && p.Marked[kind].After(f.report.Started)
}

// Keeps reports whether what the fill brings is going to be stored.
func (f *Fill) Keeps() bool {
	return f.result.Admission.Keep > 0 && f.spool.Whole() && (f.leased || f.mayAskLate())
}

// release gives the lease back. It ends with the store's own deadline, not with the fill's context: a drain releases too.
func (f *Fill) release(out store.Outcome) {
	f.ended = true
	if err := f.table.options.Store.Release(context.WithoutCancel(f.ctx), *f.lease, out); err != nil {
		f.report.StoreFault = "release"
	}
}

// commit writes, and reports how it went. A refused write harms nobody: those aboard are served all the same.
func (f *Fill) commit(w store.Write) (done bool) {
	f.ended = true
	err := f.table.options.Store.Commit(context.WithoutCancel(f.ctx), *f.lease, w)
	switch {
	case err == nil:
		return true
	case errors.Is(err, store.ErrLost):
		f.report.End, f.report.Reason = Lost, policy.LeaseLost
	case errors.Is(err, store.ErrReadOnly):
		f.report.End, f.report.Reason, f.report.StoreFault = Unstored, policy.StoreReadOnly, "commit"
	default:
		f.report.End, f.report.Reason, f.report.StoreFault = Unstored, policy.StoreUnavailable, "commit"
	}
	f.report.Err = err
	// Nobody is to wait for a lease whose holder is done: a purge by tag refuses what it brought, and revokes nothing.
	_ = f.table.options.Store.Release(context.WithoutCancel(f.ctx), *f.lease, store.Outcome{End: store.Lapsed})
	return false
}
