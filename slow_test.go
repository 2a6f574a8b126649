package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// front is a traffic server before an upstream, on a listener of one connection. End it before the bubble ends.
func front(t *testing.T, up upstreamed) (client net.Conn, end func()) {
	t.Helper()
	p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{{Name: "all", Upstream: "api"}}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := upstream.With(upstream.Config{
		Name: "api", URL: "http://upstream.test", ConnectTimeout: time.Second, ResponseTimeout: time.Hour,
		IdleTimeout: 2 * time.Minute, FillTimeout: time.Hour, MaxConcurrent: 1, MaxStreams: 1, QueueTimeout: time.Second,
	}, up)
	if err != nil {
		t.Fatal(err)
	}
	s := memory.New(memory.Config{MaxSize: 1 << 20})
	r := &replica{log: slog.New(slog.DiscardHandler), handler: proxy.New(proxy.Options{
		Policy: p, Store: s, Upstreams: map[string]*upstream.Upstream{"api": u}, Observer: nobody{},
		Config: proxy.Config{Spool: 1 << 20, MaxWaiting: 1, MaxBody: 1 << 20},
	})}
	client, server := net.Pipe()
	calls := make(chan net.Conn, 1)
	calls <- server
	web := r.trafficServer()
	go func() { _ = web.Serve(one{server, calls}) }()
	return client, func() {
		client.Close()
		close(calls)
		web.Close()
		_ = r.handler.Drain(t.Context())
		s.Close()
	}
}

// behind sends text to a traffic server, and returns what comes back until the server hangs up, and when.
func behind(t *testing.T, text string) (answer string, after time.Duration) {
	t.Helper()
	client, end := front(t, func(r *http.Request) (*http.Response, error) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		return answered(http.NoBody), nil
	})
	defer end()
	begun := time.Now()
	go func() { _, _ = io.WriteString(client, text) }()
	got, _ := io.ReadAll(client)
	return string(got), time.Since(begun)
}

func answered(body io.ReadCloser, lines ...string) *http.Response {
	res := &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"text/plain"}},
		Body: body, ContentLength: -1, TransferEncoding: []string{"chunked"},
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		res.Header.Set(name, value)
	}
	return res
}

// halting is a body in two halves, with a pause between them.
func halting() io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		_, _ = io.WriteString(in, "one ")
		time.Sleep(time.Minute)
		_, _ = io.WriteString(in, "two")
		in.Close()
	}()
	return out
}

// Where the upstream pauses no client is too slow, in either protocol: neither one that listens to events, nor one that
// waits for a page, nor one whose upload is not read yet.
func TestPausesAreNobodysFault(t *testing.T) {
	for name, speaks := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		for path, c := range map[string]struct {
			method string
			up     upstreamed
		}{
			"events": {"GET", func(*http.Request) (*http.Response, error) {
				return answered(halting(), "Content-Type: text/event-stream"), nil
			}},
			"page": {"GET", func(*http.Request) (*http.Response, error) {
				return answered(halting(), "Cache-Control: max-age=60"), nil
			}},
			"passed": {"PUT", func(*http.Request) (*http.Response, error) { return answered(halting()), nil }},
			"upload": {"PUT", func(r *http.Request) (*http.Response, error) {
				part := make([]byte, 1000)
				_, _ = io.ReadFull(r.Body, part)
				time.Sleep(time.Minute)
				n, err := io.Copy(io.Discard, r.Body)
				if err != nil || n != 8<<20-1000 {
					return nil, fmt.Errorf("%d bytes and then %w", n, err)
				}
				return answered(io.NopCloser(strings.NewReader("one two"))), nil
			}},
		} {
			t.Run(name+" "+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					conn, end := front(t, c.up)
					transport := &http.Transport{
						Protocols:   new(http.Protocols),
						DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
					}
					speaks(transport.Protocols)
					var body io.Reader
					if path == "upload" {
						body = strings.NewReader(strings.Repeat("x", 8<<20))
					}
					req, err := http.NewRequestWithContext(t.Context(), c.method, "http://a.test/"+path, body)
					if err != nil {
						t.Fatal(err)
					}
					res, err := transport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(res.Body)
					if res.StatusCode != 200 || string(got) != "one two" || err != nil {
						t.Errorf("%s: %q, %v", res.Status, got, err)
					}
					transport.CloseIdleConnections()
					end()
				})
			})
		}
	}
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
