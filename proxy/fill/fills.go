package fill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

// leaseTTL is how long a dead holder delays others; a living one renews (R14).
const leaseTTL = 5 * time.Second

// Options is what a Table works with.
type Options struct {
	Store     store.Store
	Upstreams map[string]*upstream.Upstream
	Observe   func(Report) // told of every fill, once, when it has ended
	Spool     int64        // bytes of bodies under way (R25)
	MaxBody   int64        // what is larger is not stored
	Refreshes int64        // fills with nobody waiting, at once
	// Advertise is where other replicas reach this one's Relay; "": they do not, and this one asks no other.
	Advertise string
}

// Table holds the fills that run in this process.
type Table struct {
	options Options
	budget  *Budget
	ctx     context.Context
	stop    context.CancelFunc
	order   atomic.Uint64 // arrivals and departures, in one sequence (R3)
	flights singleflight.Group
	running tasks
	fetches atomic.Int64 // fills under way: those that are in the table, and those that nobody joins

	mu     sync.Mutex
	fills  map[string]*Fill
	leased map[string]*Fill // by token: what other replicas may ask for

	asking map[string]chan struct{} // by token: takes whose answer has not been acted on yet
	peers  *peers

	refreshes refreshes
}

// NewTable makes a Table; Drain ends it.
func NewTable(o Options) *Table {
	ctx, stop := context.WithCancel(context.Background())
	return &Table{
		options: o, budget: budgetOf(o), ctx: ctx, stop: stop,
		fills: map[string]*Fill{}, leased: map[string]*Fill{}, asking: map[string]chan struct{}{}, refreshes: refreshes{most: o.Refreshes},
		peers: newPeers(),
	}
}

// Watch has obey called for what the store says, until the table is drained.
func (t *Table) Watch(obey func(store.Event)) {
	go func() { _ = t.options.Store.Watch(t.ctx, obey) }()
}

// Arrive gives an exchange its place in the order of arrivals and departures.
func (t *Table) Arrive() uint64 { return t.order.Add(1) }

// Taken is what an exchange gets: an entry to decide on, a fill to decide on and to join, or both.
type Taken struct {
	Entry      *store.Entry
	Fill       *Fill
	Mine       bool // the fill was started for this exchange: it is its asker
	Failed     *store.Outcome
	StoreFault string // the verb that failed: this process collapses alone
	StoreWhy   policy.Reason
}

// Take asks the store what there is, and starts a fill when nothing is fresh enough and the lease is to be had. All
// who ask for one key at once share one round trip (x/sync/singleflight), on a context of the table's: whoever leaves
// takes nothing along. The flight ends when the fill stands in the table, so that no instant is left in which a second
// could start: who comes before finds the flight, who comes after finds the fill.
func (t *Table) Take(ctx context.Context, ask Ask) (Taken, error) {
	name := t.name(ask.Plan)
	if ask.Why == Part {
		name += "\x00part"
	}
	if f := t.find(name); f != nil {
		return Taken{Entry: ask.Prior, Fill: f}, nil
	}
	mine := false
	flight := t.flights.DoChan(name+ask.since(), func() (v any, err error) {
		// A panic in a flight would end the process, wherever it came from.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic in a flight: %v", p)
			}
		}()
		taken, started := t.take(name, ask)
		mine = started
		return taken, nil
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return Taken{}, r.Err
		}
		taken := r.Val.(Taken)
		taken.Mine = mine
		return taken, nil
	case <-ctx.Done():
		// The flight goes on; if it starts a fill for this exchange, nobody is there to read it.
		go func() {
			if r := <-flight; r.Err == nil && mine {
				r.Val.(Taken).Fill.Asker().Close()
			}
		}()
		return Taken{}, ctx.Err()
	}
}

// since keeps apart flights that want something newer than what is stored and fresh from those that want what there is.
func (a Ask) since() string {
	if a.Look {
		return "\x00look"
	}
	if a.Prior == nil || !a.Prior.FreshUntil.After(time.Now()) {
		return ""
	}
	return fmt.Sprint("\x00", a.Prior.FreshUntil.UnixMicro())
}

// name is the key as the table knows it. A HEAD has a flight of its own (R7).
func (t *Table) name(plan policy.Plan) string {
	name := plan.Key.Primary + "\x00" + plan.Key.Variant
	if plan.Request.Method == "HEAD" {
		name += "\x00HEAD"
	}
	return name
}

// take is what one flight does.
func (t *Table) take(name string, ask Ask) (taken Taken, started bool) {
	// Look again: between the first look and the flight a fill may have come into the table and this flight follows it.
	if f := t.find(name); f != nil {
		return Taken{Entry: ask.Prior, Fill: f}, false
	}
	if ask.Why == Head || ask.Why == Part {
		f := t.start(&Fill{ask: ask, name: name})
		return Taken{Entry: ask.Prior, Fill: f}, true
	}
	if taken, spared := t.spared(ask); spared {
		return taken, false
	}
	want := t.want(ask)
	defer t.asks(want.Token)()
	got, err := t.options.Store.Take(t.ctx, ask.Plan.Key, want)
	// One that no longer spares is no reason not to ask. Another replica that thought so too may have failed again since.
	for f := got.Failed; err == nil && f != nil && !pauses(*f); f = got.Failed {
		ask.Paused, want.Despite = f.Fault.RetryAfter, f.Taken
		got, err = t.options.Store.Take(t.ctx, ask.Plan.Key, want)
	}
	if err == nil || got.Entry != nil {
		ask.Prior = got.Entry
	}
	taken = Taken{Entry: got.Entry, Failed: got.Failed}
	if fault := errors.Join(err, got.Alone); fault != nil {
		taken.StoreFault, taken.StoreWhy = "take", policy.StoreUnavailable
		if errors.Is(fault, store.ErrReadOnly) {
			taken.StoreWhy = policy.StoreReadOnly
		}
	}
	switch {
	case err != nil:
		return t.island(name, ask, taken, lostReply(err, ask, want))
	case got.HeldBy != nil:
		if taken.Fill = t.own(got.HeldBy.Token); taken.Fill == nil {
			taken.Fill = t.start(&Fill{ask: ask, name: name, held: got.HeldBy})
		}
		return taken, false
	case got.Lease != nil:
		return t.fill(name, ask, taken, got.Lease)
	}
	return taken, false
}

// want is a take's argument. Something fresh that does not do is asked for again only if nobody has refilled meanwhile.
func (t *Table) want(ask Ask) store.Want {
	w := store.Want{Token: t.token(), TTL: leaseTTL, Holder: t.options.Advertise, At: time.Now(), Over: ask.Over, Class: ask.Class(ask.Prior, t.moment(ask.Plan))}
	if p := ask.Prior; p != nil && p.FreshUntil.After(w.At) {
		w.At = p.FreshUntil
	}
	if ask.Despite {
		w.Despite = store.EveryFailure
	}
	if ask.Plan.LookOnly() || ask.Look {
		w.TTL = 0
	}
	return w
}

// fill uses the lease, or gives it back at once (R15): behind a marker nobody collapses, and a client that takes what
// is stored needs no fill.
func (t *Table) fill(name string, ask Ask, taken Taken, lease *store.Lease) (Taken, bool) {
	why, wanted := ask.need(t.moment(ask.Plan))
	if !wanted || !why.waited() && !t.refreshes.begin() {
		if err := t.options.Store.Release(t.ctx, *lease, store.Outcome{End: store.Lapsed}); err != nil {
			taken.StoreFault = "release"
		}
		return taken, false
	}
	ask.Why = why
	taken.Fill = t.start(&Fill{ask: ask, name: name, lease: lease})
	return taken, why.waited()
}

// need says whether a lease that was granted is of use, and for what.
func (a Ask) need(at policy.Moment) (why Why, wanted bool) {
	at.Dice = 1 // whether to refresh early has been thrown for already
	if a.Prior == nil || !a.Why.waited() {
		return a.Why, true
	}
	past := a.Past != 0 && a.Prior.Leased > a.Past
	if past || a.Awaited != 0 && a.Prior.Leased == a.Awaited {
		// Brought by a fill that this one waited for: it may do although it is stale on arrival (R3).
		adm := policy.Admission{Stored: a.Prior.Stored, Key: a.Prior.Key, Shared: a.Prior.Header, Keep: 1}
		d := a.Policy.May(a.Plan, adm, policy.Order{Later: past || a.Later}, at)
		if d.Action == policy.Serve || d.Action == policy.ServeAndRefresh {
			return a.Why, false
		}
	}
	switch d := a.Policy.Decide(a.Plan, &a.Prior.Stored, at); d.Action {
	case policy.Serve, policy.Refuse:
		return a.Why, false
	case policy.ServeAndRefresh:
		return Refresh, true
	case policy.Fetch:
		return a.Why, d.Collapse
	default:
		return Stale, true
	}
}

// lostReply is the lease that a take without an answer may have been granted: the fill runs under the token that was
// sent, and its commit decides (R14). nil: the store said that it grants none.
func lostReply(err error, ask Ask, want store.Want) *store.Lease {
	if !errors.Is(err, store.ErrUnavailable) || want.TTL <= 0 {
		return nil
	}
	return &store.Lease{Key: ask.Plan.Key, Token: want.Token, Holder: want.Holder}
}

// island goes on without the shared store: this process still collapses (R17, decision 10). What nobody waits for is
// not fetched, as there is nowhere to keep it.
func (t *Table) island(name string, ask Ask, taken Taken, lease *store.Lease) (Taken, bool) {
	if ask.Plan.LookOnly() || ask.Look || !ask.Why.waited() {
		return taken, false
	}
	taken.Fill = t.start(&Fill{ask: ask, name: name, lease: lease})
	return taken, true
}

// asks notes a take whose answer is not acted on yet; the result ends the note.
func (t *Table) asks(token string) (answered func()) {
	acted := make(chan struct{})
	t.mu.Lock()
	t.asking[token] = acted
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		delete(t.asking, token)
		t.mu.Unlock()
		close(acted)
	}
}

// own finds the fill behind a lease that turns out to be this replica's own: a look and a take are two flights, and the
// one may meet the lease that the other has just been granted (R15). nil: it is somebody else's, or over.
func (t *Table) own(token string) *Fill {
	t.mu.Lock()
	acted := t.asking[token]
	t.mu.Unlock()
	if acted != nil {
		<-acted
	}
	return t.leasedAs(token)
}

// Alone starts a fill that nobody joins: behind a marker, or for those who parted from another at its head.
func (t *Table) Alone(ask Ask) Taken {
	ask.Why = Alone
	return Taken{Fill: t.start(&Fill{ask: ask}), Mine: true}
}

func (t *Table) start(f *Fill) *Fill {
	f.table, f.prior = t, f.ask.Prior
	if f.lease != nil {
		f.leased, f.gone = f.lease.Lost != nil, f.lease.Lost
	}
	f.up = t.options.Upstreams[f.ask.Plan.Route.Upstream]
	f.place = upstream.At(f.ask.Class(f.prior, t.moment(f.ask.Plan)))
	f.ctx, f.cancel = context.WithCancelCause(t.ctx)
	f.limit = time.AfterFunc(f.up.Config().FillTimeout, func() { f.cancel(context.DeadlineExceeded) })
	f.spool = NewSpool(t.budget, t.options.MaxBody, func() { f.cancel(errDeserted) })
	if f.held == nil {
		f.spool.Hurry(f.up.Crowded)
	}
	f.interim, f.head, f.done = make(chan Interim, 8), make(chan struct{}), make(chan struct{})
	f.report = reportOf(f.ask.Plan, f.ask.Why)
	if f.ask.Why.waited() && f.held == nil {
		f.asker, _ = f.spool.Join()
	}
	t.mu.Lock()
	if f.name != "" {
		t.fills[f.name] = f
	}
	if f.lease != nil {
		t.leased[f.lease.Token] = f
	}
	t.mu.Unlock()
	t.fetches.Add(1)
	t.running.Go(f.run)
	return f
}

// waited reports whether somebody waits for such a fill when it starts.
func (w Why) waited() bool { return w != Refresh && w != Early && w != Warm }

// Asker is the reader of the one for whom the fill was started, who closes it.
func (f *Fill) Asker() *Reader { return f.asker }

// find is the fill under way. One whose lease was revoked is not to be joined: what it brings was purged (R13).
func (t *Table) find(name string) *Fill {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.fills[name]
	if f != nil && f.leased && f.revoked() {
		delete(t.fills, name)
		return nil
	}
	return f
}

// Running finds the fill of a page's GET that is under way; nil: none.
func (t *Table) Running(plan policy.Plan) *Fill {
	plan.Request.Method = "GET"
	return t.find(t.name(plan))
}

// Parting finds the fill of a range of the page that is under way; nil: none.
func (t *Table) Parting(plan policy.Plan) *Fill { return t.find(t.name(plan) + "\x00part") }

// remove takes f, and only f, out of the table.
func (t *Table) remove(f *Fill) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fills[f.name] == f {
		delete(t.fills, f.name)
	}
}

// Gauges: how many fills run, how many bytes they hold, how many refreshes were dropped.
func (t *Table) Gauges() (fills, bytes, dropped int64) {
	return t.fetches.Load(), t.budget.Used(), t.refreshes.dropped.Load()
}

// Drain lets fills end until ctx does; what is left then is given up, its leases released.
func (t *Table) Drain(ctx context.Context) error {
	ended := t.running.Idle()
	select {
	case <-ended:
		t.stop()
		return nil
	case <-ctx.Done():
	}
	t.stop()
	<-ended
	return ctx.Err()
}

func (t *Table) token() string { return rand.Text() }

// Readers is how many read, or wait to read, the bodies under way.
func (t *Table) Readers() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.fills {
		f.spool.mu.Lock()
		n += len(f.spool.readers)
		f.spool.mu.Unlock()
	}
	return n
}
