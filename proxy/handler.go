package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"weir/policy"
	"weir/proxy/fill"
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
	Advertise      string         // where other replicas reach Relay; "": they do not
}

// Options is everything a Handler needs. There is no package state: two replicas fit in one process.
type Options struct {
	Policy    *policy.Policy
	Store     store.Store
	Upstreams map[string]*upstream.Upstream
	Observer  Observer
	Config    Config
}

// refreshesAtOnce bounds the fills that run with nobody waiting.
const refreshesAtOnce = 64

// Handler answers clients.
type Handler struct {
	policy    atomic.Pointer[policy.Policy]
	store     store.Store
	upstreams map[string]*upstream.Upstream
	observer  Observer
	config    Config
	table     *fill.Table

	waitingLocal, waitingRemote, exchanges atomic.Int64
}

// New makes a Handler; Drain ends it.
func New(o Options) *Handler {
	h := &Handler{
		store: o.Store, upstreams: o.Upstreams, observer: o.Observer, config: o.Config,
		table: fill.NewTable(fill.Options{
			Store: o.Store, Upstreams: o.Upstreams, Observe: o.Observer.Fill,
			Spool: o.Config.Spool, MaxBody: o.Config.MaxBody, Refreshes: refreshesAtOnce, Advertise: o.Config.Advertise,
		}),
	}
	h.policy.Store(o.Policy)
	h.table.Watch(func(e store.Event) {
		if e.Kind == store.PurgedNote && (e.Selector.Tag != "" || e.Selector.Route != "") {
			h.table.Void(e.Selector)
		}
	})
	return h
}

// ServeHTTP answers one client. A fault of ours in it is that client's 502, and nobody else's concern.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{
		h: h, policy: h.policy.Load(), r: r, arrived: h.table.Arrive(),
		w: &writer{ResponseWriter: w, control: http.NewResponseController(w)},
	}
	// HTTP/1.0 knows no chunks, and net/http hides that a request had them; nor does it show a Content-Length beside
	// them in HTTP/1.1. What lies behind such a request is not looked at (RFC 9112 §6.1).
	x.w.http1 = r.ProtoMajor == 1
	x.w.old = !r.ProtoAtLeast(1, 1)
	x.w.last = x.w.old || len(r.TransferEncoding) > 0
	if x.w.old {
		r.Header.Del("Upgrade") // RFC 9110 §7.8: it is not obeyed
	}
	x.w.report = &x.report
	x.report.Time = time.Now()
	if r.Body != nil && r.Body != http.NoBody {
		// An early answer is sent while the client still sends (RFC 9112 §9.5). HTTP/2 is like that anyway.
		_ = x.w.control.EnableFullDuplex()
		x.w.expects = expects(r)
		x.w.body = &patient{ReadCloser: &trailed{r.Body, &r.Trailer}, control: x.w.control}
		r.Body = x.w.body
	}
	h.exchanges.Add(1)
	defer x.end()
	x.run()
}

// Relay serves this replica's running fills to the others; it is for the peers' listener only.
func (h *Handler) Relay(w http.ResponseWriter, r *http.Request) { h.table.Relay(w, r) }

// Explain answers what would happen to a request, and why, without doing it.
func (h *Handler) Explain(r *http.Request) (policy.Plan, policy.Decision, error) {
	p := h.policy.Load()
	plan := p.Plan(h.request(r))
	if plan.Action != policy.Lookup {
		return plan, policy.Decision{Action: plan.Action, Reason: plan.Reason}, nil
	}
	plan, entry, err := h.look(r.Context(), p, plan)
	if err != nil {
		return plan, policy.Decision{}, err
	}
	return plan, p.Decide(plan, storedOf(entry), h.still(plan)), nil
}

// Use swaps the policy; exchanges and fills under way keep the one they began with (R31).
func (h *Handler) Use(p *policy.Policy) { h.policy.Store(p) }

// Purge covers every form of a URL, under every upstream and scheme, on every replica. policy.ErrNoPage: no route serves it.
func (h *Handler) Purge(ctx context.Context, rawURL string, mode store.Mode) (store.Purged, error) {
	pages, err := h.policy.Load().Pages(rawURL)
	if err != nil {
		return store.Purged{}, err
	}
	var all store.Purged
	for _, page := range pages {
		got, err := h.store.Purge(ctx, page, mode)
		if err != nil {
			return all, err
		}
		all.Estimate += got.Estimate
		all.Replicas = max(all.Replicas, got.Replicas)
	}
	return all, nil
}

// Drain lets exchanges and then fills end, until ctx does. The listener is closed before it is called, and so are
// connections that idle; what http.Server.Shutdown does not wait for is tunnels.
func (h *Handler) Drain(ctx context.Context) error {
	for look := time.NewTicker(20 * time.Millisecond); h.exchanges.Load() > 0 && ctx.Err() == nil; {
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return h.table.Drain(ctx)
}

// Gauges is what is going on at this moment.
func (h *Handler) Gauges() Gauges {
	fills, bytes, dropped := h.table.Gauges()
	return Gauges{
		WaitingLocal: h.waitingLocal.Load(), WaitingRemote: h.waitingRemote.Load(), Exchanges: h.exchanges.Load(),
		FillsRunning: fills, SpoolBytes: bytes, RefreshDropped: dropped,
	}
}

func storedOf(e *store.Entry) *policy.Stored {
	if e == nil {
		return nil
	}
	return &e.Stored
}
