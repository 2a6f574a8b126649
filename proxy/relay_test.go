package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
	"weir/store/memory"
)

// fleet is two replicas that share a store and reach each other by real sockets.
type fleet struct {
	t        *testing.T
	up       *script
	handlers [2]*Handler
	clients  [2]*httptest.Server
	peers    [2]*httptest.Server
}

type silent struct{}

func (silent) Exchange(Report)  {}
func (silent) Fill(fill.Report) {}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, up: &script{answers: map[string]answer{}, asked: map[string][]*http.Request{}}}
	shared := memory.New(memory.Config{MaxSize: 64 << 20})
	p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{{Name: "all", Upstream: "api", Cache: policy.Cache{
		Wait: policy.Wait{Then: "503"}, SetCookie: "refuse", ClientDirectives: "honour", Invalidate: "rfc",
		EarlyRefresh: policy.EarlyRule{Mode: "off", Beta: 1, Exponent: 3}, UncacheableFor: time.Minute,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.handlers {
		u, err := upstream.With(upstream.Config{
			Name: "api", URL: "http://upstream.test", ConnectTimeout: time.Second, ResponseTimeout: 30 * time.Second,
			IdleTimeout: 30 * time.Second, FillTimeout: time.Minute, MaxConcurrent: 64, MaxStreams: 8, Queue: 256, QueueTimeout: 5 * time.Second,
		}, f.up)
		if err != nil {
			t.Fatal(err)
		}
		f.peers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.handlers[i].Relay(w, r) }))
		f.handlers[i] = New(Options{
			Policy: p, Store: shared, Upstreams: map[string]*upstream.Upstream{"api": u}, Observer: silent{},
			Config: Config{
				CacheStatus: "weir", Spool: 64 << 20, MaxWaiting: 1000, MaxBody: 8 << 20,
				Advertise: strings.TrimPrefix(f.peers[i].URL, "http://"),
			},
		})
		f.clients[i] = httptest.NewServer(f.handlers[i])
	}
	t.Cleanup(func() {
		for i := range f.handlers {
			f.clients[i].Close()
			f.peers[i].Close()
			if err := f.handlers[i].Drain(t.Context()); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// get sends a request with the host that both replicas are asked for.
func (f *fleet) get(replica int, path string) (*http.Response, error) {
	req, err := http.NewRequest("GET", f.clients[replica].URL+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Host = "example.com"
	return http.DefaultClient.Do(req)
}

// until waits for something that the other side is about to do.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 5 s: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// gatedBody sends head and first, waits for the gate, and sends the rest.
func gatedBody(gate <-chan struct{}, first, rest string, lines ...string) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		res, err := respond(200, lines...)(r, n)
		res.ContentLength, res.TransferEncoding = -1, []string{"chunked"}
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader(first), gated{gate}, strings.NewReader(rest)))
		return res, err
	}
}

// Clients of the other replica read the same bytes while they come.
func TestLiveBytesAcrossReplicas(t *testing.T) {
	for name, lines := range map[string][]string{
		"kept": {"Cache-Control: max-age=60"}, "shared but not kept": {"X-Nothing: said"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			gate := make(chan struct{})
			f.up.on("/p", gatedBody(gate, "first|", "rest", lines...))
			holder, err := f.get(0, "/p")
			if err != nil {
				t.Fatal(err)
			}
			follower, err := f.get(1, "/p")
			if name != "kept" {
				// Asked after the head: the holder's lease has ended by then, and this one fills for itself.
				if err != nil {
					t.Fatal(err)
				}
				close(gate)
				body, err := io.ReadAll(follower.Body)
				if err != nil || string(body) != "first|rest" {
					t.Errorf("%q, %v", body, err)
				}
				_, _ = io.Copy(io.Discard, holder.Body)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := follower.Header.Get("Cache-Status"); got != "weir; fwd=uri-miss; collapsed" {
				t.Errorf("Cache-Status %q", got)
			}
			line := make([]byte, len("first|"))
			if _, err := io.ReadFull(follower.Body, line); err != nil || string(line) != "first|" {
				t.Fatalf("before the upstream has ended: %q, %v", line, err)
			}
			close(gate)
			for _, body := range []io.Reader{io.MultiReader(bytes.NewReader(line), follower.Body), holder.Body} {
				if got, err := io.ReadAll(body); err != nil || string(got) != "first|rest" {
					t.Errorf("%q, %v", got, err)
				}
			}
			if n := f.up.count("/p"); n != 1 {
				t.Errorf("upstream asked %d times", n)
			}
		})
	}
}

// What states no lifetime is shared with those who waited on the other replica, though it is kept nowhere.
func TestUnkeptAnswerIsSharedAcrossReplicas(t *testing.T) {
	f := newFleet(t)
	gate := make(chan struct{})
	f.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
		<-gate
		return respond(200)(r, n)
	})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			res, err := f.get(i%2, "/p")
			if err != nil {
				t.Error(err)
				return
			}
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "v1" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	until(t, "all wait", func() bool {
		a, b := f.handlers[0].Gauges(), f.handlers[1].Gauges()
		return a.WaitingLocal+a.WaitingRemote+b.WaitingLocal+b.WaitingRemote == 20
	})
	// The other replica's relay must stand before the answer comes: it has boarded the holder's spool.
	until(t, "the relay has boarded", func() bool { return f.handlers[0].table.Readers()+f.handlers[1].table.Readers() == 21 })
	close(gate)
	wg.Wait()
	if n := f.up.count("/p"); n != 1 {
		t.Errorf("upstream asked %d times", n)
	}
}

// The holder dies in mid-body: a client that has bytes sees a broken connection, never a short answer that looks whole.
func TestHolderDiesInMidBody(t *testing.T) {
	f := newFleet(t)
	gate := make(chan struct{})
	defer close(gate)
	f.up.on("/p", gatedBody(gate, "first|", "rest", "Cache-Control: max-age=60"))
	if _, err := f.get(0, "/p"); err != nil {
		t.Fatal(err)
	}
	follower, err := f.get(1, "/p")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(follower.Body, make([]byte, len("first|"))); err != nil {
		t.Fatal(err)
	}
	f.peers[0].CloseClientConnections()
	if rest, err := io.ReadAll(follower.Body); err == nil {
		t.Errorf("ended cleanly after %q", rest)
	}
}

// The holder dies before its head: its connection breaks, and one of those who waited takes over at once. Should it
// live after all, what it brings is not stored.
func TestTakeover(t *testing.T) {
	f := newFleet(t)
	gate := make(chan struct{})
	f.up.on("/p", inTurn(func(r *http.Request, n int) (*http.Response, error) {
		<-gate
		return respond(200, "Cache-Control: max-age=60")(r, n)
	}, respond(200, "Cache-Control: max-age=60")))
	var wg sync.WaitGroup
	wg.Go(func() {
		if res, err := f.get(0, "/p"); err != nil || res.StatusCode != 200 {
			t.Errorf("the former holder's client: %v, %v", res, err)
		}
	})
	until(t, "the upstream is asked", func() bool { return f.up.count("/p") == 1 })
	began := time.Now()
	wg.Go(func() {
		res, err := f.get(1, "/p")
		if err != nil {
			t.Error(err)
			return
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "v2" {
			t.Errorf("%q, %v", body, err)
		}
	})
	until(t, "the relay has boarded", func() bool { return f.handlers[0].table.Readers() == 2 })
	f.peers[0].CloseClientConnections()
	until(t, "the follower has taken over", func() bool { return f.up.count("/p") == 2 })
	if waited := time.Since(began); waited > 4*time.Second {
		t.Errorf("took over after %v: that is the lease running out", waited)
	}
	close(gate)
	wg.Wait()
	until(t, "the heir's answer is stored", func() bool {
		res, err := f.get(1, "/p")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		return string(body) == "v2" && strings.Contains(res.Header.Get("Cache-Status"), "hit")
	})
}

// Nothing is served to who does not know a token.
func TestRelayTellsNobodyElse(t *testing.T) {
	f := newFleet(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.peers[0].URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, path := range []string{"/", "/fill/", "/fill/guess", "/p"} {
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 404 {
			t.Fatalf("%s: %v, %v", path, res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
}
