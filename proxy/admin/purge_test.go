package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/policy"
	"weir/store"
)

func TestPurge(t *testing.T) {
	for _, c := range []struct {
		name, body string
		purged     store.Purged
		asked      string
		want       string
	}{
		{"hard", `{"url":"https://example.com/a?b"}`, store.Purged{Estimate: 3, Replicas: 2},
			"hard https://example.com/a?b", `{"entries":3,"replicas":2,"soft":false}`},
		{"soft", `{"url":"http://example.com/", "soft":true}`, store.Purged{Estimate: 0, Replicas: 1},
			"soft http://example.com/", `{"entries":0,"replicas":1,"soft":true}`},
		{"an unknown number", ` {"all":true}` + "\n", store.Purged{Estimate: -1, Replicas: 2},
			"hard {Page: Tag: Prefix: Host: Route: All:true}", `{"entries":null,"replicas":2,"soft":false}`},
		{"a tag", `{"tag":"a b"}`, store.Purged{Estimate: -1, Replicas: 2},
			"hard {Page: Tag:a b Prefix: Host: Route: All:false}", `{"entries":null,"replicas":2,"soft":false}`},
		{"a prefix", `{"prefix":"https://EXAMPLE.com/a","soft":true}`, store.Purged{Estimate: -1, Replicas: 1},
			"soft {Page: Tag: Prefix:example.com/a Host: Route: All:false}", `{"entries":null,"replicas":1,"soft":true}`},
		{"a host", `{"host":"Example.com"}`, store.Purged{Estimate: -1, Replicas: 1},
			"hard {Page: Tag: Prefix: Host:example.com Route: All:false}", `{"entries":null,"replicas":1,"soft":false}`},
		{"a route", `{"route":"all","soft":true}`, store.Purged{Estimate: -1, Replicas: 1},
			"soft route all", `{"entries":null,"replicas":1,"soft":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &house{purged: c.purged}
			is(t, ask(New(h.options(local)), "POST", "/api/purge", c.body), 200, c.want)
			if !slices.Equal(h.asked, []string{c.asked}) {
				t.Errorf("asked for %q, want %q", h.asked, c.asked)
			}
		})
	}
}

func TestPurgeRefused(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		detail     string
	}{
		{"nothing", ``, 400, `{"url": `},
		{"no JSON", `url=https://example.com/`, 400, `{"url": `},
		{"no object", `["https://example.com/"]`, 400, `{"url": `},
		{"null", `null`, 400, "exactly one"},
		{"no selector", `{"soft":true}`, 400, "exactly one"},
		{"an empty selector", `{"url":""}`, 400, "exactly one"},
		{"all: false", `{"all":false}`, 400, "exactly one"},
		{"two selectors", `{"url":"https://example.com/","all":true}`, 400, "exactly one"},
		{"an unknown field", `{"url":"https://example.com/","sotf":true}`, 400, "sotf"},
		{"a wrong type", `{"url":"https://example.com/","soft":"yes"}`, 400, "soft"},
		{"two purges", `{"url":"https://example.com/"}{"all":true}`, 400, "one at a time"},
		{"a path", `{"url":"/a"}`, 400, "https://"},
		{"no URL", `{"url":"http://exa mple/"}`, 400, "https://"},
		{"another scheme", `{"url":"ftp://example.com/"}`, 400, "https://"},
		{"too much", `{"url":"https://example.com/` + strings.Repeat("a", maxOrder) + `"}`, 413, "65536"},
		{"a prefix with a star", `{"prefix":"https://example.com/*"}`, 400, "without star"},
		{"a prefix without a host", `{"prefix":"/a"}`, 400, "write a host"},
		{"a host with a port", `{"host":"example.com:80"}`, 400, "without scheme, port or path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &house{}
			isProblem(t, ask(New(h.options(local)), "POST", "/api/purge", c.body), c.status, c.detail)
			if len(h.asked) > 0 {
				t.Errorf("purged all the same: %v", h.asked)
			}
		})
	}
}

func TestPurgeFails(t *testing.T) {
	for _, c := range []struct {
		fault  error
		status int
		detail string
	}{
		{fmt.Errorf("purge: %w", policy.ErrNoPage), 404, "no route serves https://example.com/"},
		{fmt.Errorf("purge: %w", store.ErrUnavailable), 503, "purge again"},
		{fmt.Errorf("purge: %w", store.ErrReadOnly), 503, "store refuses writes"},
		{context.DeadlineExceeded, 503, "purge again"},
		{errors.New("anything else"), 503, "anything else"},
	} {
		h := &house{fault: c.fault}
		isProblem(t, ask(New(h.options(local)), "POST", "/api/purge", `{"url":"https://example.com/"}`), c.status, c.detail)
	}
	h := &house{fault: fmt.Errorf("purge: %w", policy.ErrNoRoute)}
	isProblem(t, ask(New(h.options(local)), "POST", "/api/purge", `{"route":"al"}`), 404, "no route is called al")
}

// B132: before the first request, twice, many at once, with the store away: an answer each, and no panic.
func TestPurgesAtOnce(t *testing.T) {
	h := &house{fault: store.ErrUnavailable}
	s := httptest.NewServer(New(h.options(local)))
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			body := []string{`{"url":"https://example.com/"}`, `{"all":true}`}[i%2]
			res, err := http.Post(s.URL+"/api/purge", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != 503 || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %s", body, res.Status)
			}
		})
	}
	wg.Wait()
	if len(h.asked) != 50 {
		t.Errorf("%d purges were asked for, want 50", len(h.asked))
	}
}

// Half of the replicas would be worse than all or none: a purge outlives its asker.
func TestPurgeOutlivesItsAsker(t *testing.T) {
	h := &house{}
	o := h.options(local)
	w := &watching{house: h}
	o.Handler = w
	ask(New(o), "POST", "/api/purge", `{"url":"https://example.com/"}`, func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	})
	if w.ctx == nil || w.fault != nil {
		t.Errorf("the purge ended with its asker: %v", w.fault)
	} else if _, bounded := w.ctx.Deadline(); !bounded {
		t.Error("the purge may take for ever")
	}
}

// watching remembers how its purge stood when it was asked for.
type watching struct {
	*house
	ctx   context.Context
	fault error
}

func (w *watching) Purge(ctx context.Context, rawURL string, mode store.Mode) (store.Purged, error) {
	w.ctx, w.fault = ctx, ctx.Err()
	return w.house.Purge(ctx, rawURL, mode)
}

// What is taken for a purge names one thing.
func FuzzOrder(f *testing.F) {
	f.Add(`{"url":"https://example.com/","soft":true}`)
	f.Add(`{"URL":"https://example.com/","all":false}`)
	f.Add(`{"all":true} {}`)
	f.Fuzz(func(t *testing.T, body string) {
		o, err := readOrder(strings.NewReader(body))
		if err != nil {
			return
		}
		o.Soft = false
		named := 0
		for _, alone := range []Order{{URL: o.URL}, {Tag: o.Tag}, {Prefix: o.Prefix}, {Host: o.Host}, {Route: o.Route}, {All: o.All}} {
			if alone != (Order{}) {
				named++
			}
		}
		if named != 1 {
			t.Errorf("%q names %d things", body, named)
		}
	})
}
