package policy

import (
	"slices"
	"time"
)

// Action is what to do next.
type Action uint8

const (
	Pass            Action = iota // straight through, nothing looked up or stored
	Lookup                        // ask the store (of May: look again, under a key of one's own)
	Serve                         // answer from what is at hand
	ServeAndRefresh               // the same, and one refresh behind it
	Validate                      // ask upstream whether the stored answer still holds (of May: board the next fill)
	Fetch                         // ask upstream for a whole answer (of May: alone, joined by nobody)
	Refuse                        // answer with an error of ours: Reason.Status()
)

// String is the action's name in tables, logs and explanations.
func (a Action) String() string {
	switch a {
	case Pass:
		return "pass"
	case Lookup:
		return "lookup"
	case Serve:
		return "serve"
	case ServeAndRefresh:
		return "serve+refresh"
	case Validate:
		return "validate"
	case Fetch:
		return "fetch"
	}
	return "refuse"
}

// Health is what is known of the upstream.
type Health uint8

const (
	Well Health = iota
	Sick
	Frozen
)

// Moment is what a decision knows of the instant it is made in. Clock and dice are arguments.
type Moment struct {
	Now    time.Time
	Dice   float64 // in [0,1): early refresh, jitter
	Health Health
}

// Decision is policy's answer to a plan and what is stored.
type Decision struct {
	Action Action
	Reason Reason
	Age    time.Duration
	// Collapse is false behind a marker: the fetch is the exchange's own and nobody may join it.
	Collapse bool
}

// Order tells how a waiting exchange stands to the fill it waited for (R3).
type Order struct {
	Mine      bool // it is the fill's asker
	Later     bool // the fill was sent upstream after the exchange arrived
	Confirmed bool // the upstream answered 304
}

// Class says who waits for a fill, best first (R26).
type Class uint8

const (
	ClientWaits Class = iota
	ErrorWaits        // a client that could be answered stale if this fails
	StaleWaits        // nobody: a refresh of a stale answer
	EarlyWaits        // nobody: a refresh before expiry
	WarmWaits         // nobody: a warmer
)

// Decide answers what to do with what is stored under the plan's key; nil: nothing is. A signpost is no answer: Follow
// it first.
func (p *Policy) Decide(plan Plan, stored *Stored, at Moment) Decision {
	if stored == nil {
		return plan.upstream(Decision{Action: Fetch, Reason: plan.miss(), Collapse: true})
	}
	switch stored.Kind {
	case Signpost:
		panic("policy: Decide was given a signpost; Follow it, and look up again")
	case Marker:
		if stored.Marked[plan.kind()].After(at.Now) {
			return plan.upstream(Decision{Action: Fetch, Reason: KnownUncacheable})
		}
		return plan.upstream(Decision{Action: Fetch, Reason: plan.miss(), Collapse: true})
	}
	if !admits(stored.Audience, plan.Particular) {
		return plan.upstream(Decision{Action: Fetch, Reason: plan.refusedAsker()})
	}
	if !acceptable(plan.Request.Header, stored.Header["Content-Encoding"]) {
		return plan.upstream(Decision{Action: Fetch, Reason: Unacceptable, Collapse: true})
	}
	if stored.Kind == Part {
		return plan.part(stored, at)
	}
	return plan.decide(stored, at)
}

// decide is about an answer that the request may in principle be given.
func (p *Plan) decide(s *Stored, at Moment) Decision {
	d := Decision{Action: Serve, Reason: Fresh, Age: s.AgeAt(at.Now)}
	fresh, wanted := s.isFresh(at.Now), p.accepts(s, at.Now)
	switch {
	case fresh && wanted:
		if p.rule.refreshesEarly(s, at) {
			d.Action, d.Reason = ServeAndRefresh, EarlyRefresh
		}
		return d
	case wanted && p.isInGrace(s, at):
		d.Action, d.Reason = ServeAndRefresh, StaleRefresh
		return d
	case wanted && p.acceptsStale(s, at.Now):
		d.Reason = StaleAllowed
		return d
	case fresh:
		d.Reason = RequestDirective
	case s.Marked[p.kind()].After(at.Now):
		d.Action, d.Reason = Fetch, KnownUncacheable
		return p.upstream(d)
	default:
		d.Reason = StaleEntry
	}
	d.Action = Fetch
	if s.hasValidator() {
		d.Action = Validate
	}
	// What one who tells who he is must ask about himself, nobody can ask for him.
	d.Collapse = len(p.Particular) == 0 || !s.Alone && s.Lifetime() > 0
	return p.upstream(d)
}

// isInGrace: the window is for plain requests unless the response itself opened it (R1), and a client that names the
// age it takes does not take stale (RFC 9111 §5.2.1.1) unless it says so.
//
// RefreshUntil is the end of the longest window, that of a sick upstream; a well one ends ours sooner.
func (p *Plan) isInGrace(s *Stored, at Moment) bool {
	d := &p.directives
	if at.Health == Well && !s.RefreshStated && !at.Now.Before(s.FreshUntil.Add(p.rule.Cache.Grace.Well)) {
		return false
	}
	return s.RefreshUntil.After(at.Now) && (len(p.Particular) == 0 || s.RefreshStated && !p.isBoundBy(s)) &&
		(d.maxAge < 0 || d.anyStale || d.maxStale >= 0)
}

// isBoundBy: who answers a request with Authorization by the word of s-maxage conforms to it (RFC 9111 §3.5), and it is
// proxy-revalidate too (§5.2.2.10), whatever window stands beside it.
func (p *Plan) isBoundBy(s *Stored) bool {
	if !slices.Contains(p.Particular, "Authorization") {
		return false
	}
	d := p.rule.directives(s.Header)
	return d.SMaxAge >= 0 && !d.Public
}

// isFresh: no-cache is not, even where another replica's clock is ahead of ours.
func (s *Stored) isFresh(now time.Time) bool { return !s.Alone && s.FreshUntil.After(now) }

// upstream adds what the client's words say of a request that must go there: what is kept for nobody, or is asked on
// conditions of one's own, nobody waits for.
func (p *Plan) upstream(d Decision) Decision {
	if p.directives.onlyIfCached {
		return Decision{Action: Refuse, Reason: OnlyIfCached}
	}
	if p.HasPrecondition() {
		d.Action = Fetch
	}
	d.Collapse = d.Collapse && !p.directives.noStore && !p.HasPrecondition()
	return d
}

func (p *Plan) miss() Reason {
	if p.Vary != nil {
		return VaryMiss
	}
	return URIMiss
}

func (p *Plan) refusedAsker() Reason {
	if slices.Contains(p.Particular, "Authorization") {
		return Authorized
	}
	return ParticularAsker
}

// kind is the request's place in Stored.Marked.
func (p *Plan) kind() int { return min(len(p.Particular), 1) }

// refreshPause is how often a route that collapses clients' refreshes lets one through, for each key.
const refreshPause = time.Second

// accepts reports whether the client's directives and conditions let it be answered from this copy without asking, were
// it fresh (RFC 9111 §5.2.1).
func (p *Plan) accepts(s *Stored, now time.Time) bool {
	if !p.meets(s) {
		return false
	}
	d := &p.directives
	if d.noCache || d.maxAge == 0 {
		collapsed := p.Route.Cache.ClientDirectives == "collapse" && now.Sub(s.Arrived) < refreshPause
		if !collapsed && (d.noCache || !s.Immutable) {
			return false
		}
	}
	if d.maxAge > 0 && s.AgeAt(now) > duration(d.maxAge) {
		return false
	}
	return d.minFresh < 0 || s.FreshUntil.Sub(now) >= duration(d.minFresh)
}

// acceptsStale: max-stale (RFC 9111 §5.2.1.2) allows what the response does not forbid.
func (p *Plan) acceptsStale(s *Stored, now time.Time) bool {
	d := &p.directives
	return !s.NoStale && len(p.Particular) == 0 && (d.anyStale || d.maxStale >= 0 && now.Sub(s.FreshUntil) <= duration(d.maxStale))
}

// May answers whether a waiting exchange may use what a fill brought (R1, R2, R3). Serve: use it. Lookup: look up again, in
// the case of another variant under its own key (Parted). Validate: board the next fill. Fetch: go alone, at once.
func (p *Policy) May(plan Plan, brought Admission, order Order, at Moment) Decision {
	s := &brought.Stored
	d := Decision{Action: Serve, Reason: CollapsedAnswer, Age: s.AgeAt(at.Now)}
	if order.Confirmed {
		d.Reason = Validated
	}
	switch {
	case order.Mine:
		if !order.Confirmed {
			d.Reason = None
		}
		return d
	case brought.Private && brought.isAskersAlone() && len(plan.Particular) == 0:
		// It is refused to all for who had asked (R4): of an answer to those who do not tell who they are nothing is known.
		d.Action, d.Reason = Lookup, brought.Reason
		return d
	case brought.Private || s.Kind == Marker || s.Kind == Signpost:
		d.Action, d.Reason = Fetch, brought.Reason
		return d
	case s.Kind == Part && !s.covers(plan.Request):
		d.Action, d.Reason = Fetch, PartialMiss
		return d
	case !admits(s.Audience, plan.Particular):
		d.Action, d.Reason = Fetch, plan.refusedAsker()
		return d
	}
	if key, _ := p.VariantOf(plan, *s); key != brought.Key && brought.Key != (Key{}) {
		d.Action, d.Reason = Lookup, VaryMiss
		if brought.Keep <= 0 {
			d.Action = Fetch // there is no signpost to look for
		}
		return d
	}
	if !acceptable(plan.Request.Header, s.Header["Content-Encoding"]) {
		d.Action, d.Reason = Fetch, Unacceptable
		return d
	}
	return plan.shares(brought, order, d, at.Now)
}

// isAskersAlone: it is refused to all others since its asker told who he is, and for nothing else.
func (a *Admission) isAskersAlone() bool {
	return a.Particular && (a.Reason == ParticularAsker || a.Reason == Authorized)
}

// shares is R3 for an answer that is the exchange's to have: by departure, by ordinary reuse, or as plain stale.
func (p *Plan) shares(brought Admission, order Order, d Decision, now time.Time) Decision {
	s := &brought.Stored
	switch {
	case s.isFresh(now) && p.accepts(s, now):
		return d
	case len(p.Particular) > 0:
		// A fill asked by somebody else, as somebody else, is not the request of one who tells who he is.
		d.Action, d.Reason = Fetch, p.refusedAsker()
		return d
	case brought.Particular:
		// Nor is what was asked by one who tells who he is anybody else's.
		d.Action, d.Reason = Fetch, ParticularAsker
		return d
	case order.Later && (order.Confirmed || !s.Alone || p.Route.Cache.Collapse == "all"):
		return d
	case !s.NoStale && !s.Alone && p.accepts(s, now):
		return d
	case s.Alone && !order.Confirmed && brought.Changed && p.Route.Cache.Collapse != "all":
		// It changes faster than it can be asked about: the next fill's answer would be its asker's alone too.
		d.Action, d.Reason = Fetch, StaleEntry
		return d
	}
	d.Action, d.Reason = Validate, StaleEntry
	return d
}
