package policy

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

func admitted(t *testing.T, change func(*Route), res Response) Admission {
	t.Helper()
	p, ask := onePage(t, change)
	if res.Status == 0 {
		res.Status = 200
	}
	res.Asked, res.Arrived = epoch(), epoch()
	return p.Admit(ask(nil), nil, res, Moment{Now: epoch()})
}

// R2: joiners, peers and the store see only the shared head; the response's own is the asker's and is not touched.
func TestTheSharedHeadIsStripped(t *testing.T) {
	own := http.Header{
		"Cache-Control": {`max-age=60, private="X-User, x-mail", no-cache="Set-Cookie"`},
		"Connection":    {"close, X-Hop"}, "Keep-Alive": {"timeout=5"}, "Transfer-Encoding": {"chunked"}, "X-Hop": {"1"},
		"X-User": {"ann"}, "X-Mail": {"ann@example.com"}, "Set-Cookie": {"sid=1"}, "Age": {"5"},
		"Content-Type": {"text/plain"}, "X-Kept": {"1", "2"}, "Etag": {`"a"`},
	}
	before := own.Clone()
	adm := admitted(t, nil, Response{Header: own})
	got := slices.Sorted(maps.Keys(adm.Shared))
	if want := []string{"Cache-Control", "Content-Type", "Date", "Etag", "X-Kept"}; !slices.Equal(got, want) {
		t.Errorf("shared: %v, want %v", got, want)
	}
	if adm.Shared.Get("Date") != epoch().Format(http.TimeFormat) {
		t.Errorf("Date is %q, not the arrival", adm.Shared.Get("Date"))
	}
	if !maps.EqualFunc(own, before, slices.Equal) {
		t.Errorf("the asker's head was touched: %v", own)
	}
	if adm.Stored.Age != 5*time.Second {
		t.Errorf("the facts forget Age: %v", adm.Stored.Age)
	}
}

func TestADateThatIsOneIsKept(t *testing.T) {
	date := epoch().Add(-time.Hour).Format(time.RFC850)
	date = date[:len(date)-3] + "GMT"
	adm := admitted(t, nil, Response{Header: http.Header{"Date": {date}}})
	if adm.Shared.Get("Date") != date {
		t.Errorf("Date %q became %q", date, adm.Shared.Get("Date"))
	}
}

func TestOfTwoDatesNeitherIsKept(t *testing.T) {
	dates := []string{epoch().Add(-time.Hour).Format(http.TimeFormat), epoch().Add(-time.Minute).Format(http.TimeFormat)}
	adm := admitted(t, nil, Response{Header: http.Header{"Date": dates}})
	if got := adm.Shared["Date"]; !slices.Equal(got, []string{epoch().Format(http.TimeFormat)}) {
		t.Errorf("Date %q, want the arrival alone", got)
	}
}

func TestStripTakesTheCookieFromOthersOnly(t *testing.T) {
	own := http.Header{"Cache-Control": {"max-age=60"}, "Set-Cookie": {"sid=1"}}
	adm := admitted(t, func(r *Route) { r.Cache.SetCookie = "strip" }, Response{Header: own})
	if adm.Shared.Get("Set-Cookie") != "" || own.Get("Set-Cookie") == "" {
		t.Errorf("shared %q, own %q", adm.Shared.Get("Set-Cookie"), own.Get("Set-Cookie"))
	}
}

// R30: what is not fit for a hand-written head is never stored, nor shared.
func TestUnfitFieldsAreNotStored(t *testing.T) {
	for _, h := range []http.Header{
		{"Cache-Control": {"max-age=60"}, "X-A": {"a\r\nSet-Cookie: b"}}, {"Cache-Control": {"max-age=60"}, "X-A": {"a\x00b"}},
		{"Cache-Control": {"max-age=60"}, "X A": {"a"}}, {"Cache-Control": {"max-age=60"}, "": {"a"}},
		{"Cache-Control": {"max-age=60"}, "X-A": {"a\x7f"}},
	} {
		if adm := admitted(t, nil, Response{Header: h}); adm.Reason != BadHeader || !adm.Private || adm.Keep != 0 {
			t.Errorf("%q: %+v", h, adm)
		}
	}
	fit := http.Header{"Cache-Control": {"max-age=60"}, "X-A": {"a\tb \xe9"}}
	if adm := admitted(t, nil, Response{Header: fit}); adm.Keep == 0 {
		t.Errorf("a tab and obs-text are fit: %v", adm.Reason)
	}
}

// The cost is smoothed, so that neither one slow fetch nor one quick confirmation decides when to refresh (B075).
func TestTheCostIsSmoothed(t *testing.T) {
	p, ask := onePage(t, nil)
	res := Response{Status: 200, Header: http.Header{"Cache-Control": {"max-age=60"}}, Asked: epoch().Add(-8 * time.Second), Arrived: epoch()}
	first := p.Admit(ask(nil), nil, res, Moment{Now: epoch()}).Stored
	res.Asked = epoch()
	second := p.Admit(ask(nil), &first, res, Moment{Now: epoch()}).Stored
	if first.Cost != 8*time.Second || second.Cost != 6*time.Second {
		t.Errorf("cost %v, then %v; want 8s, then 6s", first.Cost, second.Cost)
	}
}

// TestAdmitPosted holds the table of the answers to POST that are kept for GET: under which key, and for how long.
func TestAdmitPosted(t *testing.T) {
	eachScene(t, "posted.txt", func(t *testing.T, s scene) string {
		p := s.policy(t)
		up, _ := s.subject("upstream")
		plan, adm := p.AdmitPosted(p.Plan(s.request(t)), answer(t, up), Moment{Now: epoch()})
		if adm.Keep == 0 {
			return adm.text()
		}
		if plan.Request.Method != http.MethodGet || plan.Action != Lookup || adm.Key.Primary != plan.Page.Primary {
			t.Errorf("the plan is no GET's of the page: %+v", plan)
		}
		return adm.Key.Primary + " " + adm.text()
	})
}
