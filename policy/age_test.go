package policy

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// promise is how old an answer may become, told from its own words and the route's alone: its lifetime, and what may be
// added to that. Where two are stated the longer is taken: this is a bound.
type promise struct {
	lifetime time.Duration // by its age, the age it came with included
	swr, sie time.Duration // stated; -1: not
	strict   bool          // it, or what it is to its asker, forbids our windows
}

func promised(rule *rule, asker Plan, res Response, age time.Duration) promise {
	words := strings.Join(res.Header["Cache-Control"], ",")
	p := promise{swr: -1, sie: -1}
	says := func(name string) (d time.Duration, said bool) {
		d = -1
		for word := range strings.SplitSeq(words, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
			if key != name {
				continue
			}
			said = true
			if n, err := time.ParseDuration(value + "s"); err == nil && n > d {
				d = n
			}
		}
		return d, said
	}
	shared, hasShared := says("s-maxage")
	own, hasOwn := says("max-age")
	expires := res.Header.Get("Expires")
	stated, isStated := max(shared, own, 0), hasShared || hasOwn || expires != ""
	if !hasShared && !hasOwn && expires != "" {
		end, _ := http.ParseTime(expires)
		made, err := http.ParseTime(res.Header.Get("Date"))
		if err != nil {
			made = res.Arrived
		}
		stated = max(0, end.Sub(made))
	}
	if p.lifetime = stated; !isStated || rule.Cache.ForceTTL > 0 {
		p.lifetime = max(stated, age+rule.Cache.TTL, age+rule.Cache.ForceTTL)
	}
	p.swr, _ = says("stale-while-revalidate")
	p.sie, _ = says("stale-if-error")
	p.strict = hasShared || strings.Contains(words, "must-revalidate") || strings.Contains(words, "proxy-revalidate") || len(asker.Particular) > 0
	return p
}

// No answer is ever older than its lifetime and the grace that applies: neither what Decide serves, nor what stands in
// for a failed upstream. The client's own max-stale and stale-if-error are the client's to give.
func TestNoAnswerOutlivesItsGrace(t *testing.T) {
	served, stale := 0, 0
	eachHistory(t, func(w world, p *Policy, asker, later Plan, res Response, adm Admission) {
		if adm.Keep == 0 {
			return
		}
		s, c := adm.Stored, &p.rules[0].Cache
		most := promised(&p.rules[0], asker, res, s.Age)
		refresh, rescue := time.Duration(0), time.Duration(0)
		at := w.moment()
		if !most.strict && len(later.Particular) == 0 {
			sick := c.Grace.Sick
			if most.sie >= 0 {
				sick = max(c.Grace.Well, min(sick, most.sie))
			}
			refresh, rescue = c.Grace.Well, max(c.StaleIfError, sick)
			if at.Health == Sick {
				refresh = sick
			}
		}
		if most.swr >= 0 {
			refresh = most.swr
		}
		if most.sie >= 0 {
			rescue = most.sie
			if !most.strict && most.swr < 0 {
				rescue = max(rescue, c.Grace.Well)
			}
		}
		rescue = max(rescue, refresh)
		age := at.Now.Sub(res.Arrived) + s.Age
		d := p.Decide(later, &s, at)
		if d.Action == Serve || d.Action == ServeAndRefresh {
			served++
			if age > most.lifetime {
				stale++
			}
			if d.Reason != StaleAllowed && age > most.lifetime+refresh {
				t.Errorf("%v with %+v: %v old is served, %v and a grace of %v were promised: %v", res, *c, age, most.lifetime, refresh, d)
			}
		}
		d = p.Rescue(later, &s, Fault{Kind: Refused}, at)
		if d.Action == Serve && later.directives.staleIfError < 0 && age > most.lifetime+rescue {
			t.Errorf("%v with %+v: %v old stands in, %v and %v were promised: %v", res, *c, age, most.lifetime, rescue, d)
		}
	})
	if !t.Failed() && (served < histories/100 || stale < histories/500) {
		t.Errorf("of %d histories %d were served, %d of them stale: too few to tell", histories, served, stale)
	}
}
