package policy

import (
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// update rewrites the tables with what the code answers; the diff is then to be read against the RFC.
var update = flag.Bool("update", false, "rewrite testdata/*.txt with what the code answers")

// readCache reads what a scene's route says of its cache.
func readCache(t *testing.T, r *Route, key, value string) bool {
	t.Helper()
	c := &r.Cache
	values := strings.Split(value, ",")
	switch key {
	case "ttl":
		c.TTL = length(t, value)
	case "force_ttl":
		c.ForceTTL = length(t, value)
	case "grace":
		c.Grace = grace(t, value)
	case "stale_if_error":
		c.StaleIfError = length(t, value)
	case "stale_despite":
		c.StaleDespite = values
	case "keep":
		c.Keep = length(t, value)
	case "uncacheable_for":
		c.UncacheableFor = length(t, value)
	case "jitter":
		c.Jitter = Percent(number64(t, value))
	case "heuristic":
		c.Heuristic = value == "true"
	case "early":
		c.EarlyRefresh = EarlyRule{Mode: value, Beta: 1, Exponent: 3}
	case "beta":
		c.EarlyRefresh.Beta = number64(t, value)
	case "negative": // 404:10s
		status, ttl, _ := strings.Cut(value, ":")
		c.Negative = append(c.Negative, Negative{[]int{int(number64(t, status))}, length(t, ttl)})
	case "set_cookie":
		c.SetCookie = value
	case "particular":
		c.Particular = values
	case "key.cookies":
		c.Key.Cookies = values
	case "query.only":
		c.Key.Query.Only = values
	case "query.sort":
		c.Key.Query.Sort = value == "true"
	case "tags":
		c.Tags.Header = values
	case "targeted":
		c.Targeted.Fields = values
	case "bypass.cookies":
		r.Bypass.Cookies = values
	case "bypass.headers":
		r.Bypass.Headers = values
	case "bypass.query":
		r.Bypass.Query = values
	default:
		return false
	}
	return true
}

// grace reads "30s", or "30s/1h": of a well upstream, and of a sick one.
func grace(t *testing.T, s string) Grace {
	t.Helper()
	well, sick, apart := strings.Cut(s, "/")
	g := Grace{Well: length(t, well)}
	if apart {
		g.Sick = length(t, sick)
	}
	return g
}

func length(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func number64(t *testing.T, s string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// word finds "key=value" among a subject's words.
func (x subject) word(key string) (string, bool) {
	for _, w := range x.words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (s scene) subject(name string) (subject, bool) {
	for _, x := range s.subjects {
		if x.words[0] == name {
			return x, true
		}
	}
	return subject{}, false
}

// moment is what the scene's "now +70s dice=0.5 sick" says; without one it is the epoch, and the dice fall high.
func (s scene) moment(t *testing.T) Moment {
	t.Helper()
	at := Moment{Now: epoch(), Dice: 0.999}
	x, ok := s.subject("now")
	if !ok {
		return at
	}
	if len(x.words) > 1 && strings.HasPrefix(x.words[1], "+") {
		at.Now = at.Now.Add(length(t, x.words[1]))
	}
	if v, ok := x.word("dice"); ok {
		at.Dice = number64(t, v)
	}
	if x.words[len(x.words)-1] == "sick" {
		at.Health = Sick
	}
	return at
}

// answer is an upstream's answer of the scene, arrived at the epoch: "upstream 200 took=2s close-delimited".
// A field whose value is @+60s is that date, and @Y+60s (RFC 850) or @A+60s (asctime) the same in the old forms.
func answer(t *testing.T, x subject) Response {
	t.Helper()
	res := Response{Status: int(number64(t, x.words[1])), Header: http.Header{}, Asked: epoch(), Arrived: epoch()}
	if v, ok := x.word("took"); ok {
		res.Asked = res.Arrived.Add(-length(t, v))
	}
	res.CloseDelimited = x.words[len(x.words)-1] == "close-delimited"
	for name, lines := range x.header {
		for _, line := range lines {
			res.Header.Add(name, dated(t, line))
		}
	}
	return res
}

func dated(t *testing.T, value string) string {
	t.Helper()
	form := http.TimeFormat
	after, ok := strings.CutPrefix(value, "@")
	switch {
	case !ok:
		return value
	case strings.HasPrefix(after, "Y"):
		after, form = after[1:], "Monday, 02-Jan-06 15:04:05 GMT"
	case strings.HasPrefix(after, "A"):
		after, form = after[1:], time.ANSIC
	}
	return epoch().Add(length(t, after)).Format(form)
}

// asker is the request that brought what is stored or sent: "asked GET /page", else a plain GET of the same URL.
func (s scene) asker(t *testing.T) Request {
	t.Helper()
	if x, ok := s.subject("asked"); ok {
		return scene{line: s.line, subjects: []subject{{x.words[1:], x.header}}}.request(t)
	}
	req := s.request(t)
	req.Method, req.Header = http.MethodGet, http.Header{}
	return req
}

// kept is what Admit made of the scene's "stored 200"; nil when nothing is stored.
func (s scene) kept(t *testing.T, p *Policy) *Stored {
	t.Helper()
	x, ok := s.subject("stored")
	if !ok {
		return nil
	}
	switch x.words[1] {
	case "marker":
		until := epoch().Add(2 * time.Minute)
		m := &Stored{Kind: Marker, Why: NoStore}
		m.Arrived, m.FreshUntil = epoch(), epoch()
		m.Marked[map[string]int{"plain": 0, "particular": 1}[x.words[2]]] = until
		return m
	}
	adm := p.Admit(p.Plan(s.asker(t)), nil, answer(t, x), Moment{Now: epoch()})
	stored := adm.Stored
	if v, ok := x.word("marked"); ok {
		stored.Marked[map[string]int{"plain": 0, "particular": 1}[v]] = epoch().Add(2 * time.Minute)
	}
	return &stored
}

func (d Decision) text() string {
	out := []string{d.Action.String(), d.Reason.String()}
	if d.Age != 0 {
		out = append(out, "age="+d.Age.String())
	}
	if (d.Action == Fetch || d.Action == Validate) && !d.Collapse {
		out = append(out, "alone")
	}
	return strings.Join(out, " ")
}

// TestDecide holds the table of what is done with what is stored.
func TestDecide(t *testing.T) {
	eachScene(t, "decide.txt", func(t *testing.T, s scene) string {
		p := s.policy(t)
		return p.Decide(p.Plan(s.request(t)), s.kept(t, p), s.moment(t)).text()
	})
}

// TestRescue holds the table of what stands in for a failed upstream: "fault refused" or "fault 503".
func TestRescue(t *testing.T) {
	kinds := map[string]FaultKind{
		"refused": Refused, "reset": Reset, "timeout-before": TimeoutBefore, "timeout-after": TimeoutAfter,
		"truncated": Truncated, "garbage": Garbage, "busy": Busy, "broken-wait": BrokenWait, "spared": Spared,
	}
	eachScene(t, "rescue.txt", func(t *testing.T, s scene) string {
		p := s.policy(t)
		x, _ := s.subject("fault")
		f := Fault{Kind: kinds[x.words[1]]}
		if f.Kind == 0 {
			f = Fault{Kind: BadStatus, Status: int(number64(t, x.words[1]))}
		}
		d := p.Rescue(p.Plan(s.request(t)), s.kept(t, p), f, s.moment(t))
		if d.Action == Refuse {
			return fmt.Sprint(d.text(), " ", d.Reason.Status())
		}
		return d.text()
	})
}

// TestMay holds the table of who may use what a fill brought: "joined later", "joined meanwhile", "joined mine", and
// "confirmed" after it when the upstream said 304. The joiner is the request, "asked" who began the fill.
func TestMay(t *testing.T) {
	eachScene(t, "may.txt", func(t *testing.T, s scene) string {
		p := s.policy(t)
		up, _ := s.subject("upstream")
		asker := p.Plan(s.asker(t))
		adm := p.Admit(asker, s.kept(t, p), answer(t, up), Moment{Now: epoch()})
		x, _ := s.subject("joined")
		order := Order{Later: x.words[1] == "later", Mine: x.words[1] == "mine", Confirmed: x.words[len(x.words)-1] == "confirmed"}
		d := p.May(p.Plan(s.request(t)), adm, order, s.moment(t))
		d.Collapse, d.Age = true, 0
		return d.text()
	})
}

// TestAdmit holds the table of what is kept. The request is the one that brought it.
func TestAdmit(t *testing.T) {
	eachScene(t, "admit.txt", func(t *testing.T, s scene) string {
		p := s.policy(t)
		up, _ := s.subject("upstream")
		at := s.moment(t)
		if at.Dice == 0.999 {
			at.Dice = 0
		}
		return p.Admit(p.Plan(s.request(t)), s.kept(t, p), answer(t, up), at).text()
	})
}

func (a Admission) text() string {
	s := &a.Stored
	if a.Reason != None {
		out := "unstored " + a.Reason.String()
		if a.Outdates {
			out += " outdates"
		}
		if a.Private {
			out += " private"
		}
		if a.Mark > 0 {
			out += " mark=" + a.Mark.String()
		}
		return out
	}
	out := fmt.Sprintf("stored fresh=%s", s.Lifetime())
	if d := s.RefreshUntil.Sub(s.FreshUntil); d != 0 {
		out += " refresh=+" + d.String()
	}
	if d := s.RescueUntil.Sub(s.FreshUntil); d != 0 {
		out += " rescue=+" + d.String()
	}
	out += " keep=" + a.Keep.String()
	if s.Age != 0 {
		out += " age=" + s.Age.String()
	}
	out += " for=" + [...]string{"plain", "not-authorized", "everyone"}[s.Audience]
	for _, f := range []struct {
		on   bool
		name string
	}{{s.Alone, "alone"}, {s.NoStale, "no-stale"}, {s.Immutable, "immutable"}} {
		if f.on {
			out += " " + f.name
		}
	}
	if s.Kind == Part {
		out += fmt.Sprintf(" part=%d-%d/%d", s.Span.Start, s.Span.End, s.Total)
	}
	if len(s.Vary) > 0 {
		out += " vary=" + strings.Join(s.Vary, ",")
	}
	if len(s.Tags) > 0 {
		out += " tags=" + strings.Join(s.Tags, ",")
	}
	return out
}

// TestPlan holds the table of what a request alone decides.
func TestPlan(t *testing.T) {
	eachScene(t, "plan.txt", func(t *testing.T, s scene) string {
		req := s.request(t)
		req.HasBody = req.Header.Get("Content-Length") != ""
		plan := s.policy(t).Plan(req)
		out := plan.Action.String()
		if plan.Reason != None {
			out += " " + plan.Reason.String()
		}
		if plan.Action == Refuse {
			return fmt.Sprint(out, " ", plan.Reason.Status())
		}
		out += " " + plan.Route.Name
		if plan.Action == Lookup {
			out += " " + plan.Key.Primary
			if plan.Key.Variant != "" {
				out += " keyed"
			}
		}
		if len(plan.Particular) > 0 {
			out += " particular=" + strings.Join(plan.Particular, ",")
		}
		return out
	})
}
