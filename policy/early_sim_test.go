package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// outcome is what an early rule costs the upstream, and spares the clients, in each lifetime of a page.
type outcome struct{ refreshes, waited float64 }

const (
	simLifetime = 60 * time.Second
	simCost     = time.Second
)

// simulate plays a page that lives a minute and takes a second to fetch, for which clients come at random: one refresh at
// most is under way, and who comes while the page is stale waits for it.
func simulate(t *testing.T, rule EarlyRule, perSecond, lifetimes int) outcome {
	t.Helper()
	p, ask := onePage(t, func(r *Route) { r.Cache.EarlyRefresh = rule })
	plan, dice := ask(nil), rand.New(rand.NewPCG(uint64(perSecond), 7))
	fetched := func(prior *Stored, end time.Time) Stored {
		res := Response{Status: 200, Header: http.Header{"Cache-Control": {"max-age=61"}}, Asked: end.Add(-simCost), Arrived: end}
		return p.Admit(plan, prior, res, Moment{Now: end}).Stored
	}
	page := fetched(nil, epoch())
	if page.Lifetime() != simLifetime { // the second it took counts against it (RFC 9111 §4.2.3)
		t.Fatalf("it lives %v", page.Lifetime())
	}
	var arrives time.Time // of the fetch under way
	refreshes, waited := 0, 0
	end := epoch().Add(time.Duration(lifetimes) * simLifetime)
	for now := epoch(); now.Before(end); {
		now = now.Add(time.Duration(dice.ExpFloat64() / float64(perSecond) * float64(time.Second)))
		if !arrives.IsZero() && !arrives.After(now) {
			page, arrives = fetched(&page, arrives), time.Time{}
		}
		d := p.Decide(plan, &page, Moment{Now: now, Dice: dice.Float64()})
		if d.Action == Fetch {
			waited++
		}
		if d.Action != Serve && arrives.IsZero() {
			refreshes, arrives = refreshes+1, now.Add(simCost)
		}
	}
	return outcome{float64(refreshes) / float64(lifetimes), float64(waited) / float64(lifetimes)}
}

// README's figures for early refresh are those of this simulation: go test ./policy -run EarlyFigures -update.
func TestEarlyFigures(t *testing.T) {
	rules := []EarlyRule{{Mode: "off"}, {Mode: "xfetch", Beta: 1}, {Mode: "power", Exponent: 3}}
	var table strings.Builder
	table.WriteString("| requests a second | refreshes: off | xfetch | power | clients that waited: off | xfetch | power |\n|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, load := range []struct{ perSecond, lifetimes int }{{1, 1000}, {10, 200}, {100, 40}, {1000, 20}} {
		var all [3]outcome
		for i, rule := range rules {
			all[i] = simulate(t, rule, load.perSecond, load.lifetimes)
		}
		off, xfetch, power := all[0], all[1], all[2]
		fmt.Fprintf(&table, "| %d | %.2f | %.2f | %.2f | %.1f | %.2f | %.2f |\n", load.perSecond,
			off.refreshes, xfetch.refreshes, power.refreshes, off.waited, xfetch.waited, power.waited)
		rate := float64(load.perSecond)
		// Without a rule all who come in the second of the fetch wait; the page is then old for a moment more.
		near(t, "off, waited", off.waited, (1+rate*simCost.Seconds())*off.refreshes, 0.05)
		// The mean age at which the power rule refreshes, and the second the fetch takes, make a period.
		age := simLifetime.Seconds() / powerRefreshes(rate*simLifetime.Seconds(), 3)
		near(t, "power, refreshes", power.refreshes, simLifetime.Seconds()/(age+simCost.Seconds()), 0.1)
		// XFetch refreshes when about one client's dice have fallen so: delta ln(rate delta) before the end.
		if early := math.Log(rate); early > 1 {
			near(t, "xfetch, refreshes", xfetch.refreshes, simLifetime.Seconds()/(simLifetime.Seconds()-early+simCost.Seconds()), 0.05)
		}
	}
	readmeHolds(t, "early", table.String())
}

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("%s: %.3f, want about %.3f", what, got, want)
	}
}

// readmeHolds fails unless the table stands in README between its marks.
func readmeHolds(t *testing.T, mark, table string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "<!-- "+mark+" -->\n")
	is, after, ended := strings.Cut(rest, "<!-- /"+mark+" -->")
	switch {
	case !found || !ended:
		t.Errorf("README.md has no place for the table %s:\n%s", mark, table)
	case is != table && *update:
		if err := os.WriteFile("../README.md", []byte(before+"<!-- "+mark+" -->\n"+table+"<!-- /"+mark+" -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case is != table:
		t.Errorf("README.md's figures are not these; go test ./policy -run EarlyFigures -update:\n%s", table)
	}
}
