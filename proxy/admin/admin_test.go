package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"weir/proxy"
	"weir/store"
)

// house is a proxy and a store that answer what a test says, and remember what they were asked.
type house struct {
	mu       sync.Mutex
	asked    []string
	purged   store.Purged
	fault    error // of purges
	away     error // of Check
	explain  func(*http.Request) (policy.Plan, policy.Decision, error)
	draining bool
	pages    []Page // that a job has
}

var modes = map[store.Mode]string{store.Hard: "hard", store.Soft: "soft"}

func (h *house) note(format string, args ...any) (store.Purged, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, fmt.Sprintf(format, args...))
	return h.purged, h.fault
}

func (h *house) Purge(_ context.Context, rawURL string, mode store.Mode) (store.Purged, error) {
	return h.note("%s %s", modes[mode], rawURL)
}

func (h *house) PurgeRoute(_ context.Context, route string, mode store.Mode) (store.Purged, error) {
	return h.note("%s route %s", modes[mode], route)
}

func (h *house) Explain(r *http.Request) (policy.Plan, policy.Decision, error) { return h.explain(r) }

func (h *house) Gauges() proxy.Gauges {
	return proxy.Gauges{WaitingLocal: 1, WaitingRemote: 2, FillsRunning: 3, RefreshDropped: 4, SpoolBytes: 5, Exchanges: 6}
}

func (h *house) Jobs() any { return []string{"hot"} }

func (h *house) Run(_ context.Context, job string, tell func(Page)) error {
	_, _ = h.note("warm %q", job)
	for _, p := range h.pages {
		tell(p)
	}
	return h.fault
}

// vault is the house's store.
type vault struct{ *house }

func (v vault) Check(context.Context) error { return v.away }

func (v vault) Purge(_ context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	return v.note("%s %+v", modes[mode], sel)
}

func (h *house) options(c Config) Options {
	return Options{
		Config: c, Handler: h, Store: vault{h}, Warmer: h, Version: "v1.2.3",
		Status:   func() any { return map[string]int{"api": 7} },
		Draining: func() bool { return h.draining },
		Keys:     func(by string) []Key { return []Key{{"http://example.com/" + by, "api", 10, .9, 1, .5}} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "weir_fills_running 3\n")
		}),
	}
}

var local = Config{Listen: "127.0.0.1:8081"}

// ask sends a request to h as a client of this machine would, changed by change.
func ask(h http.Handler, method, target, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8081"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func field(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) {
	return func(r *http.Request) { r.Host = name }
}

// isProblem checks that an answer is a problem with this status that says what to do next.
func isProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) {
	t.Helper()
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d, and no JSON (%v): %s", w.Code, err, w.Body)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) {
		t.Errorf("status %d, problem %d %q, want %d", w.Code, p.Status, p.Title, status)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
		t.Errorf("Content-Type %q", kind)
	}
	if !strings.Contains(p.Detail, detail) {
		t.Errorf("detail %q, want %q in it", p.Detail, detail)
	}
}

// is checks an answer's status and JSON.
func is(t *testing.T, w *httptest.ResponseRecorder, status int, want string) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Compact(&got, w.Body.Bytes()); err != nil {
		t.Fatalf("status %d, and no JSON (%v): %s", w.Code, err, w.Body)
	}
	if w.Code != status || got.String() != want {
		t.Errorf("got  %d %s\nwant %d %s", w.Code, got.String(), status, want)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	h := &house{draining: true, away: store.ErrUnavailable}
	o := h.options(local)
	o.Required = true
	is(t, ask(New(o), "GET", "/healthz", ""), 200, `{"alive":true}`) // whatever else is wrong
	if w := ask(New(o), "GET", "/metrics", ""); w.Code != 200 || w.Body.String() != "weir_fills_running 3\n" {
		t.Errorf("metrics: %d %s", w.Code, w.Body)
	}
	o.Metrics = nil
	isProblem(t, ask(New(o), "GET", "/metrics", ""), 404, "telemetry.metrics")
}

func TestReady(t *testing.T) {
	fault := errors.New("dial 10.0.0.3: refused")
	for _, c := range []struct {
		name      string
		away      error
		required  bool
		draining  bool
		want, say string // the body when ready, else the problem's detail
	}{
		{"all is well", nil, true, false, `{"ready":true,"store":{"state":"well","required":true}}`, ""},
		{"the store is away, and may be", fault, false, false, `{"ready":true,"store":{"state":"away","required":false}}`, ""},
		{"the store is away, and must not be", fault, true, false, "", "store.redis.required"},
		{"draining", nil, false, true, "", "draining"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := (&house{away: c.away, draining: c.draining}).options(local)
			o.Required = c.required
			w := ask(New(o), "GET", "/readyz", "")
			if c.want != "" {
				is(t, w, 200, c.want)
			} else {
				isProblem(t, w, 503, c.say)
			}
			if strings.Contains(w.Body.String(), "10.0.0.3") {
				t.Error("an address of ours is told to anybody who asks")
			}
		})
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{away: errors.New("dial: refused")}
		a := New(h.options(local))
		time.Sleep(90 * time.Second)
		is(t, ask(a, "GET", "/api/status", ""), 200, `{"version":"v1.2.3","uptime_seconds":90,"draining":false,`+
			`"store":{"state":"away","required":false,"fault":"dial: refused"},`+
			`"gauges":{"exchanges_running":6,"waiting_local":1,"waiting_remote":2,"fills_running":3,"refresh_dropped":4,"spool_bytes":5},`+
			`"upstreams":{"api":7},"warm":["hot"]}`)
	})
}

// A store that hangs does not hang a probe.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		o := h.options(local)
		o.Store, o.Required = hanging{vault{h}}, true
		began := time.Now()
		isProblem(t, ask(New(o), "GET", "/readyz", ""), 503, "required")
		if d := time.Since(began); d > time.Second {
			t.Errorf("a probe waited %s", d)
		}
	})
}

type hanging struct{ vault }

func (hanging) Check(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestPathsAndMethods(t *testing.T) {
	a := New((&house{}).options(local))
	for _, target := range []string{"/", "/healthz/", "/healthzz", "/x/api/purge", "/api/purge/x", "/api", "/api%2Fpurge", "/API/purge"} {
		isProblem(t, ask(a, "POST", target, `{"all":true}`), 404, "/api/purge")
	}
	for target, allow := range map[string]string{"/healthz": "GET, HEAD", "/readyz": "GET, HEAD", "/metrics": "GET, HEAD",
		"/api/status": "GET, HEAD", "/api/explain": "GET, HEAD", "/api/keys": "GET, HEAD", "/api/purge": "POST"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PURGE", "DELETE", "OPTIONS"} {
			w := ask(a, method, target, "")
			if allowed := strings.Contains(allow, method); allowed == (w.Code == 405) {
				t.Errorf("%s %s: %d", method, target, w.Code)
			} else if !allowed {
				isProblem(t, w, 405, allow)
				if got := w.Header().Get("Allow"); got != allow {
					t.Errorf("%s %s: Allow %q, want %q", method, target, got, allow)
				}
			}
		}
	}
}
