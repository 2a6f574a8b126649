package policy

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestStatuses holds the table of which answers are kept by their status.
func TestStatuses(t *testing.T) {
	text, err := os.ReadFile("testdata/statuses.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		cells := strings.Fields(line)
		status, err := strconv.Atoi(cells[0])
		if err != nil {
			t.Fatal(err)
		}
		seen[status] = true
		const modified = "Last-Modified: Sun, 01 Mar 2026 11:50:00 GMT"
		for i, c := range []struct{ name, route, header string }{
			{"guess", "", modified},
			{"stated", "", "Cache-Control: max-age=60"},
			{"public", "", modified + "\nCache-Control: public"},
			{"understood", "", "Cache-Control: max-age=60, no-store, must-understand"},
			{"ttl", "ttl=60s", ""},
			{"negative", fmt.Sprintf("negative=%d:60s", status), ""},
		} {
			if got := kept(t, status, c.route, c.header); got != cells[i+1] {
				t.Errorf("%d, %s: %s, want %s", status, c.name, got, cells[i+1])
			}
		}
	}
	// The registry of IANA: RFC 9110 §15 and what has been added to it.
	for _, span := range [][2]int{{100, 104}, {200, 208}, {226, 226}, {300, 308}, {400, 418}, {421, 426}, {428, 429}, {431, 431}, {451, 451}, {500, 508}, {510, 511}} {
		for status := span[0]; status <= span[1]; status++ {
			if !seen[status] {
				t.Errorf("%d is registered, and has no line", status)
			}
		}
	}
}

// kept is y for an answer that is kept for a minute, n for one that is not, and - where the route cannot be written so.
func kept(t *testing.T, status int, route, head string) string {
	t.Helper()
	p, err := New(Config{Upstreams: []string{"api"}, Routes: []Route{readRoute(t, 0, strings.Fields(route))}})
	if err != nil {
		return "-"
	}
	var lines []string
	if head != "" {
		lines = strings.Split(head, "\n")
	}
	plan := p.Plan(scene{subjects: []subject{{words: []string{"GET", "/page"}}}}.request(t))
	adm := p.Admit(plan, nil, Response{Status: status, Header: header(lines...), Asked: epoch(), Arrived: epoch()}, Moment{Now: epoch()})
	switch {
	case adm.Keep == 0:
		return "n"
	case adm.Stored.FreshUntil.Equal(epoch().Add(time.Minute)):
		return "y"
	}
	return fmt.Sprint("fresh for ", adm.Stored.FreshUntil.Sub(epoch()))
}

// inScenes is every Cache-Control of a part of the scenes in these tables.
func inScenes(t *testing.T, part string, files ...string) string {
	t.Helper()
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile("testdata/" + f)
		if err != nil {
			t.Fatal(err)
		}
		in := ""
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, " ") {
				in, _, _ = strings.Cut(strings.TrimSpace(line), " ")
			}
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if in == part && strings.EqualFold(name, "Cache-Control") {
				b.WriteString(strings.ToLower(value))
			}
		}
	}
	return b.String()
}

// Every directive that RFC 9111 §5.2, RFC 5861 and RFC 8246 define has a row.
func TestEveryDirectiveHasARow(t *testing.T) {
	for part, c := range map[string]struct {
		said       string
		directives []string
	}{
		"answers": {
			inScenes(t, "upstream", "admit.txt") + inScenes(t, "stored", "decide.txt", "rescue.txt"),
			[]string{
				"max-age", "s-maxage", "no-cache", "no-store", "private", "public", "must-revalidate", "proxy-revalidate",
				"must-understand", "no-transform", "stale-while-revalidate", "stale-if-error", "immutable",
			},
		},
		"requests": {
			inScenes(t, "GET", "decide.txt", "rescue.txt"),
			[]string{"max-age", "max-stale", "min-fresh", "no-cache", "no-store", "no-transform", "only-if-cached", "stale-if-error"},
		},
	} {
		for _, directive := range c.directives {
			if !regexp.MustCompile(`(^|[^a-z-])` + directive + `($|[^a-z-])`).MatchString(c.said) {
				t.Errorf("%s of %s has no row", directive, part)
			}
		}
	}
}
