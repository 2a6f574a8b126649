package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestTimes holds the table of what becomes of an answer in time: each combination of what a route says and what an
// answer says, at five ages. A cell is what a request is answered while the upstream is well, what while it is sick, and
// what when it has just failed:
//
//	S served   R served, and refreshed behind it   A the upstream is asked
//	s the stale copy stands in   e the upstream's error   4 an error of ours, 504
//	. nothing is kept
func TestTimes(t *testing.T) {
	routes := []string{
		"", "stale_if_error=10m", "grace=30s", "grace=30s/5m", "grace=30s/5m stale_if_error=10m",
		"ttl=60s", "ttl=60s grace=30s/5m stale_if_error=10m", "force_ttl=60s grace=30s/5m stale_if_error=10m",
		"stale_despite=must-revalidate,proxy-revalidate grace=30s/5m stale_if_error=10m",
		"stale_despite=s-maxage,no-cache grace=30s/5m stale_if_error=10m",
	}
	answers := []string{
		"", "max-age=60", "s-maxage=60", "max-age=60, must-revalidate", "max-age=60, proxy-revalidate", "no-cache", "no-store", "private",
		"max-age=60, stale-while-revalidate=40", "max-age=60, stale-if-error=40", "s-maxage=60, stale-while-revalidate=40",
		"s-maxage=60, stale-if-error=40", "max-age=60, stale-if-error=40, must-revalidate", "max-age=60, stale-while-revalidate=0, stale-if-error=0",
	}
	ages := []time.Duration{30 * time.Second, 75 * time.Second, 95 * time.Second, 3 * time.Minute, 9 * time.Minute}
	var table strings.Builder
	for _, route := range routes {
		fmt.Fprintf(&table, "route %s\n", route)
		for _, answer := range answers {
			fmt.Fprintf(&table, "  %-50s", answer)
			s := scene{subjects: []subject{{words: strings.Fields("route " + route)}}}
			for _, age := range ages {
				table.WriteString("  " + becomes(t, s.policy(t), answer, age))
			}
			table.WriteString("\n")
		}
	}
	got := strings.TrimRight(strings.ReplaceAll(table.String(), " \n", "\n"), "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/times.txt", []byte(timesHead+got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/times.txt")
	if err != nil {
		t.Fatal(err)
	}
	if timesHead+got != string(want) {
		t.Errorf("testdata/times.txt is not what becomes of answers; with -update it is, and the diff is to be read against the RFC. Got\n%s", got)
	}
}

const timesHead = `# What becomes of an answer with an ETag, 30, 75, 95, 180 and 540 s after it came: while the upstream is well, while it is
# sick, and when it has just failed. S served, R served and refreshed behind it, A the upstream is asked; s the stale copy
# stands in, e the upstream's error, 4 an error of ours (504); ... nothing is kept.
`

func becomes(t *testing.T, p *Policy, answer string, age time.Duration) string {
	t.Helper()
	plan := p.Plan(scene{subjects: []subject{{words: []string{"GET", "/page"}}}}.request(t))
	res := Response{Status: 200, Header: header("Etag: \"1\""), Asked: epoch(), Arrived: epoch()}
	if answer != "" {
		res.Header.Set("Cache-Control", answer)
	}
	adm := p.Admit(plan, nil, res, Moment{Now: epoch()})
	if adm.Keep <= age {
		return "..."
	}
	cell := ""
	for _, health := range []Health{Well, Sick} {
		letter := map[Action]string{Serve: "S", ServeAndRefresh: "R", Fetch: "A", Validate: "A"}
		cell += letter[p.Decide(plan, &adm.Stored, Moment{Now: epoch().Add(age), Dice: 1, Health: health}).Action]
	}
	switch d := p.Rescue(plan, &adm.Stored, Fault{Kind: Refused}, Moment{Now: epoch().Add(age)}); {
	case d.Action == Serve:
		return cell + "s"
	case d.Reason == StaleForbidden:
		return cell + "4"
	}
	return cell + "e"
}
