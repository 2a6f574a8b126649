package fill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

// Ask is what an exchange brings: the question, and what it has seen so far.
type Ask struct {
	Policy  *policy.Policy // the one the exchange began with (R31)
	Plan    policy.Plan
	Arrived uint64       // its place in the table's order of arrivals and departures (R3)
	Prior   *store.Entry // what it has found under the plan's key; nil: nothing
	Why     Why
	Look    bool // only look, and find out who fills: no lease is wanted
	Despite bool // a remembered failure does not stand in the way (R23)
	// Paused is how long the upstream was spared when it failed last; 0: nothing is remembered of that.
	Paused time.Duration
	Over   string // the token of a holder that is gone: the lease is taken from it
	// Awaited is the Leased of what a lease that the exchange waited for has brought; 0: it waited for none.
	// Later: that lease began after the exchange arrived (R3).
	// Past: what was leased after this was sent after the exchange arrived; 0: nothing is known of that.
	Awaited, Past uint64
	Later         bool
}

// Result is what a fill has brought, known when Head closes. It is not written to after that.
type Result struct {
	Status    int             // the upstream's own: a 304 or 206 may have made a 200
	Response  policy.Response // with the asker's head; Admission.Shared is everybody's
	Admission policy.Admission
	Length    int64          // of the body; -1: unknown
	Trailer   []string       // the names of the asker's trailers
	Fault     *policy.Fault  // the upstream failed; with a Response when it sent an error of its own
	Entry     *store.Entry   // a 304 confirmed this
	Outcome   *store.Outcome // another replica's fill ended so
	Gone      string         // with Outcome Lapsed: the token of a holder whose connection broke
	Late      bool           // with Outcome: the holder's fill was complete before it was asked for
	Err       error
}

// Interim is a 1xx answer on its way to the asker.
type Interim struct {
	Code   int
	Header http.Header
}

// Fill is one upstream fetch under way.
type Fill struct {
	ask    Ask          // as it was asked: others read it
	prior  *store.Entry // what the upstream is asked about; the machine's own
	table  *Table
	name   string          // in the table; "": it is not in there
	lease  *store.Lease    // nil: none (island mode, HEAD, alone)
	leased bool            // it began with one that the store has granted
	gone   <-chan struct{} // closes when that lease is revoked or runs out
	held   *store.Lease    // somebody else's: this fill only awaits its end
	up     *upstream.Upstream
	place  *upstream.Place // in its queue: that of the best who waits (R26)

	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  *time.Timer // fill_timeout
	sent   atomic.Uint64
	lost   atomic.Bool
	spool  *Spool
	asker  *Reader

	notes   []note // guarded by the table's lock
	interim chan Interim
	head    chan struct{}
	late    atomic.Bool
	heading sync.Once // of a relay: who comes first, the holder's head or the end of its lease
	done    chan struct{}
	result  Result

	trailer http.Header // complete when the spool has ended
	gap     bool        // the request asks for the bytes that a stored part lacks
	// conditional: the request asks whether its asker's own copy still holds; a 304 is his.
	conditional bool
	plain       bool // the request asks for a whole answer, whatever is stored (R28)
	slot        *upstream.Slot
	res         *http.Response
	endless     bool // a stream of events: no time limit
	ended       bool // the lease was committed or released
	report      Report
}

// Head closes when Result is known.
func (f *Fill) Head() <-chan struct{} { return f.head }

// Done closes when the fill is over: its lease has ended, and it is out of the table.
func (f *Fill) Done() <-chan struct{} { return f.done }

// Result is what the fill brought; not before Head closes.
func (f *Fill) Result() *Result { return &f.result }

// Interim brings the upstream's 1xx answers; they are the asker's.
func (f *Fill) Interim() <-chan Interim { return f.interim }

// Prior is what was stored when the fill began; nil: nothing.
func (f *Fill) Prior() *store.Entry { return f.ask.Prior }

// Leased is when its lease was taken, by the store's time; 0: it has none.
func (f *Fill) Leased() uint64 {
	switch {
	case f.held != nil:
		return f.held.Taken
	case f.leased:
		return f.lease.Taken
	}
	return 0
}

// Remote reports a fill that another replica runs.
func (f *Fill) Remote() bool { return f.held != nil }

// Order tells an exchange that arrived then how it stands to the fill (R3).
func (f *Fill) Order(arrived uint64) policy.Order {
	return policy.Order{Later: f.sent.Load() > arrived, Confirmed: f.result.Entry != nil}
}

// Board joins the body from its first byte; ok is false when that is gone. Whoever boards closes the reader. The class is
// that of who boards: a fill that nobody waited for is somebody's now (R26).
func (f *Fill) Board(class policy.Class) (r *Reader, ok bool) {
	f.place.Raise(class)
	return f.spool.Join()
}

// Method is what the upstream is asked by: a HEAD may be answered by a GET, but not the other way round.
func (f *Fill) Method() string { return f.ask.Plan.Request.Method }

// Complete reports a body that is all here: who comes now did not wait for it, and finds it stored in a moment.
func (f *Fill) Complete() bool { return f.held == nil && f.spool.Complete() }

// Range is the range that a Part was asked for, as RangeOf has it; "" for every other fill.
func (f *Fill) Range() string {
	if f.ask.Why != Part {
		return ""
	}
	return RangeOf(f.ask.Plan.Request.Header)
}

// RangeOf is what a request asks for in part, and on which condition; "": the whole.
func RangeOf(h http.Header) string {
	if len(h["Range"]) == 0 {
		return ""
	}
	return strings.Join(h["Range"], ",") + "\n" + strings.Join(h["If-Range"], ",")
}

// Trailer is what followed the body; it is the asker's, and not to be read before the body's end.
func (f *Fill) Trailer() http.Header { return f.trailer }

// Whole reports whether the body can still be stored.
func (f *Fill) Whole() bool { return f.spool.Whole() }

// step is a state of the fill machine: it acts, and returns what comes next; nil: the end.
type step func(*Fill) step

func (f *Fill) run() {
	defer f.over()
	first := step(enter)
	if f.held != nil {
		first = relay
	}
	if f.lease != nil {
		f.table.running.Go(f.renew)
	}
	for s := first; s != nil; {
		s = s(f)
	}
}

// over ends the fill on every path: nobody waits for a fill that is gone, and no lease outlives its fill.
func (f *Fill) over() {
	if p := recover(); p != nil {
		f.report.Reason = policy.Panicked
		f.fail(fmt.Errorf("panic in a fill: %v\n%s", p, debug.Stack()), policy.Fault{Kind: policy.BrokenWait})
	}
	if !f.ended && f.lease != nil {
		f.release(store.Outcome{End: store.Lapsed})
	}
	if f.res != nil {
		f.res.Body.Close()
	}
	if f.slot != nil {
		f.slot.Leave()
	}
	f.spool.End(errLapsed)
	f.table.remove(f)
	f.table.forget(f)
	f.table.fetches.Add(-1)
	close(f.done)
	f.cancel(nil)
	f.limit.Stop()
	if !f.ask.Why.waited() && f.held == nil {
		f.table.refreshes.end()
	}
	f.report.Total = time.Since(f.report.Started)
	f.report.Bytes = f.spool.Size()
	f.table.options.Observe(f.report)
}

var errLapsed = errors.New("fill ended early")

// publish makes the result known. Nothing in it changes after this.
func (f *Fill) publish(r Result) {
	r.Status = f.report.Status
	f.spool.Announce(r.Length)
	if r.Admission.Keep > 0 && !f.spool.Whole() {
		r.Admission.Keep, r.Admission.Reason = 0, f.unkept()
		f.outgrown()
	}
	f.result = r
	close(f.head)
}

func (f *Fill) published() bool {
	select {
	case <-f.head:
		return true
	default:
		return false
	}
}

// fail ends a fill whose upstream gave no answer, or broke off in the body.
func (f *Fill) fail(err error, fault policy.Fault) step {
	f.report.Err = err
	if f.report.Reason == policy.None || !errors.Is(err, errDeserted) { // who is not to keep it and has no reader ends it
		f.report.Reason = policy.FaultReason(fault)
	}
	f.report.End = Failed
	if isOurs(fault) {
		f.report.End = Lapsed
	}
	f.spool.End(err)
	f.giveUp(fault)
	if !f.published() {
		f.publish(Result{Fault: &fault, Err: err})
	}
	return nil
}

// revoked reports whether the lease it began with is gone.
func (f *Fill) revoked() bool {
	select {
	case <-f.gone:
		return true
	default:
		return false
	}
}

// renew keeps the lease while the fill lives, whether it queues, waits for a head or reads (R14). When the lease is
// lost the fill leaves the table, so that later exchanges start afresh; those aboard are served, and commit refuses.
func (f *Fill) renew() {
	tick := time.NewTicker(leaseTTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-f.done:
			return
		case <-f.ctx.Done():
			return
		case <-f.gone:
		case <-tick.C:
			class, err := f.table.options.Store.Renew(f.ctx, *f.lease, leaseTTL)
			if err == nil {
				f.place.Raise(class) // somebody waits on another replica
			}
			if !errors.Is(err, store.ErrLost) {
				continue
			}
		}
		f.lost.Store(true)
		f.table.remove(f)
		return
	}
}
