package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/admin"
	"weir/proxy/config"
	"weir/proxy/hot"
	"weir/proxy/telemetry"
	"weir/proxy/upstream"
	"weir/proxy/warm"
	"weir/store"
	"weir/store/memory"
	"weir/store/near"
)

// replica is one process of ours, furnished from its configuration.
type replica struct {
	source    config.Source
	read      [sha256.Size]byte // digest of the file as it was last read
	config    *config.Config
	telemetry *telemetry.Telemetry
	log       *slog.Logger
	hot       *hot.Pages
	store     store.Store
	memory    *memory.Store // all of it, or its near tier; nil: there is none
	near      *near.Store   // it in front of Redis; nil: it is not
	upstreams map[string]*upstream.Upstream
	handler   *proxy.Handler
	warmer    *warm.Warmer
	traffic   *http.Server
	admin     *http.Server
	peers     net.Listener // nil: this replica talks to no other
	reached   bool         // the shared store answered at start
	leaving   atomic.Bool
}

func serve(s config.Source, stderr io.Writer) error {
	read := s.Digest()
	c, err := config.Load(s)
	if err != nil {
		return err
	}
	t, err := telemetry.New(c.Telemetry, stderr)
	if err != nil {
		return err
	}
	slog.SetDefault(t.Logger()) // what libraries print by the log package is a line like any other
	r := &replica{source: s, read: read, config: c, telemetry: t, log: t.Logger(), hot: hot.New()}
	defer r.close()
	if err := r.furnish(); err != nil {
		return err
	}
	return r.run()
}

// furnish builds the rooms, from the inside out.
func (r *replica) furnish() (err error) {
	if r.store, err = r.openStore(); err != nil {
		return err
	}
	r.upstreams = map[string]*upstream.Upstream{}
	for _, c := range r.config.Upstreams {
		if r.upstreams[c.Name], err = upstream.New(c); err != nil {
			return err
		}
	}
	rules, err := policy.New(r.config.Policy())
	if err != nil {
		return err
	}
	settings := r.config.Proxy()
	settings.Advertise = r.meetPeers()
	r.handler = proxy.New(proxy.Options{
		Policy: rules, Store: r.store, Upstreams: r.upstreams, Observer: observers{r.telemetry, r.hot}, Config: settings,
	})
	r.warmer = warm.New(warm.Options{Handler: r.handler, Store: r.store, Log: r.log})
	r.telemetry.Watch(r.sources())
	r.traffic, r.admin = r.trafficServer(), r.adminServer()
	return nil
}

// meetPeers opens the peers' listener and says where the others reach it. Without it replicas wait for each other's
// commits: slower, and just as right, so a fault here is a warning.
func (r *replica) meetPeers() (advertise string) {
	if !r.config.TalksToPeers() {
		return ""
	}
	l, err := listen("peers.listen", r.config.Peers.Listen)
	if err != nil {
		r.log.Warn("this replica reads no other's running fills: choose another peers.listen, or off", "fault", err.Error())
		return ""
	}
	r.peers = l
	if r.config.Peers.Advertise != "" {
		return r.config.Peers.Advertise
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = outward(r.config.Store.Redis.Addresses)
	}
	return net.JoinHostPort(host, port)
}

// outward is this machine's address on the way to Redis; no packet is sent to find it.
func outward(addresses []string) string {
	for _, a := range addresses {
		if conn, err := net.Dial("udp", a); err == nil {
			defer conn.Close()
			return conn.LocalAddr().(*net.UDPAddr).IP.String()
		}
	}
	return "127.0.0.1" // a socket of this machine
}

func (r *replica) stats() map[string]upstream.Stats {
	all := make(map[string]upstream.Stats, len(r.upstreams))
	for name, u := range r.upstreams {
		all[name] = u.Stats()
	}
	return all
}

// trafficServer bounds what a client may make us wait for or remember before there is a request. The body's pace is
// the handler's business: only it knows whether somebody reads.
func (r *replica) trafficServer() *http.Server {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(true)
	speaks.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           r.closing(r.handler),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		Protocols:         speaks,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// closing lets each connection end with its next answer once the replica leaves: Connection: close, GOAWAY in HTTP/2
// (R32). A connection that idles is not cut in the lame duck time: its client may be sending at that moment.
func (r *replica) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.leaving.Load() {
			w = lastAnswer{w}
		}
		next.ServeHTTP(w, req)
	})
}

// lastAnswer says so at the last moment: what the handler makes of the header, it makes before.
type lastAnswer struct{ http.ResponseWriter }

func (l lastAnswer) WriteHeader(status int) {
	if status >= http.StatusOK {
		l.Header().Set("Connection", "close")
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (l lastAnswer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (r *replica) adminServer() *http.Server {
	door := admin.New(admin.Options{
		Config: r.config.Admin, Handler: r.handler, Store: r.store, Warmer: warmer{r.warmer}, Required: r.config.Required(),
		Metrics: r.telemetry.Metrics(), Status: func() any { return r.stats() }, Keys: r.keys,
		Draining: r.leaving.Load, Version: build()["version"],
	})
	return &http.Server{
		Handler:     door,
		ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// run serves until a signal ends it or a listener fails.
func (r *replica) run() error {
	hup, term := make(chan os.Signal, 1), make(chan os.Signal, 2)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Notify(term, syscall.SIGTERM, os.Interrupt)
	traffic, err := listen("listen", r.config.Listen)
	if err != nil {
		return err
	}
	defer traffic.Close()
	door, err := listen("admin.listen", r.config.Admin.Listen)
	if err != nil {
		return err
	}
	defer door.Close()
	r.announce(traffic.Addr(), door.Addr())
	g, ctx := errgroup.WithContext(context.Background())
	g.Go(func() error { return serveOn(r.traffic, traffic) })
	g.Go(func() error { return serveOn(r.admin, door) })
	if r.peers != nil {
		// It ends with the process: while this replica drains, others still read its fills.
		relay := &http.Server{
			Handler: http.HandlerFunc(r.handler.Relay), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10,
			ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		}
		go func() { _ = serveOn(relay, r.peers) }()
		defer relay.Close()
	}
	g.Go(func() error { return r.obey(ctx, hup, term) })
	r.warmer.Use(r.config.Warm)
	if r.memory != nil {
		go r.pin(ctx)
	}
	if r.config.Store.Kind == "redis" {
		go r.tellOfStore(ctx)
	}
	return g.Wait()
}

func listen(key, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		other := "--" + strings.TrimSuffix(key, ".listen")
		if key == "peers.listen" {
			other = "WEIR_PEERS_LISTEN" // it has no flag
		}
		return nil, fmt.Errorf("%s: %s is in use: end what listens there, or choose another (%s)", key, address, other)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return l, nil
}

func serveOn(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// announce says where the replica is, what it stands before, and what a newcomer may wonder about.
func (r *replica) announce(traffic, door net.Addr) {
	r.log.Info("listening", "listen", traffic.String(), "admin", door.String(), "upstreams", r.config.Targets(),
		"store", r.config.Store.Kind, "version", build()["version"])
	if names := r.config.WithoutLifetime(); len(names) > 0 {
		r.log.Info("answers that state no lifetime are not kept on these routes; cache.ttl (or --ttl) gives them one", "routes", names)
	}
}

// reloadPause is the least time between two reloads: what asks for one meanwhile is served by the next (R31).
const reloadPause = time.Second

func (r *replica) obey(ctx context.Context, hup, term <-chan os.Signal) error {
	changes, err := r.source.Watch(ctx)
	if err != nil {
		r.log.Warn("changes of the configuration are not seen by themselves: send SIGHUP", "fault", err.Error())
	}
	var last time.Time
	var due <-chan time.Time
	reloadSoon := func() {
		if due == nil {
			due = time.After(time.Until(last.Add(reloadPause)))
		}
	}
	for {
		select {
		case <-hup:
			reloadSoon()
		case <-changes:
			if r.source.Digest() != r.read {
				reloadSoon()
			}
		case <-due:
			due, last = nil, time.Now()
			r.reload()
		case <-term:
			return r.leave(term)
		case <-ctx.Done(): // a listener failed
			return errors.Join(r.traffic.Close(), r.admin.Close())
		}
	}
}

// leave is R32: not ready but accepting, then no new connections, then what is under way ends. A second signal cuts all.
func (r *replica) leave(term <-chan os.Signal) error {
	r.leaving.Store(true)
	r.log.Info("draining", "lame_duck", r.config.Drain.LameDuck.String(), "timeout", r.config.Drain.Timeout.String())
	ctx, cut := context.WithTimeout(context.Background(), r.config.Drain.Timeout)
	defer cut()
	go r.warmer.Close() // another replica takes over at once
	go func() {
		select {
		case <-term:
			cut()
		case <-ctx.Done():
		}
	}()
	select {
	case <-time.After(r.config.Drain.LameDuck):
	case <-ctx.Done():
	}
	// Exchanges first: until they have ended they may start fills.
	_ = r.traffic.Shutdown(ctx)
	drained := r.handler.Drain(ctx)
	if n := r.handler.Gauges().Exchanges; n > 0 {
		r.log.Warn("what was still under way is cut", "exchanges", n)
	}
	err := errors.Join(r.traffic.Close(), ignoring(drained, ctx.Err()), r.admin.Close())
	r.log.Info("drained")
	return err
}

// ignoring is err, unless it is the end of the time there was: that has been told already.
func ignoring(err, end error) error {
	if end != nil && errors.Is(err, end) {
		return nil
	}
	return err
}

// reload swaps the policy, which is all that can change in a running process.
func (r *replica) reload() {
	r.read = r.source.Digest()
	now, err := config.Load(r.source)
	if err == nil {
		err = r.use(now)
	}
	problems := config.Problems{}
	if errors.As(err, &problems) {
		for _, p := range problems {
			r.log.Error("reload refused, the old configuration stays", "problem", p.String())
		}
	} else if err != nil {
		r.log.Error("reload refused, the old configuration stays", "problem", err.Error())
	}
}

func (r *replica) use(now *config.Config) error {
	rules := now.Policy()
	rules.Upstreams = r.config.Policy().Upstreams // a route can only go where we stand
	p, err := policy.New(rules)
	if err != nil {
		return fmt.Errorf("%w (other upstreams need a restart)", err)
	}
	if err := r.telemetry.SetLevel(now.Telemetry.Log.Level); err != nil {
		return err
	}
	r.handler.Use(p)
	r.warmer.Use(now.Warm)
	r.log.Info("reloaded", "routes", len(now.Routes), "restart_needed_for", config.Restart(r.config, now))
	return nil
}

// close ends the rooms, from the outside in.
func (r *replica) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r.warmer != nil {
		r.warmer.Close()
	}
	for _, u := range r.upstreams {
		u.Close()
	}
	if r.store != nil {
		if err := r.store.Close(); err != nil {
			r.log.Warn("store", "fault", err.Error())
		}
	}
	_ = r.telemetry.Shutdown(ctx) // lines that nobody reads are lost
}
