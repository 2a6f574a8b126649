package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// No answer is ever older than its lifetime and the grace that applies, told from what the answer, the route and the client
// say, whatever moments Admit and Freshen have set: neither what Decide serves, nor what stands in for a failed upstream.
func TestNoAnswerOutlivesItsGrace(t *testing.T) {
	seen := map[Reason]int{}
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		if at := w.moment(); adm.Keep > 0 && w.IntN(2) == 0 {
			news := w.answer()
			news.Status, news.Arrived, news.Asked = 304, at.Now, at.Now.Add(news.Asked.Sub(news.Arrived))
			if adm = p.Freshen(asker, adm.Stored, news, at); adm.Reason == Mismatched {
				return
			}
			res = confirmed(res, news)
		}
		if adm.Keep == 0 {
			return
		}
		e := expect(asker, later, res)
		for range 5 {
			at := w.moment()
			at.Now = at.Now.Add(res.Arrived.Sub(epoch()))
			for _, d := range []Decision{p.Decide(later, &adm.Stored, at), p.Rescue(later, &adm.Stored, Fault{Kind: Refused}, at)} {
				if d.Action != Serve && d.Action != ServeAndRefresh {
					continue
				}
				seen[d.Reason]++
				if age, most := at.Now.Sub(res.Arrived), e.oldest(d.Reason, at.Health); age > most {
					t.Errorf("%v by %v is served %v after its arrival, and %v at most; %+v; %v, %v asks; %+v", d.Action, d.Reason, age, most, later.Route.Cache, res, later.Request.Header, e)
				}
			}
		}
	})
	for _, r := range []Reason{Fresh, StaleRefresh, StaleIfError} {
		if seen[r] < histories/500 && !t.Failed() {
			t.Errorf("%v was seen %d times: too few to tell", r, seen[r])
		}
	}
}

// expectancy is how old an answer may get for one client: what the oracle says of its longest reading.
type expectancy struct {
	fate
	maxStale, staleIfError time.Duration // what the client allows
}

// oldest is how long after its arrival an answer may be served for this reason.
func (e expectancy) oldest(why Reason, health Health) time.Duration {
	switch {
	case why == StaleRefresh && health == Sick:
		return e.sick
	case why == StaleRefresh:
		return e.well
	case why == StaleAllowed && !e.forbidden:
		return e.fresh + e.maxStale
	case why == StaleIfError && !e.forbidden:
		return max(e.rescue, e.fresh+e.staleIfError)
	case why == StaleIfError:
		return e.rescue
	}
	return e.fresh
}

// confirmed is what a 304 makes of an answer (RFC 9111 §3.2, §4.3.4): its fields in place of the answer's own.
func confirmed(res, news Response) Response {
	h := res.Header.Clone()
	for _, name := range []string{"Age", "Date"} {
		delete(h, name)
	}
	for name, lines := range news.Header {
		h[name] = lines
	}
	return Response{Status: res.Status, Header: h, Asked: news.Asked, Arrived: news.Arrived}
}

// expect reads what the answer, the route and the client say. What is said twice is read the longer way.
func expect(asker, later Plan, res Response) expectancy {
	c, said := later.Route.Cache, largest(res.Header["Cache-Control"])
	c.Jitter = 0
	if len(asker.Particular) > 0 { // R1: nothing of ours is for one who tells who he is
		c.TTL, c.ForceTTL, c.Heuristic = 0, 0, false
	}
	if len(asker.Particular)+len(later.Particular) > 0 {
		c.Grace, c.StaleIfError = Grace{}, 0
	}
	s := says{
		status: res.Status, maxAge: said("max-age"), sMaxAge: said("s-maxage"), swr: said("stale-while-revalidate"), sie: said("stale-if-error"),
		mustRevalidate: said("must-revalidate") >= 0, proxyRevalidate: said("proxy-revalidate") >= 0, tagged: true,
		noCache: slices.Contains(res.Header["Cache-Control"], "no-cache"),
	}
	date := func(name string, otherwise time.Time) time.Time {
		if v := res.Header.Get(name); v != "" {
			return mustDate(v)
		}
		return otherwise
	}
	made := date("Date", res.Arrived.Truncate(time.Second))
	s.guess = max(0, made.Sub(date("Last-Modified", made))/10)
	if expires := date("Expires", time.Time{}); s.maxAge < 0 && !expires.IsZero() {
		s.maxAge = max(0, int(expires.Sub(made)/time.Second))
	}
	age, _ := strconv.Atoi(res.Header.Get("Age"))
	s.age = max(res.Arrived.Truncate(time.Second).Sub(made), time.Duration(age)*time.Second+res.Arrived.Sub(res.Asked)) // RFC 9111 §4.2.3
	client := largest(later.Request.Header["Cache-Control"])
	e := expectancy{fate: foretell(c, s, 0), staleIfError: time.Duration(client("stale-if-error")) * time.Second}
	if e.maxStale = time.Duration(client("max-stale")) * time.Second; e.maxStale == 0 {
		e.maxStale = math.MaxInt64 / 2 // without a number: any (RFC 9111 §5.2.1.2)
	}
	return e
}

// largest finds the largest figure that directives state; 0: none that is a number; -1: the directive is not there.
func largest(words []string) func(name string) int {
	return func(name string) int {
		most := -1
		for _, word := range words {
			if is, value, _ := strings.Cut(word, "="); is == name {
				n, _ := strconv.Atoi(value)
				most = max(most, n)
			}
		}
		return most
	}
}
