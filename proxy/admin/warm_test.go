package admin

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// Client and door speak of the same thing: each page as it ends, then how many ended how.
func TestWarm(t *testing.T) {
	pages := []Page{
		{Job: "hot", URL: "http://weir.test/", End: "fetched", Done: 1, Pages: 3},
		{Job: "hot", URL: "http://weir.test/cart", End: "unkept", Why: "private", Done: 2, Pages: 3},
		{Job: "hot", URL: "http://weir.test/x", End: "failed", Why: "refused", Done: 3, Pages: 3},
	}
	for name, c := range map[string]struct {
		house *house
		job   string
		sum   Warmed
		fault string
	}{
		"pages":       {&house{pages: pages}, "hot", Warmed{Fetched: 1, Unkept: 1, Failed: 1}, ""},
		"none":        {&house{}, "", Warmed{}, ""},
		"no such job": {&house{fault: ErrNoJob}, "cold", Warmed{}, "no job is called cold: see warm in the file, and /api/status (404)"},
		"resting":     {&house{fault: ErrResting}, "hot", Warmed{}, "this replica is leaving: ask another (503)"},
		"no list":     {&house{fault: errors.New("gone")}, "hot", Warmed{}, "the pages cannot be read: gone (502)"},
		"broken off":  {&house{pages: pages[:1], fault: ErrResting}, "hot", Warmed{Fetched: 1, Fault: ErrResting.Error()}, ErrResting.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(New(c.house.options(local)))
			defer s.Close()
			told := []Page{}
			sum, err := Client{Address: strings.TrimPrefix(s.URL, "http://")}.Warm(t.Context(), c.job, func(p Page) { told = append(told, p) })
			if fmt.Sprint(err) != c.fault && (err != nil || c.fault != "") {
				t.Errorf("%v, want %q", err, c.fault)
			}
			if sum != c.sum || fmt.Sprint(told) != fmt.Sprint(append([]Page{}, c.house.pages...)) {
				t.Errorf("%+v of %v", sum, told)
			}
			if got := fmt.Sprint(c.house.asked); got != fmt.Sprintf("[warm %q]", c.job) {
				t.Errorf("asked for %s", got)
			}
		})
	}
}

// A body that is half understood warms nothing.
func TestWarmRefusesWhatNamesNoJob(t *testing.T) {
	h := &house{}
	for _, body := range []string{"{", `{"jobs":["hot"]}`, `"hot"`} {
		if w := ask(New(h.options(local)), "POST", "/api/warm", body); w.Code != 400 || !strings.Contains(w.Body.String(), "names no job") {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := ask(New(h.options(local)), "POST", "/api/warm", ""); w.Code != 200 || w.Body.String() != `{"fetched":0,"unkept":0,"failed":0}`+"\n" {
		t.Errorf("without a body: %d %q", w.Code, w.Body)
	}
	if len(h.asked) != 1 {
		t.Errorf("asked for %v", h.asked)
	}
}
