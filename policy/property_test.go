package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

// world makes random histories: a route, an answer, a request and a later moment, out of the words that matter.
type world struct{ *rand.Rand }

func (w world) of(words ...string) string { return words[w.IntN(len(words))] }

func (w world) seconds() time.Duration { return time.Duration(w.IntN(100)) * time.Second }

func (w world) route(r *Route) {
	c := &r.Cache
	c.TTL, c.StaleIfError, c.Keep = w.seconds(), w.seconds(), w.seconds()
	c.Grace = Grace{Well: w.seconds()}
	c.Grace.Sick = c.Grace.Well + w.seconds()
	c.TTL *= time.Duration(w.IntN(2))
	c.Heuristic = w.IntN(2) == 0
	if w.IntN(4) == 0 {
		c.ForceTTL = w.seconds()
	}
	if w.IntN(4) == 0 {
		c.Negative = []Negative{{Status: []int{204, 404, 503}, TTL: w.seconds() + time.Second}}
	}
	if w.IntN(4) == 0 {
		c.StaleDespite = []string{w.of("must-revalidate", "proxy-revalidate"), w.of("s-maxage", "no-cache")}
	}
	c.Jitter = Percent(w.Float64())
	c.EarlyRefresh = EarlyRule{Mode: w.of("", "xfetch", "power"), Beta: 1, Exponent: 3}
	c.UncacheableFor = time.Minute
	if c.SetCookie = w.of("refuse", "strip", "keep"); c.SetCookie == "keep" {
		c.ForceTTL = 0
	}
	c.ClientDirectives = w.of("honour", "collapse", "ignore")
}

func (w world) answer() Response {
	h := http.Header{}
	for range w.IntN(5) {
		h.Add("Cache-Control", w.of("public", "private", "no-store", "no-cache", "must-revalidate", "proxy-revalidate", "immutable",
			fmt.Sprint("max-age=", w.IntN(100)), fmt.Sprint("s-maxage=", w.IntN(100)), fmt.Sprint("stale-if-error=", w.IntN(100)),
			fmt.Sprint("stale-while-revalidate=", w.IntN(100)), "max-age=x", `no-cache="X-A"`, "must-understand"))
	}
	for name, value := range map[string]string{
		"Etag": `"a"`, "Age": fmt.Sprint(w.IntN(100)), "Set-Cookie": "a=b", "Vary": w.of("*", "Foo", "Accept-Encoding"),
		"Content-Encoding": "gzip", "Last-Modified": epoch().Add(-10 * w.seconds()).Format(http.TimeFormat),
		"Expires": epoch().Add(w.seconds() - 30*time.Second).Format(http.TimeFormat), "Date": epoch().Add(w.seconds() - 50*time.Second).Format(http.TimeFormat),
	} {
		if w.IntN(3) == 0 {
			h.Set(name, value)
		}
	}
	status := []int{200, 200, 200, 204, 206, 301, 302, 404, 410, 500, 503}[w.IntN(11)]
	return Response{Status: status, Header: h, Asked: epoch().Add(-w.seconds() / 20), Arrived: epoch()}
}

func (w world) header() http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"Cookie": "sid=1", "Authorization": "Bearer A", "X-Api-Key": "k", "Foo": w.of("1", "2"), "Accept-Encoding": w.of("gzip", "identity"),
		"Cache-Control": w.of("no-cache", "no-store", "max-age=10", "max-stale", "max-stale=20", "min-fresh=5", "only-if-cached", "stale-if-error=30"),
	} {
		if w.IntN(4) == 0 {
			h.Set(name, value)
		}
	}
	return h
}

func (w world) moment() Moment {
	return Moment{Now: epoch().Add(time.Duration(w.Int64N(int64(300 * time.Second)))), Dice: w.Float64(), Health: Health(w.IntN(2))}
}

const histories = 5_000

// eachHistory admits a random answer and hands out all there is to know of what follows.
func eachHistory(t *testing.T, check func(w world, p *Policy, asker, later Plan, res Response, adm Admission)) {
	t.Helper()
	seed := rand.Uint64()
	w := world{rand.New(rand.NewPCG(seed, 1))}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for i := 0; i < histories && !t.Failed(); i++ {
		p, ask := onePage(t, w.route)
		asker, later, res := ask(w.header()), ask(w.header()), w.answer()
		adm := p.Admit(asker, nil, res, Moment{Now: epoch(), Dice: w.Float64()})
		check(w, p, asker, later, res, adm)
	}
}

// The moments are in order, and nothing outlives its keep.
func TestMomentsAreInOrder(t *testing.T) {
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		s := adm.Stored
		if s.RefreshUntil.Before(s.FreshUntil) || s.RescueUntil.Before(s.FreshUntil) {
			t.Errorf("%v: fresh %v, refresh %v, rescue %v", res, s.FreshUntil, s.RefreshUntil, s.RescueUntil)
		}
		if adm.Keep > 0 && (s.FreshUntil.Sub(s.Arrived) > adm.Keep || s.RefreshUntil.Sub(s.Arrived) > adm.Keep || s.RescueUntil.Sub(s.Arrived) > adm.Keep) {
			t.Errorf("%v: kept for %v only", res, adm.Keep)
		}
		if (adm.Keep > 0) != (adm.Reason == None) || adm.Keep > 0 && adm.Private || adm.Mark > 0 && adm.Keep > 0 {
			t.Errorf("%v: keep %v, reason %v, private %v, mark %v", res, adm.Keep, adm.Reason, adm.Private, adm.Mark)
		}
	})
}

// Whatever else is said, these are never kept.
func TestWhatForbidsStoringIsNeverStored(t *testing.T) {
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		d := parseResponse(res.Header)
		forbidden := d.NoStore && !d.mustUnderstand || d.barePrivate() || res.Header.Get("Vary") == "*" || res.Status == 206 || asker.directives.noStore
		if forbidden && (adm.Keep > 0 || !adm.Private) {
			t.Errorf("%v is kept for %v, private %v", res, adm.Keep, adm.Private)
		}
		if adm.Mark > 0 && res.Status >= 400 {
			t.Errorf("%v leaves a marker", res)
		}
	})
}

// No dice, directive or mode makes Decide serve what the response forbids.
func TestDecideNeverServesWhatIsForbidden(t *testing.T) {
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		if adm.Keep == 0 {
			return
		}
		s, at := adm.Stored, w.moment()
		d := p.Decide(later, &s, at)
		if d.Action != Serve && d.Action != ServeAndRefresh {
			return
		}
		stale := !s.FreshUntil.After(at.Now)
		switch {
		case stale && (s.Alone && s.NoStale || s.NoStale && !s.RefreshUntil.After(at.Now)):
			t.Errorf("stale is served though forbidden: %v %v", res, d)
		case stale && d.Reason != StaleAllowed && !s.RefreshUntil.After(at.Now):
			t.Errorf("stale is served past its window: %v %v", res, d)
		case len(later.Particular) > 0 && s.Audience == PlainOnly:
			t.Errorf("a plain copy for %v: %v %v", later.Particular, res, d)
		case later.Request.Header.Get("Authorization") != "" && s.Audience != Everyone:
			t.Errorf("a copy for Authorization: %v %v", res, d)
		case later.Request.Header.Get("Accept-Encoding") == "identity" && res.Header.Get("Content-Encoding") == "gzip":
			t.Errorf("gzip for who cannot read it: %v %v", res, d)
		}
	})
}

// More age never makes fresher.
func TestAgeNeverMakesFresher(t *testing.T) {
	rank := map[Reason]int{Fresh: 0, EarlyRefresh: 0, StaleRefresh: 1, StaleAllowed: 2}
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		first := w.moment()
		second := Moment{Now: first.Now.Add(w.seconds()), Dice: first.Dice, Health: first.Health}
		at := func(m Moment) int {
			if r, ok := rank[p.Decide(later, &adm.Stored, m).Reason]; ok {
				return r
			}
			return 3
		}
		if at(second) < at(first) {
			t.Errorf("%v for %v: %d at %v, %d at %v", res, later.Request.Header, at(first), first.Now, at(second), second.Now)
		}
	})
}

// Jitter only shortens, and only what is ours (B075).
func TestJitterOnlyShortens(t *testing.T) {
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		plain := p.Admit(asker, nil, res, Moment{Now: epoch(), Dice: 0}).Stored
		for range 3 {
			s := p.Admit(asker, nil, res, Moment{Now: epoch(), Dice: w.Float64()}).Stored
			if s.FreshUntil.After(plain.FreshUntil) {
				t.Errorf("%v: %v is longer than %v", res, s.Lifetime(), plain.Lifetime())
			}
			if s.Audience != PlainOnly && s.FreshUntil != plain.FreshUntil && termless(p, res.Status) {
				t.Errorf("%v: the upstream's %v became %v", res, plain.Lifetime(), s.Lifetime())
			}
		}
	})
}

// termless: the route bounds no lifetime of that status, which would be ours.
func termless(p *Policy, status int) bool { return p.rules[0].Cache.negativeTTL(status) == 0 }

// Rescue never serves an error, nor past its window but by the client's own word, nor what is not the client's to have.
func TestRescueServesGoodCopiesOnly(t *testing.T) {
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		s, at := adm.Stored, w.moment()
		if p.Rescue(later, &s, Fault{Kind: Refused}, at).Action != Serve {
			return
		}
		if s.Status >= 500 || !admits(s.Audience, later.Particular) || !s.RescueUntil.After(at.Now) && (s.NoStale || later.directives.staleIfError < 0) {
			t.Errorf("%v stands in at %v for %v", res, at.Now, later.Request.Header)
		}
	})
}

// A joiner is served nothing that is its asker's alone (B002).
func TestMayKeepsPrivateAnswersPrivate(t *testing.T) {
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		d := p.May(later, adm, Order{Later: w.IntN(2) == 0}, Moment{Now: epoch()})
		switch {
		case d.Action != Serve:
		case adm.Private, adm.Stored.Alone, !admits(adm.Stored.Audience, later.Particular):
			t.Errorf("%v, asked as %v, is served to %v", res, asker.Request.Header, later.Request.Header)
		}
	})
}

// XFetch refreshes as often as Vattani et al. say: with probability exp(-remaining / (delta * beta)).
func TestXFetchRefreshesAtTheExpectedRate(t *testing.T) {
	p, ask := onePage(t, func(r *Route) { r.Cache.EarlyRefresh = EarlyRule{Mode: "xfetch", Beta: 1} })
	s := Stored{Response: Response{Status: 200, Header: http.Header{}, Arrived: epoch()}, Cost: time.Second}
	s.FreshUntil = epoch().Add(time.Minute)
	s.RefreshUntil, s.RescueUntil = s.FreshUntil, s.FreshUntil
	w := rand.New(rand.NewPCG(1, 2))
	for _, left := range []time.Duration{500 * time.Millisecond, time.Second, 3 * time.Second} {
		const throws = 20_000
		n := 0
		for range throws {
			if p.Decide(ask(nil), &s, Moment{Now: s.FreshUntil.Add(-left), Dice: w.Float64()}).Action == ServeAndRefresh {
				n++
			}
		}
		want := math.Exp(-left.Seconds())
		if sigma := math.Sqrt(want * (1 - want) / throws); math.Abs(float64(n)/throws-want) > 4*sigma {
			t.Errorf("%v before the end: %d of %d, want %.4f", left, n, throws, want)
		}
	}
}
