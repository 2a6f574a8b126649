package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
	"weir/store/memory"
)

// one is a listener of one connection.
type one struct {
	net.Conn
	calls chan net.Conn
}

func (o one) Accept() (net.Conn, error) {
	if c, ok := <-o.calls; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (o one) Addr() net.Addr { return o.LocalAddr() }

type nobody struct{}

func (nobody) Exchange(proxy.Report) {}
func (nobody) Fill(fill.Report)      {}

type upstreamed func(*http.Request) (*http.Response, error)

func (f upstreamed) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// behind sends text to a traffic server, and returns what comes back until the server hangs up, and when.
func behind(t *testing.T, text string) (answer string, after time.Duration) {
	t.Helper()
	route := policy.Route{Name: "all", Upstream: "api"}
	p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{route}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := upstream.With(upstream.Config{
		Name: "api", URL: "http://upstream.test", ConnectTimeout: time.Second, ResponseTimeout: time.Minute,
		IdleTimeout: time.Minute, FillTimeout: time.Hour, MaxConcurrent: 1, MaxStreams: 1, QueueTimeout: time.Second,
	}, upstreamed(func(r *http.Request) (*http.Response, error) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		rec := httptest.NewRecorder()
		rec.WriteHeader(http.StatusNoContent)
		return rec.Result(), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	s := memory.New(memory.Config{MaxSize: 1 << 20})
	defer s.Close()
	r := &replica{log: slog.New(slog.DiscardHandler), handler: proxy.New(proxy.Options{
		Policy: p, Store: s, Upstreams: map[string]*upstream.Upstream{"api": u}, Observer: nobody{},
		Config: proxy.Config{Spool: 1 << 20, MaxWaiting: 1, MaxBody: 1 << 20},
	})}
	defer func() { _ = r.handler.Drain(t.Context()) }()
	client, server := net.Pipe()
	calls := make(chan net.Conn, 1)
	calls <- server
	web := r.trafficServer()
	go func() { _ = web.Serve(one{server, calls}) }()
	begun := time.Now()
	go func() { _, _ = io.WriteString(client, text) }()
	got, _ := io.ReadAll(client)
	after = time.Since(begun)
	close(calls)
	web.Close()
	return string(got), after
}

// A client has ten seconds for its head, and may pause within its body for half a minute; then its connection ends, with
// an answer where there is a request to answer. Neither is the upstream's failure.
func TestSlowClientsAreCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		sent, status string
		after        time.Duration
	}{
		"nothing":          {"", "", 10 * time.Second},
		"half a head":      {"GET / HTTP/1.1\r\nHost: a.te", "", 10 * time.Second},
		"no end":           {"GET / HTTP/1.1\r\nHost: a.test\r\n", "", 10 * time.Second},
		"half a body":      {"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhalf", "HTTP/1.1 408 ", 30 * time.Second},
		"half a large one": {"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nhalf", "HTTP/1.1 408 ", 30 * time.Second},
		"half a chunk":     {"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", "HTTP/1.1 408 ", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, after := behind(t, c.sent)
				if !strings.HasPrefix(got, c.status) || c.status == "" && got != "" || after.Round(time.Second) != c.after {
					t.Errorf("%q after %v; want %q after %v", got, after, c.status, c.after)
				}
			})
		})
	}
}
