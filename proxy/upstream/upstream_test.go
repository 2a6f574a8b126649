package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

func config(url string) Config {
	return Config{
		Name: "api", URL: url, ConnectTimeout: time.Second, ResponseTimeout: 2 * time.Second, IdleTimeout: time.Second,
		FillTimeout: time.Minute, MaxConcurrent: 5, MaxStreams: 1, Queue: 10, QueueTimeout: 5 * time.Second,
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The limit counts before anything is dialled (B140): a hundred at once are never more than five under way; ten queue,
// and for those the queue is full at once.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, done, busy atomic.Int64
		u, err := With(config("http://upstream.test"), roundTripper(func(*http.Request) (*http.Response, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(3 * time.Second)
			now.Add(-1)
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x"))}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			go func() {
				res, err := u.RoundTrip(httptest.NewRequest("GET", "http://upstream.test/", nil))
				if errors.Is(err, ErrBusy) {
					busy.Add(1)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body) // the slot ends with the last byte, whether closed or not
				done.Add(1)
			}()
		}
		synctest.Wait()
		if s := u.Stats(); s.Running != 5 || s.Queued != 10 || busy.Load() != 85 {
			t.Errorf("%+v, %d turned away; want 5 running, 10 queued, 85 turned away", s, busy.Load())
		}
		time.Sleep(time.Minute)
		// Of the ten, five start after 3 s; the others would start after 6 s, and give up after 5 s.
		if most.Load() != 5 || done.Load() != 10 || busy.Load() != 90 {
			t.Errorf("at once %d, done %d, turned away %d; want 5, 10, 90", most.Load(), done.Load(), busy.Load())
		}
		if s := u.Stats(); s.Running != 0 || s.Queued != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// Who gives up while queueing leaves nothing behind.
func TestLeavingTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config("http://upstream.test")
		c.MaxConcurrent = 1
		u, err := With(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		held, err := u.Enter(t.Context(), At(policy.ClientWaits))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := u.Enter(ctx, At(policy.ClientWaits)); failed <- err }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		held.Leave()
		held.Leave()
		if s := u.Stats(); s.Running != 0 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		again, err := u.Enter(t.Context(), At(policy.ClientWaits))
		if err != nil {
			t.Fatal(err)
		}
		again.Leave()
	})
}

// Streams leave the budget at their head, and have one of their own (R24).
func TestStreams(t *testing.T) {
	c := config("http://upstream.test")
	c.MaxConcurrent = 1
	u, err := With(c, roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"Text/Event-Stream; charset=utf-8"}}, Body: http.NoBody}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest("GET", "http://upstream.test/", nil)
	first, err := u.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if s := u.Stats(); s.Running != 0 || s.Streams != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := u.RoundTrip(req); !errors.Is(err, ErrBusy) {
		t.Errorf("a second stream: %v", err)
	}
	first.Body.Close()
	if s := u.Stats(); s.Running != 0 || s.Streams != 0 {
		t.Errorf("%+v", s)
	}
}

// What goes upstream is what the key says, byte for byte (B054).
func TestAim(t *testing.T) {
	for _, base := range []string{"http://upstream.test:9000", "http://upstream.test:9000/base", "http://upstream.test:9000/base/"} {
		u, err := With(config(base), nil)
		if err != nil {
			t.Fatal(err)
		}
		prefix := strings.TrimSuffix(strings.TrimPrefix(base, "http://upstream.test:9000"), "/")
		for _, target := range []string{
			"/", "/a", "/a%2bb", "/a%2Bb", "/a%2Fb", "//a", "/a//b", "/./a", "/a;v=1", "/%41", "/a?", "/a?b=c;d", "/a?%zz", "/a%20b?c=%20", "/[a]", "/é", "/a:b",
		} {
			req, err := http.NewRequest("GET", "http://x/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Aim(req, target); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(prefix+target, "é", "%C3%A9")
			if got := req.URL.RequestURI(); got != want {
				t.Errorf("%s on %s is sent as %q, want %q", target, base, got, want)
			}
		}
	}
}

// Each way of failing has its name; the upstreams are real servers on loopback.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  policy.FaultKind
	}{
		"garbage":    {func(c net.Conn) { _, _ = io.WriteString(c, "not HTTP at all\r\n\r\n") }, policy.Garbage},
		"closed":     {func(net.Conn) {}, policy.Reset},
		"bad length": {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n") }, policy.Garbage},
		"reset":      {func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }, policy.Reset},
		"endless head": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 200<<10)+"\r\n\r\n")
		}, policy.Garbage},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					c.serve(conn)
					conn.Close()
				}
			}()
			if got := fail(t, config("http://"+l.Addr().String())); got != c.want {
				t.Errorf("fault %d, want %d", got, c.want)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if got := fail(t, config("http://"+l.Addr().String())); got != policy.Refused {
			t.Errorf("fault %d", got)
		}
	})
	t.Run("no such host", func(t *testing.T) {
		if got := fail(t, config("http://nowhere.invalid")); got != policy.Refused {
			t.Errorf("fault %d", got)
		}
	})
	t.Run("not TLS", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		defer s.Close()
		if got := fail(t, config("https"+strings.TrimPrefix(s.URL, "http"))); got != policy.Refused {
			t.Errorf("fault %d", got)
		}
	})
	t.Run("no head in time", func(t *testing.T) {
		held := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
		defer s.Close()
		defer close(held)
		c := config(s.URL)
		c.ResponseTimeout = 50 * time.Millisecond
		if got := fail(t, c); got != policy.TimeoutBefore {
			t.Errorf("fault %d", got)
		}
	})
}

func fail(t *testing.T, c Config) policy.FaultKind {
	t.Helper()
	u, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Aim(req, "/"); err != nil {
		t.Fatal(err)
	}
	res, err := u.RoundTrip(req)
	if err == nil {
		res.Body.Close()
		t.Fatalf("answered %s", res.Status)
	}
	if u.Stats().Failures != 1 || u.Stats().Running != 0 {
		t.Errorf("%+v", u.Stats())
	}
	return FaultOf(err).Kind
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"url is missing":                 func(c *Config) { c.URL = "" },
		"exclude each other":             func(c *Config) { c.URLs = []string{"http://b"} },
		"write http://host:port":         func(c *Config) { c.URL = "ftp://a" },
		"only scheme, host":              func(c *Config) { c.URL = "http://a/?q" },
		"99999 is no port":               func(c *Config) { c.URL = "http://a:99999" },
		"connect_timeout must be longer": func(c *Config) { c.ConnectTimeout = 0 },
		"max_concurrent must be":         func(c *Config) { c.MaxConcurrent = 0 },
		"must not be negative":           func(c *Config) { c.Queue = -1 },
	} {
		c := config("http://a")
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A member that refuses has the next one asked; the order is the members', and everybody gets an answer.
func TestMembers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var paths []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths = append(paths, r.RequestURI) }))
	defer s.Close()
	c := config("")
	c.URLs = []string{"http://" + l.Addr().String() + "/dead", s.URL + "/alive"}
	u, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for range 4 {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Aim(req, "/a%2Fb?c"); err != nil {
			t.Fatal(err)
		}
		res, err := u.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if got := strings.Join(paths, " "); got != strings.TrimSpace(strings.Repeat(" /alive/a%2Fb?c", 4)) {
		t.Errorf("asked for %s", got)
	}
}
