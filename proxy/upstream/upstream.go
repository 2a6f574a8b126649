package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"weir/policy"
)

// Upstream is one server behind us, or several that answer alike.
type Upstream struct {
	config    Config
	members   []*url.URL
	next      atomic.Uint64 // whose turn it is
	transport http.RoundTripper
	limit     *limit
	circuit   *circuit
	repeats   allowance
	requests  atomic.Uint64
	repeated  atomic.Uint64
	failures  atomic.Uint64
}

// Stats is what an upstream has been asked so far, and what is under way.
type Stats struct {
	Requests uint64 `json:"requests"` // sent, repeats included
	Repeated uint64 `json:"repeated"` // sent again, since a kept connection broke
	Failures uint64 `json:"failures"`
	Running  int64  `json:"running"` // slots taken
	Queued   int64  `json:"queued"`
	Streams  int64  `json:"streams"` // upgrades, event streams, and uploads that are slow to come
	Health   string `json:"health"`  // well | sick | down
	Spared   uint64 `json:"spared"`  // requests that were not sent because it is not well
}

// idleConnections close before most servers close theirs, so that a request rarely meets a closing connection (R29).
const idleConnections = 4 * time.Second

// New makes an Upstream; its errors name the key.
func New(c Config) (*Upstream, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return With(c, &aging{made: func() *http.Transport { return transport(c, nil) }, age: maxAge})
}

// transport asks over connections whose heads are read here first. Authorities nil: the system's.
func transport(c Config, authorities *x509.CertPool) *http.Transport {
	plain := &net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 30 * time.Second}
	secure := &tls.Dialer{NetDialer: plain, Config: &tls.Config{RootCAs: authorities, NextProtos: []string{"h2", "http/1.1"}}}
	return &http.Transport{
		DialContext: dialled(plain.DialContext),
		DialTLSContext: dialled(func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout) // the handshake included
			defer cancel()
			return secure.DialContext(ctx, network, address)
		}),
		ResponseHeaderTimeout:  c.ResponseTimeout,
		MaxResponseHeaderBytes: maxHead,
		MaxIdleConnsPerHost:    c.MaxConcurrent,
		IdleConnTimeout:        idleConnections,
		ExpectContinueTimeout:  time.Second,
		DisableCompression:     true, // what the upstream encodes is stored and passed on as it is
		ForceAttemptHTTP2:      true,
	}
}

// With is New over a transport of the caller's: tests bring one of their own, telemetry wraps one.
func With(c Config, t http.RoundTripper) (*Upstream, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u := &Upstream{config: c, transport: t, limit: newLimit(c), circuit: newCircuit(c.Name)}
	u.repeats.left.Store(kept)
	for _, raw := range c.all() {
		m, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("upstream %q: url: %w", c.Name, err)
		}
		u.members = append(u.members, m)
	}
	return u, nil
}

// Name is the upstream's name in the file.
func (u *Upstream) Name() string { return u.config.Name }

// Config is the upstream's settings: whoever asks bounds the body by its idle and fill timeouts.
func (u *Upstream) Config() Config { return u.config }

// Stats is a snapshot.
func (u *Upstream) Stats() Stats {
	return Stats{
		Requests: u.requests.Load(),
		Repeated: u.repeated.Load(),
		Failures: u.failures.Load(),
		Running:  u.limit.running.Load(),
		Queued:   u.limit.queued.Load(),
		Streams:  u.limit.streams.Load(),
		Health:   u.circuit.state(),
		Spared:   u.circuit.refused.Load(),
	}
}

// Crowded reports whether somebody queues for a slot.
func (u *Upstream) Crowded() bool { return u.limit.queued.Load() > 0 }

// Health is how the upstream does, as decisions need to know it.
func (u *Upstream) Health() policy.Health {
	if u.circuit.sick.Load() {
		return policy.Sick
	}
	return policy.Well
}

// Spares reports whether a request of such a class would not be sent now, since the upstream as a whole does badly, and
// for how long about. Early refreshes give way whenever anybody queues (R26).
func (u *Upstream) Spares(class policy.Class) (after time.Duration, spared bool) {
	if class == policy.EarlyWaits && u.limit.queued.Load() > 0 {
		return 0, true
	}
	return u.circuit.spares(class)
}

// Close drops idle connections.
func (u *Upstream) Close() {
	if t, ok := u.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Aim points a request at one of the members. Target is the path and query as they are to be sent, byte for byte:
// they are part of the key, and two spellings must not become one on the way (RFC 3986 §6.2.2).
func (u *Upstream) Aim(req *http.Request, target string) error {
	return u.aim(req, target, u.members[u.next.Add(1)%uint64(len(u.members))])
}

// elsewhere points a request that one member could not be reached for at the next.
func (u *Upstream) elsewhere(req *http.Request) {
	for i, m := range u.members {
		if m.Host == req.URL.Host && m.Scheme == req.URL.Scheme {
			target := strings.TrimPrefix(req.URL.RequestURI(), strings.TrimSuffix(m.EscapedPath(), "/"))
			_ = u.aim(req, target, u.members[(i+1)%len(u.members)]) // it unescaped a moment ago
			return
		}
	}
}

func (u *Upstream) aim(req *http.Request, target string, m *url.URL) error {
	path, query, _ := strings.Cut(target, "?")
	path = strings.TrimSuffix(m.EscapedPath(), "/") + path
	plain, err := url.PathUnescape(path)
	if err != nil {
		return fmt.Errorf("upstream %q: target %q: %w", u.config.Name, target, err)
	}
	req.URL = &url.URL{
		Scheme: m.Scheme, Host: m.Host,
		Path: plain, RawPath: path,
		RawQuery: query, ForceQuery: strings.HasSuffix(target, "?"),
	}
	return nil
}
