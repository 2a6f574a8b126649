package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// The model of RFC 9111: what may be reused, told without a line of the code that decides it. It knows each answer by
// the number of the upstream request that brought it, and times in whole seconds.

// said is what an answer says; -1: it does not.
type said struct {
	maxAge, sMaxAge, expires, swr, sie, age, modified                          int
	noStore, private, noCache, mustRevalidate, proxyRevalidate, public, tagged bool
	vary                                                                       []string
	status                                                                     int
}

// asked is what a request says; -1: it does not.
type asked struct {
	path                   string
	a, b                   string // X-A and X-B; "": not sent
	auth, cookie           bool
	young, minFresh, stale int // stale -2: max-stale without a number
	reload, secret, oic    bool
	sick                   bool // the upstream is, then
}

// known is an answer as the model remembers it.
type known struct {
	said
	asked       // who brought it
	arrived int // its last confirmation counts
	void    bool
}

func (k known) ageAt(now int) int { return max(k.age, 0) + now - k.arrived }

// lifetime is in tenths of a second: a guess is a tenth of the time since the last modification.
func (k known) lifetime() (tenths int, stated bool) {
	switch {
	case k.sMaxAge >= 0:
		return 10 * k.sMaxAge, true
	case k.maxAge >= 0:
		return 10 * k.maxAge, true
	case k.expires >= 0:
		return 10 * k.expires, true
	case k.modified >= 0 && (k.public || slices.Contains([]int{200, 404, 301}, k.status)):
		return k.modified, false
	}
	return 0, false
}

// The route's own figures, in seconds.
const (
	modelGrace  = 15
	modelSick   = 25 // grace of a sick upstream
	modelRescue = 40 // stale_if_error
)

// window is how long past its lifetime an answer may be reused while it is refreshed; -1: not at all.
func (k known) window(r asked) int {
	switch {
	case k.swr >= 0:
		return k.swr
	case k.sMaxAge >= 0 || k.auth || k.cookie || r.auth || r.cookie || k.status >= 400:
		return -1
	case !r.sick:
		return modelGrace
	case k.sie >= 0:
		return max(modelGrace, min(modelSick, k.sie))
	}
	return modelSick
}

// wrong says why an answer may not be given to a request without asking upstream (RFC 9111 §4); "": it may. failing: the
// upstream has been asked, and has failed.
func (k known) wrong(r asked, now int, failing string) string {
	lifetime, stated := k.lifetime()
	staleBy := 10*k.ageAt(now) - lifetime // tenths, too
	strict := k.mustRevalidate || k.proxyRevalidate || k.noCache
	switch {
	case k.path != r.path:
		return "another page's"
	case k.noStore || k.private || k.secret:
		return "not to be stored"
	case slices.Contains(k.vary, "*"), slices.Contains(k.vary, "X-A") && k.a != r.a, slices.Contains(k.vary, "X-B") && k.b != r.b:
		return "another variant"
	case (k.auth || r.auth) && !k.public && k.sMaxAge < 0 && !k.mustRevalidate:
		return "to or from Authorization (§3.5)"
	case (k.auth || r.auth || k.cookie || r.cookie) && !stated && !k.noCache:
		return "to or from one who tells who he is, by a guess (R1)"
	case failing != "":
		allowed := modelRescue
		if k.sMaxAge >= 0 || k.auth || k.cookie || r.auth || r.cookie {
			allowed = -1
		}
		if k.sie >= 0 {
			allowed = k.sie
		}
		r.sick = true // what may be served while it is refreshed may be served when that fails
		if allowed = max(allowed, k.window(r)); staleBy >= 0 && (strict || staleBy >= 10*allowed) || k.void {
			return fmt.Sprintf("stale by %d.%d s, and may stand in for %d s", staleBy/10, staleBy%10, allowed)
		}
		return ""
	case k.void:
		return "made void by a write (§4.4)"
	case k.noCache:
		return "to be asked about each time"
	case r.reload, r.young == 0, r.young > 0 && k.ageAt(now) > r.young:
		return "older than the client wants"
	case r.minFresh >= 0 && -staleBy < 10*r.minFresh:
		return "not fresh for long enough"
	case staleBy < 0:
		return ""
	case strict:
		return "stale, which it forbids"
	case staleBy < 10*k.window(r) && (r.young < 0 || r.stale != -1):
		return ""
	case k.sMaxAge < 0 && (r.stale == -2 || 10*r.stale >= staleBy) && !r.auth && !r.cookie:
		return ""
	}
	return fmt.Sprintf("stale by %d.%d s", staleBy/10, staleBy%10)
}

// history is a run of requests against a cache that policy alone decides for.
type history struct {
	*rand.Rand
	p      *Policy
	now    int
	health Health
	store  map[Key]*Stored
	model  []known
	served int
	wrong  []string // what the model does not allow
	told   func(format string, args ...any)
}

func (h *history) maybe(n, most int) int {
	if h.IntN(n) > 0 {
		return -1
	}
	return h.IntN(most)
}

// tell writes down what happens, when somebody wants to know: it takes longer than all the rest.
func (h *history) tell(format string, args ...any) {
	if h.told != nil {
		h.told(format, args...)
	}
}

func (h *history) seldom() bool { return h.IntN(8) == 0 }

func (h *history) say() (said, http.Header) {
	s := said{
		maxAge: h.maybe(2, 60), sMaxAge: h.maybe(5, 60), expires: h.maybe(4, 60), swr: h.maybe(4, 30), sie: h.maybe(5, 60),
		age: h.maybe(4, 30), modified: h.maybe(3, 400), noStore: h.seldom(), private: h.seldom(), noCache: h.seldom(),
		mustRevalidate: h.seldom(), proxyRevalidate: h.seldom(), public: h.seldom(), tagged: h.IntN(2) == 0,
		status: []int{200, 200, 200, 404, 301, 302}[h.IntN(6)],
	}
	s.vary = [][]string{nil, nil, nil, {"X-A"}, {"X-A", "X-B"}, {"X-B"}, {"*"}}[h.IntN(7)]
	return s, s.header(h)
}

func (s said) header(h *history) http.Header {
	out := http.Header{}
	for name, n := range map[string]int{"max-age": s.maxAge, "s-maxage": s.sMaxAge, "stale-while-revalidate": s.swr, "stale-if-error": s.sie} {
		if n >= 0 {
			out.Add("Cache-Control", fmt.Sprint(name, "=", n))
		}
	}
	for name, on := range map[string]bool{
		"no-store": s.noStore, "private": s.private, "no-cache": s.noCache, "must-revalidate": s.mustRevalidate,
		"proxy-revalidate": s.proxyRevalidate, "public": s.public,
	} {
		if on {
			out.Add("Cache-Control", name)
		}
	}
	date := func(ago int) string { return h.at(h.now - ago).Format(http.TimeFormat) }
	if s.expires >= 0 {
		out.Set("Expires", date(-s.expires))
	}
	if s.age >= 0 {
		out.Set("Age", fmt.Sprint(s.age))
	}
	if s.modified >= 0 {
		out.Set("Last-Modified", date(s.modified))
	}
	if s.tagged {
		out.Set("Etag", fmt.Sprintf(`"%d"`, len(h.model)))
	}
	for _, name := range s.vary {
		out.Add("Vary", name)
	}
	return out
}

func (h *history) ask() (asked, http.Header) {
	r := asked{
		path: []string{"/x", "/y"}[h.IntN(2)], a: []string{"", "1", "2"}[h.IntN(3)], b: []string{"", "1"}[h.IntN(2)],
		auth: h.seldom(), cookie: h.seldom(), young: h.maybe(8, 40), minFresh: h.maybe(8, 20), stale: h.maybe(8, 40),
		reload: h.seldom(), secret: h.seldom(), oic: h.seldom(), sick: h.seldom(),
	}
	if r.stale == 0 {
		r.stale = -2
	}
	out := http.Header{}
	for name, value := range map[string]string{"X-A": r.a, "X-B": r.b} {
		if value != "" {
			out.Set(name, value)
		}
	}
	for name, on := range map[string]bool{"Authorization": r.auth, "Cookie": r.cookie} {
		if on {
			out.Set(name, "k=v")
		}
	}
	for word, on := range map[string]bool{
		"no-cache": r.reload, "no-store": r.secret, "only-if-cached": r.oic, fmt.Sprint("max-age=", r.young): r.young >= 0,
		fmt.Sprint("min-fresh=", r.minFresh): r.minFresh >= 0, fmt.Sprint("max-stale=", r.stale): r.stale >= 0, "max-stale": r.stale == -2,
	} {
		if on {
			out.Add("Cache-Control", word)
		}
	}
	return r, out
}

func (h *history) at(second int) time.Time { return epoch().Add(time.Duration(second) * time.Second) }

func (h *history) moment() Moment {
	return Moment{Now: h.at(h.now), Dice: h.Float64(), Health: h.health}
}

// serve checks one reuse against the model. The answer's number stands in a field of its own.
func (h *history) serve(r asked, s *Stored, failing string) {
	var n int
	_, _ = fmt.Sscan(s.Header.Get("Number"), &n)
	h.served++
	k := h.model[n]
	if why := k.wrong(r, h.now, failing); why != "" {
		h.wrong = append(h.wrong, fmt.Sprintf("at %d s answer %d is reused%s: %s", h.now, n, failing, why))
	}
	if age := int(s.AgeAt(h.at(h.now)) / time.Second); age != k.ageAt(h.now) {
		h.wrong = append(h.wrong, fmt.Sprintf("at %d s answer %d is %d s old, not %d", h.now, n, k.ageAt(h.now), age))
	}
}

// step is one request: what is stored, what policy makes of it, and what that does to the store.
func (h *history) step() {
	h.now += h.IntN(20)
	r, header := h.ask()
	if h.health = Well; r.sick {
		h.health = Sick
	}
	req := Request{Method: "GET", Scheme: "http", Host: "a.test", URL: &url.URL{Path: r.path}, Header: header}
	h.tell("%d s: GET %s %v", h.now, r.path, header)
	if h.seldom() {
		req.Method = "POST"
		h.write(req, r)
		return
	}
	plan := h.p.Plan(req)
	stored := h.store[plan.Key]
	if stored != nil && stored.Kind == Signpost {
		plan = h.p.Follow(plan, *stored)
		stored = h.store[plan.Key]
	}
	d := h.p.Decide(plan, stored, h.moment())
	h.tell("  %s", d.text())
	switch d.Action {
	case Serve, ServeAndRefresh:
		h.serve(r, stored, "")
		if d.Action == ServeAndRefresh {
			h.fetch(plan, stored, r)
		}
	case Fetch, Validate:
		if !d.Collapse {
			stored = nil
		}
		h.fetch(plan, stored, r)
	}
}

// write is what a POST that succeeds makes void.
func (h *history) write(req Request, r asked) {
	for _, sel := range h.p.Invalidates(h.p.Plan(req), Response{Status: 204, Header: http.Header{}}) {
		for key, s := range h.store {
			if key.Primary == sel.Page && s.Kind == Answer {
				old := *s
				old.NoStale = true
				for _, until := range []*time.Time{&old.FreshUntil, &old.RefreshUntil, &old.RescueUntil} {
					if until.After(h.at(h.now)) {
						*until = h.at(h.now)
					}
				}
				h.store[key] = &old
			}
		}
	}
	for i := range h.model {
		h.model[i].void = h.model[i].void || h.model[i].path == r.path
	}
}

// fetch asks the scripted upstream: it fails, confirms what it was asked about, or answers anew.
func (h *history) fetch(plan Plan, prior *Stored, r asked) {
	plan.Request.Method = "GET"
	if h.seldom() {
		f := Fault{Kind: Refused}
		if d := h.p.Rescue(plan, prior, f, h.moment()); d.Action == Serve {
			h.serve(r, prior, " for a failed upstream")
		}
		h.tell("  the upstream fails")
		return
	}
	if prior != nil && prior.Kind == Answer && len(Validators(*prior)) > 0 && h.IntN(2) == 0 {
		h.confirm(plan, *prior, r)
		return
	}
	s, header := h.say()
	n := len(h.model)
	header.Set("Number", fmt.Sprint(n))
	h.model = append(h.model, known{said: s, asked: r, arrived: h.now})
	h.tell("  answer %d: %d %v", n, s.status, header)
	adm := h.p.Admit(plan, prior, Response{Status: s.status, Header: header, Asked: h.at(h.now), Arrived: h.at(h.now)}, h.moment())
	h.keep(plan, adm)
}

// confirm is a 304, which may bring a new lifetime. Where it brings a ban the answer stays what it was, and is asked for.
func (h *history) confirm(plan Plan, prior Stored, r asked) {
	var n int
	_, _ = fmt.Sscan(prior.Header.Get("Number"), &n)
	k := h.model[n]
	news := http.Header{}
	k.age, k.arrived, k.void = -1, h.now, false
	k.auth, k.cookie, k.secret = r.auth, r.cookie, r.secret
	if h.IntN(2) == 0 {
		s, _ := h.say()
		k.maxAge, k.sMaxAge, k.swr, k.sie, k.public = s.maxAge, s.sMaxAge, s.swr, s.sie, s.public
		k.noStore, k.private, k.noCache, k.mustRevalidate, k.proxyRevalidate = s.noStore, s.private, s.noCache, s.mustRevalidate, s.proxyRevalidate
		news["Cache-Control"] = append(k.said.header(h)["Cache-Control"], "x")
	}
	if k.expires >= 0 {
		k.expires = h.IntN(60)
		news.Set("Expires", h.at(h.now+k.expires).Format(http.TimeFormat))
	}
	if k.modified >= 0 {
		k.modified = int(h.at(h.now).Sub(mustDate(prior.Header.Get("Last-Modified"))) / time.Second)
	}
	h.tell("  answer %d is confirmed: %v", n, news)
	adm := h.p.Freshen(plan, prior, Response{Status: 304, Header: news, Asked: h.at(h.now), Arrived: h.at(h.now)}, h.moment())
	if adm.Keep > 0 {
		h.model[n] = k
	}
	h.keep(plan, adm)
}

func mustDate(s string) time.Time {
	t, err := http.ParseTime(s)
	if err != nil {
		panic(err)
	}
	return t
}

// keep is what a commit does.
func (h *history) keep(plan Plan, adm Admission) {
	if adm.Keep <= 0 {
		h.tell("  %s", adm.text())
		return
	}
	key, line := h.p.VariantOf(plan, adm.Stored)
	h.store[key] = &adm.Stored
	if line != nil {
		var sign Stored
		if old := h.store[plan.Page]; old != nil {
			sign = *old
		}
		sign = AddVariant(sign, *line)
		h.store[plan.Page] = &sign
	}
}

// Of random histories of requests, answers, confirmations, failures and writes, none sees an answer reused that the
// model does not allow.
func TestNoHistorySeesAWrongReuse(t *testing.T) {
	p, err := New(Config{Upstreams: []string{"api"}, Routes: []Route{{Name: "all", Upstream: "api", Cache: Cache{
		Heuristic: true, StaleIfError: modelRescue * time.Second, Grace: Grace{modelGrace * time.Second, modelSick * time.Second}, Keep: time.Hour, SetCookie: "refuse",
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	seed, served := rand.Uint64(), 0
	run := func(i uint64, told func(string, ...any)) *history {
		h := &history{Rand: rand.New(rand.NewPCG(seed, i)), p: p, store: map[Key]*Stored{}, told: told}
		for range 6 {
			h.step()
		}
		return h
	}
	for i := range uint64(modelled) {
		h := run(i, nil)
		if served += h.served; h.wrong != nil {
			run(i, t.Logf)
			t.Fatalf("seed %d, history %d: %s", seed, i, strings.Join(h.wrong, "; "))
		}
	}
	if served < modelled/5 {
		t.Errorf("in %d histories only %d reuses were seen: too few to tell", modelled, served)
	}
}
