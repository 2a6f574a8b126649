package policy

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestInvalidates(t *testing.T) {
	eachScene(t, "invalidate.txt", func(t *testing.T, s scene) string {
		p, res := s.policy(t), Response{}
		for _, x := range s.subjects {
			if x.words[0] == "answer" {
				res.Status, _ = strconv.Atoi(x.words[1])
				res.Header = x.header
			}
		}
		return printPages(p.Invalidates(p.Plan(s.request(t)), res))
	})
}

func TestPages(t *testing.T) {
	eachScene(t, "pages.txt", func(t *testing.T, s scene) string {
		found, err := s.policy(t).Pages(s.subjects[len(s.subjects)-1].words[1])
		if err != nil {
			if noRoute := strings.HasPrefix(err.Error(), "no route"); noRoute != errors.Is(err, ErrNoPage) {
				t.Errorf("ErrNoPage is for URLs that no route serves: %v", err)
			}
			return err.Error()
		}
		return printPages(found)
	})
}

func printPages(found []Selector) string {
	var lines []string
	for _, s := range found {
		if s.Tag != "" {
			lines = append(lines, "tag "+s.Tag)
			continue
		}
		lines = append(lines, s.Page)
	}
	if lines == nil {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

// What Pages and Invalidates name is what Plan looks up, whichever way the page was asked for.
func TestPagesNameWhatPlanLooksUp(t *testing.T) {
	p := scene{}.policy(t)
	for _, rawURL := range []string{"http://a.test/c?x=1", "https://A.test:443/%7ec", "http://a.test:8080/c;v=1?", "https://a.test./a//b%2Fc"} {
		s := scene{subjects: []subject{{words: []string{http.MethodGet, rawURL}, header: http.Header{}}}}
		page := Selector{Page: p.Plan(s.request(t)).Key.Primary}
		found, err := p.Pages(rawURL)
		if err != nil || found[0] != page {
			t.Errorf("%s is kept as %v, and purged as %v, %v", rawURL, page, found, err)
		}
	}
}
