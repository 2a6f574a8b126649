package upstream

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// fickle is a server that answers what comes first on a connection, and hangs up on a request for /later that it has
// read on a kept one. It counts those.
func fickle(t *testing.T) (address string, seen *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seen = new(atomic.Int64)
	serve := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		for i := 0; ; i++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.URL.Path == "/later" {
				seen.Add(1)
				if i > 0 {
					return
				}
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String(), seen
}

// On a kept connection that breaks before an answer, only what is safe and has no body is sent again, and counted; and
// not without end (R29).
func TestSentAgain(t *testing.T) {
	for _, c := range []struct {
		method, named string
		spent         bool // the allowance is used up
		want          int64
	}{
		{method: "GET", want: 2}, {method: "HEAD", want: 2}, {method: "OPTIONS", want: 2},
		{method: "GET", spent: true, want: 1},
		{method: "POST", want: 1}, {method: "DELETE", want: 1}, {method: "PUT", want: 1}, {method: "TRACE", want: 1},
		{method: "POST", named: "Idempotency-Key", want: 1}, {method: "DELETE", named: "X-Idempotency-Key", want: 1},
	} {
		t.Run(c.method+c.named, func(t *testing.T) {
			address, seen := fickle(t)
			u, err := New(config("http://" + address))
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			ask := func(method, target string) error {
				req, _ := http.NewRequestWithContext(t.Context(), method, "http://x"+target, nil)
				if c.named != "" {
					req.Header.Set(c.named, "1")
				}
				if err := u.Aim(req, target); err != nil {
					return err
				}
				res, err := u.RoundTrip(req)
				if err != nil {
					return err
				}
				return res.Body.Close()
			}
			if err := ask("GET", "/first"); err != nil {
				t.Fatal(err)
			}
			if c.spent {
				u.repeats.left.Store(0)
			}
			err = ask(c.method, "/later")
			if got := seen.Load(); got != c.want || (err == nil) != (c.want == 2) {
				t.Errorf("sent %d times, %v; want %d", got, err, c.want)
			}
			if s := u.Stats(); s.Requests != uint64(1+c.want) || s.Repeated != uint64(c.want-1) || s.Failures != uint64(2-c.want) {
				t.Errorf("%+v", s)
			}
			if err != nil && FaultOf(err).Kind != policy.Reset {
				t.Errorf("%v is told as %v", err, FaultOf(err).Kind)
			}
		})
	}
}

// Ten repeats are allowed at once, and one more for every ten requests; what is not used is not saved.
func TestAllowance(t *testing.T) {
	var a allowance
	taken := func() (n int) {
		for a.take() {
			n++
		}
		return n
	}
	for range 1000 {
		a.earn()
	}
	if got := taken(); got != 10 {
		t.Errorf("%d of a thousand requests, want 10", got)
	}
	for range 25 {
		a.earn()
	}
	if got := taken(); got != 2 {
		t.Errorf("%d of 25 requests, want 2", got)
	}
}

// A member that cannot be reached has the next one asked, but not with what is not to be sent twice.
func TestElsewhere(t *testing.T) {
	for method, want := range map[string]int64{"GET": 2, "POST": 1, "TRACE": 1} {
		var asked atomic.Int64
		c := config("")
		c.URL, c.URLs = "", []string{"http://a.test", "http://b.test"}
		u, err := With(c, roundTripper(func(*http.Request) (*http.Response, error) {
			if asked.Add(1) == 1 {
				return nil, &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://a.test/", nil)
		if res, err := u.RoundTrip(req); (err == nil) != (want == 2) || asked.Load() != want {
			t.Errorf("%s: %v, %v, asked %d times, want %d", method, res, err, asked.Load(), want)
		}
	}
}

// reading is an upstream that reads a request's body to its end before it answers, and then works for a while.
func reading(t *testing.T, work time.Duration) *Upstream {
	t.Helper()
	c := config("http://upstream.test")
	c.MaxConcurrent = 1
	u, err := With(c, roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			if _, err := io.ReadAll(r.Body); err != nil {
				return nil, err
			}
		}
		time.Sleep(work)
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A client that is slow to send its body holds no slot (R24): after 250 ms others have it. Its last bytes wait for
// one, since with them the upstream's work begins.
func TestSlowUploadHoldsNoSlot(t *testing.T) {
	for name, length := range map[string]int64{"of known length": 4, "chunked": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := reading(t, 3*time.Second)
				body, client := io.Pipe()
				done := make(chan time.Duration, 2)
				begun := time.Now()
				ask := func(method string, body io.Reader, length int64) {
					req, _ := http.NewRequestWithContext(t.Context(), method, "http://upstream.test/", body)
					req.ContentLength = length
					res, err := u.RoundTrip(req)
					if err != nil {
						t.Error(err)
						return
					}
					res.Body.Close()
					done <- time.Since(begun)
				}
				go ask("POST", body, length)
				_, _ = client.Write([]byte("ab"))
				if s := u.Stats(); s.Running != 1 || s.Streams != 0 {
					t.Errorf("at first: %+v", s)
				}
				go ask("GET", nil, 0)
				time.Sleep(time.Second)
				if s := u.Stats(); s.Running != 1 || s.Queued != 0 || s.Streams != 1 {
					t.Errorf("after a while: %+v; want the GET running, and the upload among the streams", s)
				}
				_, _ = client.Write([]byte("cd"))
				client.Close()
				synctest.Wait()
				if s := u.Stats(); s.Running != 1 || s.Queued != 1 || s.Streams != 1 {
					t.Errorf("the body has come: %+v; want it to wait for the slot", s)
				}
				// The GET has the slot from 0.25 s to 3.25 s, the upload from then to 6.25 s.
				if a, b := <-done, <-done; a != 3250*time.Millisecond || b != 6250*time.Millisecond {
					t.Errorf("answered after %v and %v, want 3.25s and 6.25s", a, b)
				}
				if s := u.Stats(); s.Running != 0 || s.Queued != 0 || s.Streams != 0 {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}

// Whoever finds no slot for its last bytes is told so, and an upload that comes quickly never lets its own go.
func TestUploadAndTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := reading(t, time.Minute)
		body, client := io.Pipe()
		refused := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://upstream.test/", body)
			_, err := u.RoundTrip(req)
			refused <- err
		}()
		time.Sleep(2 * time.Second)
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://upstream.test/", strings.NewReader("all at once"))
			if _, err := u.RoundTrip(req); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		client.Close()
		if err := <-refused; FaultOf(err).Kind != policy.Busy {
			t.Errorf("%v, want that it is busy", err)
		}
		if s := u.Stats(); s.Running != 1 || s.Streams != 0 || s.Failures != 0 {
			t.Errorf("%+v; want the quick upload alone, in its slot", s)
		}
		time.Sleep(time.Minute)
	})
}

// Whether a sick upstream is well again is not left to an upload that is slow to come: others try meanwhile, and its own
// last bytes are not spared for it.
func TestSlowUploadIsNoTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { triesByUpload(t, 2*slowUpload, 0) })
	synctest.Test(t, func(t *testing.T) { triesByUpload(t, 3*pause, 1) })
}

// triesByUpload sends an upload that takes its time to an upstream that was down, and pages meanwhile.
func triesByUpload(t *testing.T, takes time.Duration, pages int) {
	t.Helper()
	dead := true
	c := config("http://upstream.test")
	u, err := With(c, roundTripper(func(r *http.Request) (*http.Response, error) {
		if dead {
			return nil, &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
		}
		if r.Body != nil {
			if _, err := io.ReadAll(r.Body); err != nil {
				return nil, err
			}
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method string, body io.Reader) error {
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://upstream.test/", body)
		res, err := u.RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	for range unreached {
		_ = ask("GET", nil)
	}
	if s := u.Stats(); s.Health != "down" {
		t.Fatalf("%+v", s)
	}
	dead = false
	time.Sleep(2 * pause)
	body, client := io.Pipe()
	sent := make(chan error, 1)
	go func() { sent <- ask("POST", body) }()
	_, _ = client.Write([]byte("a"))
	time.Sleep(takes)
	for range pages {
		if err := ask("GET", nil); err != nil {
			t.Errorf("while the upload comes: %v", err)
		}
	}
	client.Close()
	if err := <-sent; err != nil {
		t.Errorf("the upload itself: %v", err)
	}
}

// Where nothing is left to lend, an upload that is slower than the least rate gives way.
func TestSlowUploadGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := reading(t, time.Second) // one slot, one stream
		ends := make(chan error, 2)
		for range 2 {
			body, client := io.Pipe()
			go func() {
				for {
					if _, err := client.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			go func() {
				req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://upstream.test/", body)
				_, err := u.RoundTrip(req)
				body.Close()
				ends <- err
			}()
		}
		time.Sleep(10 * time.Second)
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://upstream.test/", nil)
		res, err := u.RoundTrip(req)
		if err != nil {
			t.Fatalf("a page meanwhile: %v", err)
		}
		res.Body.Close()
		for range 2 {
			if err := <-ends; !errors.Is(err, ErrTooSlow) {
				t.Errorf("an upload: %v", err)
			}
			time.Sleep(time.Minute)
			// The last one is in nobody's way: it holds the only stream, but nobody wants one.
		}
	})
}
