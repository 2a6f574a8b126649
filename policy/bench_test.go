package policy

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

// aHit is what a browser sends for a fresh page, and what is kept of it.
func aHit(t testing.TB) (*Policy, Request, Stored, Moment) {
	p, ask := onePage(t, func(r *Route) { r.Cache.EarlyRefresh = EarlyRule{Mode: "xfetch", Beta: 1} })
	head := http.Header{"Cache-Control": {"public, max-age=60"}, "Etag": {`"a"`}, "Content-Type": {"text/html"}}
	adm := p.Admit(ask(nil), nil, Response{Status: 200, Header: head, Asked: epoch(), Arrived: epoch()}, Moment{Now: epoch()})
	req := Request{Method: "GET", Scheme: "http", Host: "a.test", URL: &url.URL{Path: "/page", RawQuery: "a=1"}, Header: header(
		"Accept: text/html,application/xhtml+xml", "Accept-Encoding: gzip, deflate, br, zstd", "Accept-Language: de, en;q=0.5",
		"User-Agent: Mozilla/5.0", "Connection: keep-alive", "Sec-Fetch-Mode: navigate",
	)}
	return p, req, adm.Stored, Moment{Now: epoch().Add(5 * time.Second), Dice: 0.5}
}

// A hit costs three strings: path and query, the key, and nothing for the decision.
func TestAHitAllocatesLittle(t *testing.T) {
	p, req, stored, at := aHit(t)
	n := testing.AllocsPerRun(100, func() {
		if d := p.Decide(p.Plan(req), &stored, at); d.Reason != Fresh {
			t.Fatal(d)
		}
	})
	if n > 3 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHit(b *testing.B) {
	p, req, stored, at := aHit(b)
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(p.Plan(req), &stored, at)
	}
}

func BenchmarkAdmit(b *testing.B) {
	p, req, stored, at := aHit(b)
	plan := p.Plan(req)
	b.ReportAllocs()
	for b.Loop() {
		p.Admit(plan, nil, stored.Response, at)
	}
}
