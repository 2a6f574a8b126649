package admin

import (
	"context"
	"net/http"
	"time"

	"weir/policy"
	"weir/proxy"
	"weir/store"
)

// Handler is what admin asks of the proxy.
type Handler interface {
	// Purge covers every form of a URL on every replica. policy.ErrNoPage: no route serves it.
	Purge(ctx context.Context, rawURL string, mode store.Mode) (store.Purged, error)
	// PurgeRoute covers what a route has brought. policy.ErrNoRoute: there is none of that name.
	PurgeRoute(ctx context.Context, route string, mode store.Mode) (store.Purged, error)
	// Explain answers what would happen to a request, and why, without doing it.
	Explain(r *http.Request) (policy.Plan, policy.Decision, error)
	Gauges() proxy.Gauges
}

// Store is what admin asks of the store itself.
type Store interface {
	Check(ctx context.Context) error
	Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error)
}

// Options is everything the admin handler needs; nothing but Metrics may be left out.
type Options struct {
	Config   Config
	Handler  Handler
	Store    Store
	Warmer   Warmer
	Required bool         // the store is: without it the replica is not ready
	Metrics  http.Handler // nil: off
	Status   func() any   // of the upstreams, for /api/status
	// Keys are the hottest pages by hits, misses or upstream_time, the hottest first.
	Keys     func(by string) []Key
	Draining func() bool
	Version  string
}

type admin struct {
	Options
	began time.Time
}

// New makes the handler of the admin listener.
func New(o Options) http.Handler {
	a := &admin{o, time.Now()}
	g := newGuard(o.Config)
	mux := http.NewServeMux()
	mux.Handle("/healthz", g.open(only(http.MethodGet, a.healthz)))
	mux.Handle("/readyz", g.open(only(http.MethodGet, a.readyz)))
	mux.Handle("/metrics", g.open(only(http.MethodGet, a.metrics)))
	mux.Handle("/api/status", g.closed(only(http.MethodGet, a.status)))
	mux.Handle("/api/explain", g.closed(only(http.MethodGet, a.explain)))
	mux.Handle("/api/keys", g.closed(only(http.MethodGet, a.keys)))
	mux.Handle("/api/purge", g.closed(only(http.MethodPost, a.purge)))
	mux.Handle("/api/warm", g.closed(only(http.MethodPost, a.warm)))
	mux.Handle("/", g.closed(a.unknown))
	return mux
}

func (a *admin) healthz(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]bool{"alive": true})
}

func (a *admin) metrics(w http.ResponseWriter, r *http.Request) {
	if a.Metrics == nil {
		refuse(w, http.StatusNotFound, "metrics are off: set telemetry.metrics to true and restart")
		return
	}
	a.Metrics.ServeHTTP(w, r)
}

func (a *admin) unknown(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusNotFound, "there is /healthz, /readyz, /metrics, /api/status, /api/explain, /api/keys, /api/purge and /api/warm")
}
