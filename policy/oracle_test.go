package policy

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// The oracle: what becomes of an answer in time by RFC 9111, RFC 5861 and decision 9, told from what the answer says and
// what the route says, without a line of the code that decides it.

// says is what an answer says of time, in seconds; -1: it does not.
type says struct {
	status                                              int
	maxAge, sMaxAge, swr, sie                           int
	mustRevalidate, proxyRevalidate, noCache, immutable bool
	tagged                                              bool          // there is a validator
	guess                                               time.Duration // a tenth of the time since Last-Modified (RFC 9111 §4.2.2)
	age                                                 time.Duration // when it arrived
}

// fate is how long an answer is what, counted from its arrival.
type fate struct {
	kept      bool
	fresh     time.Duration // answers by itself
	well      time.Duration // answers while it is refreshed, of an upstream that is well
	sick      time.Duration // and of one that is sick
	rescue    time.Duration // answers in place of a failure
	forgotten time.Duration
	forbidden bool // nothing stale, by a word that the route heeds
}

// foretell is the rules.
func foretell(c Cache, s says, dice float64) fate {
	named := func(word string) bool { return slices.Contains(c.StaleDespite, word) }
	life, by := livesFor(c, s, dice)
	late := by == "answer" && life+s.age > 0 // if it has arrived stale, that is why
	noCache := s.noCache && by != "force"    // RFC 9111 §5.2.2.4; force_ttl forces it to live
	if noCache {
		life = -s.age
	}
	// RFC 9111 §5.2.2.2, §5.2.2.8 and §5.2.2.10, and what the route says to them.
	f := fate{forbidden: s.mustRevalidate && !named("must-revalidate") || s.proxyRevalidate && !named("proxy-revalidate") ||
		s.sMaxAge >= 0 && !named("s-maxage") || noCache && !named("no-cache")}
	var well, sick, rescue time.Duration
	if !f.forbidden {
		rescue = c.StaleIfError
	}
	_, negative := termOf(c, s.status)
	if !f.forbidden && s.status < 400 && !negative { // neither an error nor what is called one has grace (R27)
		well, sick = c.Grace.Well, max(c.Grace.Well, c.Grace.Sick)
	}
	// RFC 5861: what the answer says goes before what the route says; beside a word that forbids all stale it is void.
	strict := s.mustRevalidate || s.proxyRevalidate || noCache
	if s.swr >= 0 && !strict {
		well, sick = time.Duration(s.swr)*time.Second, time.Duration(s.swr)*time.Second
	}
	if s.sie >= 0 && !strict {
		rescue = time.Duration(s.sie) * time.Second
		if s.swr < 0 {
			sick = min(sick, max(well, rescue)) // a sick upstream is an error
		}
	}
	rescue = max(rescue, sick) // what may be served while it is refreshed may be served when that fails
	if s.status == 429 || s.status >= 500 {
		well, sick, rescue = 0, 0, 0
	}
	f.fresh, f.well, f.sick, f.rescue, f.forgotten = life, life+well, life+sick, life+rescue, max(0, life+rescue)
	validator := s.tagged && s.status < 300
	if validator {
		f.forgotten += c.Keep
	}
	switch {
	case noCache && !validator: // it cannot be asked about
	case s.status == 429 && !negative: // RFC 6585 §4
	case (s.status == 302 || s.status >= 500) && by == "nobody": // RFC 9110 §15.1
	default:
		f.kept = f.fresh > 0 || f.sick > 0 || f.rescue > 0 && (s.sie > 0 || late) || validator && f.forgotten > 0
	}
	return f
}

// livesFor counts from the arrival: force_ttl, else what the answer says (RFC 9111 §4.2.1), else negative, ttl or a guess;
// negative bounds them all, and jitter shortens what is ours.
func livesFor(c Cache, s says, dice float64) (life time.Duration, by string) {
	ours := func(d time.Duration) time.Duration { return time.Duration(float64(d) * (1 - float64(c.Jitter)*dice)) }
	negative, bounded := termOf(c, s.status)
	// Neither temporary redirects nor what is the upstream's or one request's fault (B138).
	regular := slices.Contains([]int{200, 203, 204, 206, 300, 301, 308, 404, 410}, s.status)
	switch {
	case c.ForceTTL > 0 && regular:
		life, by = ours(c.ForceTTL), "force"
	case s.sMaxAge >= 0:
		life, by = time.Duration(s.sMaxAge)*time.Second-s.age, "answer"
	case s.maxAge >= 0:
		life, by = time.Duration(s.maxAge)*time.Second-s.age, "answer"
	case bounded:
		life, by = ours(negative), "route"
	case regular && c.TTL > 0:
		life, by = ours(c.TTL), "route"
	case c.Heuristic && s.guess > 0:
		life, by = ours(s.guess)-s.age, "guess"
	default:
		life, by = -s.age, "nobody" // stale from the day it was made
	}
	if bounded {
		life = min(life, ours(negative))
	}
	return life, by
}

func termOf(c Cache, status int) (time.Duration, bool) {
	for _, n := range c.Negative {
		if slices.Contains(n.Status, status) {
			return n.TTL, true
		}
	}
	return 0, false
}

// answers is what a request is answered at an age, while the upstream is in that health: S served, R served and refreshed
// behind it, A the upstream is asked. A reload is a client's max-age=0, which only RFC 8246 answers from what is kept.
func (f fate) answers(age time.Duration, health Health, reload, immutable bool) string {
	grace := f.well
	if health == Sick {
		grace = f.sick
	}
	switch {
	case age < f.fresh && (!reload || immutable):
		return "S"
	case age < grace && !reload:
		return "R"
	}
	return "A"
}

// failures is every way in which an upstream fails, and what a client is told where no copy stands in: the upstream's own
// error, 502 for one that cannot be reached or understood, 504 for one that is too slow; of slow: it waits on.
var failures = []struct {
	Fault
	reason Reason
}{
	{Fault{Kind: Refused}, UpstreamRefused}, // DNS and TLS too
	{Fault{Kind: Reset}, UpstreamReset},
	{Fault{Kind: TimeoutBefore}, UpstreamTimeout},
	{Fault{Kind: TimeoutAfter}, UpstreamTimeout},
	{Fault{Kind: Truncated}, UpstreamTruncated},
	{Fault{Kind: Garbage}, UpstreamGarbage}, // a broken 304 too
	{Fault{Kind: Slow}, WaitTimeout},
	{Fault{Kind: BadStatus, Status: 429}, UpstreamStatus},
	{Fault{Kind: BadStatus, Status: 500}, UpstreamStatus},
	{Fault{Kind: BadStatus, Status: 502}, UpstreamStatus},
	{Fault{Kind: BadStatus, Status: 503}, UpstreamStatus},
	{Fault{Kind: BadStatus, Status: 504}, UpstreamStatus},
}

// told is what becomes of a request whose fetch has failed so: the copy, or the reason for an error.
func (f fate) told(age time.Duration, own Reason, s says) Reason {
	failure := s.status == 429 || s.status >= 500
	switch {
	case age < f.rescue && !failure:
		return StaleIfError
	case f.forbidden && !failure && own != UpstreamStatus:
		return StaleForbidden // 504, RFC 9111 §5.2.2.2
	}
	return own
}

// header is how an answer says it.
func (s says) header() http.Header {
	h := http.Header{}
	for _, d := range []struct {
		name string
		n    int
	}{{"max-age", s.maxAge}, {"s-maxage", s.sMaxAge}, {"stale-while-revalidate", s.swr}, {"stale-if-error", s.sie}} {
		if d.n >= 0 {
			h.Add("Cache-Control", fmt.Sprint(d.name, "=", d.n))
		}
	}
	for _, d := range []struct {
		name string
		on   bool
	}{{"must-revalidate", s.mustRevalidate}, {"proxy-revalidate", s.proxyRevalidate}, {"no-cache", s.noCache}, {"immutable", s.immutable}} {
		if d.on {
			h.Add("Cache-Control", d.name)
		}
	}
	if s.age > 0 {
		h.Set("Age", fmt.Sprint(s.age.Seconds()))
	}
	if s.tagged {
		h.Set("Etag", `"1"`)
	}
	return h
}

// odometer turns a number into a choice of each kind.
type odometer int

func (o *odometer) of(n int) int {
	x := int(*o) % n
	*o /= odometer(n)
	return x
}

func (o *odometer) seconds(n int) int { return o.of(2)*(n+1) - 1 }

func (o *odometer) whether() bool { return o.of(2) == 1 }

func (o *odometer) often(d time.Duration) time.Duration { return time.Duration(o.of(2)) * d }

// route is a combination of the route's keys.
func (o *odometer) route() Cache {
	c := Cache{
		TTL: o.often(50 * time.Second), ForceTTL: o.often(80 * time.Second), StaleIfError: o.often(2 * time.Minute),
		Keep: o.often(10 * time.Minute), Jitter: Percent(o.of(2)) / 5,
		Grace:        []Grace{{}, {Well: 30 * time.Second}, {Well: 30 * time.Second, Sick: 5 * time.Minute}}[o.of(3)],
		StaleDespite: [][]string{nil, {"must-revalidate"}, {"proxy-revalidate"}, {"s-maxage"}, {"no-cache"}, {"must-revalidate", "proxy-revalidate", "s-maxage", "no-cache"}}[o.of(6)],
	}
	if o.whether() {
		c.Negative = []Negative{{Status: []int{204, 404, 429, 500}, TTL: 20 * time.Second}}
	}
	return c
}

// answer is a combination of what an answer says.
func (o *odometer) answer() says {
	return says{
		status: []int{200, 204, 302, 404, 429, 500}[o.of(6)], maxAge: o.seconds(60), sMaxAge: o.seconds(70), swr: o.seconds(40), sie: o.seconds(100),
		mustRevalidate: o.whether(), proxyRevalidate: o.whether(), noCache: o.whether(), immutable: o.whether(), tagged: o.whether(),
		age: o.often(65 * time.Second),
	}
}

const (
	routesOfAll  = 2 * 2 * 2 * 2 * 2 * 3 * 6 * 2
	answersOfAll = 6 << 10
)

// Every combination of a route's keys, an answer's directives and its status, at each age where something changes and
// just before it, for each failure, is as the oracle says. One run takes one in so many of them, another each time; the
// number is a prime, so that each choice meets each other in every run.
func TestEveryCombination(t *testing.T) {
	const dice = 0.5
	rules := make([]*Policy, routesOfAll)
	caches := make([]Cache, routesOfAll)
	for i := range rules {
		o := odometer(i)
		caches[i] = o.route()
		rules[i], _ = onePage(t, func(r *Route) { r.Cache = caches[i] })
	}
	plain := scene{subjects: []subject{{words: []string{"GET", "/page"}}}}.request(t)
	reload := scene{subjects: []subject{{words: []string{"GET", "/page"}, header: http.Header{"Cache-Control": {"max-age=0"}}}}}.request(t)
	first := time.Now().UnixNano() % combined
	for n := int(first); n < routesOfAll*answersOfAll && !t.Failed(); n += combined {
		p, c, o := rules[n%routesOfAll], caches[n%routesOfAll], odometer(n/routesOfAll)
		s := o.answer()
		f, plan := foretell(c, s, dice), p.Plan(plain)
		adm := p.Admit(plan, nil, Response{Status: s.status, Header: s.header(), Asked: epoch(), Arrived: epoch()}, Moment{Now: epoch(), Dice: dice})
		wrong := func(format string, args ...any) {
			t.Errorf("combination %d: route %+v, answer %d %v: %s; the oracle: %+v", n, c, s.status, s.header(), fmt.Sprintf(format, args...), f)
		}
		if f.kept != (adm.Keep > 0) || f.kept && adm.Keep != f.forgotten {
			wrong("it is kept for %v (%v)", adm.Keep, adm.Reason)
		}
		if f.kept {
			held{p, plan, p.Plan(reload), &adm.Stored, s}.hold(f, wrong)
		}
	}
}

// held is an answer that is kept, and who asks for it.
type held struct {
	p             *Policy
	plain, reload Plan
	stored        *Stored
	says
}

func (h held) hold(f fate, wrong func(string, ...any)) {
	letter := map[Action]string{Serve: "S", ServeAndRefresh: "R", Fetch: "A", Validate: "A"}
	for _, edge := range []time.Duration{0, f.fresh, f.well, f.sick, f.rescue, f.forgotten} {
		for _, age := range []time.Duration{edge - time.Millisecond, edge} {
			if age < 0 || age >= f.forgotten {
				continue
			}
			at := Moment{Now: epoch().Add(age), Dice: 1}
			for _, at.Health = range []Health{Well, Sick} {
				if got, want := letter[h.p.Decide(h.plain, h.stored, at).Action], f.answers(age, at.Health, false, h.immutable); got != want {
					wrong("at %v, health %v: %s, not %s", age, at.Health, got, want)
				}
				if got, want := letter[h.p.Decide(h.reload, h.stored, at).Action], f.answers(age, at.Health, true, h.immutable); got != want {
					wrong("at %v, health %v, a reload: %s, not %s", age, at.Health, got, want)
				}
			}
			for _, fault := range failures {
				d := h.p.Rescue(h.plain, h.stored, fault.Fault, at)
				want := f.told(age, fault.reason, h.says)
				if want == StaleIfError && fault.Kind == Slow {
					want = SoftTimeout
				}
				if d.Reason != want || (d.Action == Serve) != (want == StaleIfError || want == SoftTimeout) {
					wrong("at %v, %v: %v, not %v", age, fault.reason, d.Reason, want)
				}
			}
		}
	}
}
