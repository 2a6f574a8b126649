package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/store"
)

const (
	// maxTurns is how often an exchange may look up. Turns that a purge ended do not count.
	maxTurns = 3
	// maxSigns is how many signposts one look-up follows: a page's, and one more when the first was replaced meanwhile.
	maxSigns = 3
)

// exchange is one client's request being answered. It belongs to one goroutine.
type exchange struct {
	h       *Handler
	policy  *policy.Policy // the one it began with (R31)
	w       *writer
	r       *http.Request
	arrived uint64
	plan    policy.Plan

	entry    *store.Entry // what is stored under the plan's key, as last seen
	decision policy.Decision
	turns    int
	awaited  awaited

	fill   *fill.Fill // joined
	mine   bool       // the fill was started for this exchange
	reader *fill.Reader
	fault  policy.Fault
	// despite: a remembered failure was no help, so the upstream is asked all the same (R23).
	despite bool
	paused  time.Duration // for which that failure spares it
	unasked bool          // a remembered failure is stood in for: nothing went upstream (RFC 9211 §2.1)
	over    string        // the token of a holder that is gone (R14)

	out      *http.Request // what a pass sends
	borrowed int64         // memory that the request's body takes

	report Report
}

// awaited is what an exchange knows of leases that it waited for: other replicas', but for past.
type awaited struct {
	taken uint64 // what the last one filled was leased then
	later bool   // that lease began after this exchange arrived: it had seen an earlier one end (R3)
	seen  bool
	past  uint64 // what was leased after this was sent after it arrived: a fill that it waited for tells
}

// state is a step of the exchange's machine. Run acts, and returns what comes next; nil: the end.
type state struct {
	name string
	run  func(*exchange) *state
}

func (x *exchange) run() {
	for s := receive(); s != nil; {
		x.report.States = append(x.report.States, s.name)
		s = s.run(x)
	}
}

// end closes the report on every path, a panic's included.
func (x *exchange) end() {
	p := recover()
	x.leave()
	x.h.table.GiveBack(x.borrowed)
	defer x.h.exchanges.Add(-1)
	x.report.Aborted = x.report.Aborted || p != nil
	if p != nil && p != http.ErrAbortHandler {
		x.report.Reason, x.report.Err = policy.Panicked, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		if !x.w.wrote {
			x.problem(policy.Panicked, 0)
			p = nil
		} else {
			p = http.ErrAbortHandler // the stack is in the report; the connection must not end cleanly
		}
	}
	if x.report.Aborted && !x.w.wrote && p == nil {
		p = http.ErrAbortHandler // who has closed but its own half still listens, and net/http would send it an empty 200
	}
	x.w.settle()
	x.report.Duration = time.Since(x.report.Time)
	x.h.observer.Exchange(x.report)
	if p != nil {
		x.w.cut()
		panic(p)
	}
}

// moment is now, and a throw of the dice, for a decision.
func (x *exchange) moment() policy.Moment {
	return policy.Moment{Now: time.Now(), Dice: rand.Float64(), Health: x.h.upstreams[x.plan.Route.Upstream].Health()}
}

// leave lets go of the fill.
func (x *exchange) leave() {
	if x.reader != nil {
		x.reader.Close()
	}
	x.fill, x.reader, x.mine = nil, nil, false
}

// gone reports whether the client has left.
func (x *exchange) gone() bool {
	if x.r.Context().Err() == nil {
		return false
	}
	x.report.Aborted, x.report.Err = true, context.Cause(x.r.Context())
	if x.report.Reason == policy.None {
		x.report.Reason = policy.ClientGone
	}
	return true
}
