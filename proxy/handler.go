package proxy

import (
	"context"
	"net/http"
	"net/netip"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

// Config is what the handler itself is told, beside its policy.
type Config struct {
	CacheStatus    string         // the name in Cache-Status; "" or "off": no such header
	TrustedProxies []netip.Prefix // whose X-Forwarded-* and Forwarded are believed
	Spool          int64          // bytes of bodies under way (R25)
	MaxWaiting     int            // exchanges waiting for a fill (R25)
	MaxBody        int64          // what is larger streams through and is not stored
}

// Options is everything a Handler needs. There is no package state: two replicas fit in one process.
type Options struct {
	Policy    *policy.Policy
	Store     store.Store
	Upstreams map[string]*upstream.Upstream
	Observer  Observer
	Config    Config
}

// Handler answers clients.
type Handler struct{}

// New makes a Handler; Drain ends it.
func New(o Options) *Handler { panic("unbuilt") }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("unbuilt") }

// Explain answers what would happen to a request, and why, without doing it.
func (h *Handler) Explain(r *http.Request) (policy.Plan, policy.Decision, error) { panic("unbuilt") }

// Use swaps the policy; exchanges and fills under way keep the one they began with (R31).
func (h *Handler) Use(p *policy.Policy) { panic("unbuilt") }

// Purge covers every form of a URL, under every upstream and scheme, on every replica. policy.ErrNoPage: no route serves it.
func (h *Handler) Purge(ctx context.Context, rawURL string, mode store.Mode) (store.Purged, error) {
	panic("unbuilt")
}

// Drain lets exchanges and fills end, until ctx does.
func (h *Handler) Drain(ctx context.Context) error { panic("unbuilt") }

// Gauges is what is going on at this moment.
func (h *Handler) Gauges() Gauges { panic("unbuilt") }
