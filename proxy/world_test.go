package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
	"weir/store"
	"weir/store/memory"
)

// world is a handler or two over one store and a scripted upstream, inside a synctest bubble: nothing in it sleeps for
// real, and synctest.Wait means that everyone is parked.
type world struct {
	t        *testing.T
	up       *script
	store    store.Store
	replicas []*Handler

	mu      sync.Mutex
	reports []Report
	fills   []fill.Report
}

func (w *world) Exchange(r Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, r)
}

func (w *world) Fill(r fill.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fills = append(w.fills, r)
}

// setup is what a test may change of a world.
type setup struct {
	replicas int
	cache    func(*policy.Cache)
	upstream func(*upstream.Config)
	config   func(*Config)
	store    func(store.Store) store.Store
}

// inWorld runs body in a bubble with a world of its own, and fails when anything is left running at its end.
func inWorld(t *testing.T, s setup, body func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, up: &script{answers: map[string]answer{}, asked: map[string][]*http.Request{}}}
		cache := policy.Cache{
			StaleIfError: 24 * time.Hour, Keep: time.Hour, UncacheableFor: 2 * time.Minute,
			EarlyRefresh: policy.EarlyRule{Mode: "off", Beta: 1, Exponent: 3},
			Wait:         policy.Wait{Then: "503"}, SetCookie: "refuse", ClientDirectives: "honour", Invalidate: "rfc",
			Particular: []string{"X-Api-Key", "X-Auth-Token"},
		}
		if s.cache != nil {
			s.cache(&cache)
		}
		p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{{Name: "all", Upstream: "api", Cache: cache}}})
		if err != nil {
			t.Fatal(err)
		}
		uc := upstream.Config{
			Name: "api", URL: "http://upstream.test", ConnectTimeout: time.Second, ResponseTimeout: 30 * time.Second,
			IdleTimeout: 30 * time.Second, FillTimeout: 10 * time.Minute, MaxConcurrent: 64, MaxStreams: 8, Queue: 256, QueueTimeout: 5 * time.Second,
		}
		if s.upstream != nil {
			s.upstream(&uc)
		}
		w.store = memory.New(memory.Config{MaxSize: 64 << 20})
		if s.store != nil {
			w.store = s.store(w.store)
		}
		hc := Config{CacheStatus: "weir", Spool: 64 << 20, MaxWaiting: 10000, MaxBody: 8 << 20}
		if s.config != nil {
			s.config(&hc)
		}
		for range max(s.replicas, 1) {
			u, err := upstream.With(uc, w.up) // each replica has a limit of its own
			if err != nil {
				t.Fatal(err)
			}
			w.replicas = append(w.replicas, New(Options{
				Policy: p, Store: w.store, Upstreams: map[string]*upstream.Upstream{"api": u}, Observer: w, Config: hc,
			}))
		}
		body(w)
		for _, h := range w.replicas {
			if err := h.Drain(t.Context()); err != nil {
				t.Errorf("drain: %v", err)
			}
			if got := h.upstreams["api"].Stats().Running; got != 0 {
				t.Errorf("upstream slots left: %d", got)
			}
			if g := h.Gauges(); g != (Gauges{RefreshDropped: g.RefreshDropped}) {
				t.Errorf("left running: %+v", g)
			}
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// script is an upstream without sockets. Each path has an answer; a path without one is a 404.
type script struct {
	mu      sync.Mutex
	answers map[string]answer
	asked   map[string][]*http.Request
}

type answer func(r *http.Request, nth int) (*http.Response, error)

func (s *script) on(path string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = a
}

func (s *script) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked[path])
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], r)
	n, a := len(s.asked[r.URL.Path]), s.answers[r.URL.Path]
	s.mu.Unlock()
	if a == nil {
		return respond(404, "")(r, n)
	}
	return a(r, n)
}

// respond makes an answer of a status and header lines; its body is "v" and how often the path was asked.
func respond(status int, lines ...string) answer {
	return func(r *http.Request, nth int) (*http.Response, error) {
		body := fmt.Sprint("v", nth)
		res := &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
		}
		for _, line := range lines {
			if name, value, ok := cutField(line); ok {
				res.Header.Add(name, value)
			}
		}
		if status == 304 || status == 204 || r.Method == "HEAD" {
			res.Body, res.ContentLength = http.NoBody, 0
		}
		return res, nil
	}
}

// after delays an answer.
func after(d time.Duration, a answer) answer {
	return func(r *http.Request, nth int) (*http.Response, error) {
		select {
		case <-time.After(d):
			return a(r, nth)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// inTurn answers the first request by the first, and so on; the last repeats.
func inTurn(answers ...answer) answer {
	return func(r *http.Request, nth int) (*http.Response, error) {
		return answers[min(nth, len(answers))-1](r, nth)
	}
}

// result is what a client has seen.
type result struct {
	*httptest.ResponseRecorder
	aborted bool
	took    time.Duration
}

// client sends a request to a replica and returns at once; the result comes by the channel.
func (w *world) client(replica int, method, path string, lines ...string) <-chan result {
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://example.com"+path, nil)
	for _, line := range lines {
		if name, value, ok := cutField(line); ok {
			r.Header.Add(name, value)
		}
	}
	return w.send(replica, r)
}

func (w *world) send(replica int, r *http.Request) <-chan result {
	c := make(chan result, 1)
	go func() {
		began := time.Now()
		out := result{ResponseRecorder: httptest.NewRecorder()}
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					panic(p)
				}
				out.aborted = true
			}
			out.took = time.Since(began)
			c <- out
		}()
		w.replicas[replica].ServeHTTP(out.ResponseRecorder, r)
	}()
	return c
}

// get is a client that waits, until what it has set going has come to rest too.
func (w *world) get(path string, lines ...string) result {
	r := <-w.client(0, "GET", path, lines...)
	synctest.Wait()
	return r
}

// want fails unless the answer is this.
func (w *world) want(what string, r result, status int, body, cacheStatus string) {
	w.t.Helper()
	got := r.Header().Get("Cache-Status")
	if r.Code != status || body != "*" && r.Body.String() != body || !strings.Contains(got, cacheStatus) {
		w.t.Errorf("%s: got %d %q, Cache-Status %q; want %d %q, Cache-Status with %q", what, r.Code, r.Body, got, status, body, cacheStatus)
	}
}

// asked fails unless the upstream was asked for path that often.
func (w *world) asked(path string, n int) {
	w.t.Helper()
	if got := w.up.count(path); got != n {
		w.t.Errorf("upstream was asked for %s %d times, want %d", path, got, n)
	}
}
