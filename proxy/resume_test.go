package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
	"weir/store"
)

// losing is a store whose bodies lie elsewhere, and have lost what follows a byte.
type losing struct {
	store.Store
	from int64
}

func (l losing) Peek(key policy.Key) (*store.Entry, bool) {
	e, ok := l.Store.Peek(key)
	return l.without(e), ok
}

func (l losing) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	t, err := l.Store.Take(ctx, key, want)
	t.Entry = l.without(t.Entry)
	return t, err
}

func (l losing) without(e *store.Entry) *store.Entry {
	if e == nil || e.Kind != policy.Answer {
		return e
	}
	c := *e
	c.Body = torn{e.Body, l.from}
	return &c
}

type torn struct {
	store.Body
	from int64
}

func (t torn) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= t.from {
		return t.Body.ReadAt(ctx, p, off)
	}
	n, _ := t.Body.ReadAt(ctx, p[:max(t.from-off, 0)], off)
	return n, errors.New("segment gone")
}

// pattern is a body each of whose places looks different.
func pattern(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.String()[:n]
}

// serving is an upstream with a page that may be asked for in part. How it answers that is changed by tamper.
func serving(page string, tag string, tamper func(*http.Response)) answer {
	return func(r *http.Request, nth int) (*http.Response, error) {
		res, err := respond(200, "Cache-Control: max-age=60")(r, nth)
		res.Header.Set("Etag", tag)
		body := page
		var from, to int
		switch _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); {
		case r.Header.Get("If-None-Match") == tag:
			res.StatusCode, body = 304, ""
		case err == nil && r.Header.Get("If-Range") == tag:
			res.StatusCode, body = 206, page[from:to+1]
			res.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(page)))
		}
		res.Body, res.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		if r.Header.Get("Range") != "" && tamper != nil {
			tamper(res)
		}
		return res, err
	}
}

// The store loses the end of a body that is being sent: the rest comes from the upstream, in the same answer, if that
// is the same answer still; else the connection breaks. Never is a short or mixed answer whole (R12).
func TestLostInMidBody(t *testing.T) {
	const size, from = 200 << 10, 70 << 10
	page := pattern(size)
	for name, c := range map[string]struct {
		tag     string // "": strong
		lines   []string
		tamper  func(*http.Response)
		resumes string // the range that the upstream is asked for; "": it is not asked
		want    string // "": broken off
	}{
		"the same still":      {resumes: fmt.Sprintf("bytes=%d-%d", from, size-1), want: page},
		"a range of it":       {lines: []string{fmt.Sprintf("Range: bytes=%d-%d", from-10, from+9)}, resumes: fmt.Sprintf("bytes=%d-%d", from, from+9), want: page[from-10 : from+10]},
		"a range before it":   {lines: []string{"Range: bytes=5-9"}, want: page[5:10]},
		"weak validator":      {tag: `W/"1"`},
		"changed meanwhile":   {tamper: func(r *http.Response) { r.StatusCode = 200; r.Header.Del("Content-Range") }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
		"another tag":         {tamper: func(r *http.Response) { r.Header.Set("Etag", `"2"`) }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
		"another coding":      {tamper: func(r *http.Response) { r.Header.Set("Content-Encoding", "gzip") }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
		"other bytes":         {tamper: func(r *http.Response) { r.Header.Set("Content-Range", "bytes 0-9/10") }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
		"the rest is short":   {tamper: func(r *http.Response) { r.Body = io.NopCloser(strings.NewReader("x")) }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
		"an error":            {tamper: func(r *http.Response) { r.StatusCode = 503 }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
		"no bytes of it left": {tamper: func(r *http.Response) { r.StatusCode = 416 }, resumes: fmt.Sprintf("bytes=%d-%d", from, size-1)},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{store: func(s store.Store) store.Store { return losing{s, from} }}, func(w *world) {
				tag := c.tag
				if tag == "" {
					tag = `"1"`
				}
				w.up.on("/p", serving(page, tag, c.tamper))
				w.get("/p")
				got := w.get("/p", c.lines...)
				if got.aborted != (c.want == "") {
					t.Errorf("broken off: %v", got.aborted)
				}
				if body := got.Body.String(); c.want != "" && body != c.want {
					t.Errorf("%d bytes instead of %d", len(body), len(c.want))
				} else if c.want == "" && !strings.HasPrefix(page, body[:from]) {
					t.Error("what came before is something else")
				}
				asked := ""
				for _, r := range w.up.asked["/p"] {
					asked += r.Header.Get("Range")
				}
				if asked != c.resumes {
					t.Errorf("upstream was asked for %q, want %q", asked, c.resumes)
				}
				if r := w.reports[1]; c.want == "" && r.Detail != policy.BodyLost {
					t.Errorf("report: %s %v", r.Detail, r.Err)
				}
			})
		})
	}
}

// stuck is a client that has taken a few bytes, and takes the rest when its gate opens.
type stuck struct {
	*httptest.ResponseRecorder
	gate <-chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	if s.Body.Len() > 0 {
		<-s.gate
	}
	return s.ResponseRecorder.Write(p)
}

// A client that is slow with a page that is stored by now gets the rest of it from the store when another page lacks the
// memory (R25). That one is kept, too, once the memory is there.
func TestSlowClientMovesToTheStore(t *testing.T) {
	const size = 1 << 20
	setup := setup{config: func(c *Config) { c.Spool = size + size/2 }}
	inWorld(t, setup, func(w *world) {
		for _, path := range []string{"/p", "/q", "/r"} {
			w.up.on(path, chunks(pattern(size), "Cache-Control: max-age=60"))
		}
		gate := make(chan struct{})
		slow := stuck{httptest.NewRecorder(), gate}
		served := make(chan struct{})
		go func() {
			defer close(served)
			w.replicas[0].ServeHTTP(slow, httptest.NewRequestWithContext(w.t.Context(), "GET", "http://example.com/p", nil))
		}()
		synctest.Wait()
		if got := w.replicas[0].Gauges().SpoolBytes; got < size {
			t.Errorf("%d bytes held for a client that has read none", got)
		}
		if got := w.get("/q"); got.Body.String() != pattern(size) {
			t.Errorf("/q: %d bytes", got.Body.Len())
		}
		if got := w.replicas[0].Gauges().SpoolBytes; got != 0 {
			t.Errorf("%d bytes held although another page lacked them", got)
		}
		w.get("/r")
		w.want("what had the memory", w.get("/r"), 200, pattern(size), "hit")
		close(gate)
		<-served
		if slow.Body.String() != pattern(size) {
			t.Errorf("the slow client got %d bytes", slow.Body.Len())
		}
		w.asked("/p", 1)
	})
}

// What a slow client reads of the store counts among the bodies under way once the store has let go of it, as then he
// alone holds it (R25).
func TestSlowClientHoldsWhatIsPurged(t *testing.T) {
	const size = 1 << 20
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", chunks(pattern(size), "Cache-Control: max-age=60"))
		w.get("/p")
		gate, served := make(chan struct{}), make(chan struct{})
		slow := stuck{httptest.NewRecorder(), gate}
		go func() {
			defer close(served)
			w.replicas[0].ServeHTTP(slow, httptest.NewRequestWithContext(w.t.Context(), "GET", "http://example.com/p", nil))
		}()
		held := func() int64 {
			time.Sleep(time.Second)
			synctest.Wait()
			return w.replicas[0].Gauges().SpoolBytes
		}
		if got := held(); got != 0 {
			t.Errorf("%d bytes counted of what the store holds", got)
		}
		if _, err := w.store.Purge(w.t.Context(), policy.Selector{All: true}, store.Hard); err != nil {
			t.Fatal(err)
		}
		if got := held(); got != size {
			t.Errorf("%d bytes counted of what the store has let go of, want %d", got, size)
		}
		close(gate)
		<-served
		if slow.Body.String() != pattern(size) {
			t.Errorf("the slow client got %d bytes", slow.Body.Len())
		}
	})
}

// blocked is a client that takes nothing more once it has a few bytes, until it is cut off.
type blocked struct {
	*httptest.ResponseRecorder
	cut chan struct{}
}

func (b blocked) Write(p []byte) (int, error) {
	if b.Body.Len() > 0 {
		<-b.cut
		return 0, os.ErrDeadlineExceeded
	}
	return b.ResponseRecorder.Write(p)
}

func (b blocked) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		close(b.cut)
	}
	return nil
}

// steady is a client that takes 64 KiB a second.
type steady struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (s steady) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / piece)
	return s.ResponseRecorder.Write(p)
}

func (s steady) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		s.t.Error("cut off")
	}
	return nil
}

// Where there is no memory for what slow clients alone hold, they are cut off in the middle of a write (R25); who keeps
// the minimum rate is not.
func TestSlowClientIsCutOff(t *testing.T) {
	const size, lack = 1 << 20, 64<<20 - 1<<19
	for name, client := range map[string]func() http.ResponseWriter{
		"slow":   func() http.ResponseWriter { return blocked{httptest.NewRecorder(), make(chan struct{})} },
		"steady": func() http.ResponseWriter { return steady{httptest.NewRecorder(), t} },
	} {
		inWorld(t, setup{}, func(w *world) {
			w.up.on("/p", chunks(pattern(size), "Cache-Control: max-age=60"))
			w.get("/p")
			w.replicas[0].table.Borrow(lack)
			served := make(chan any)
			go func() {
				defer func() { served <- recover() }()
				w.replicas[0].ServeHTTP(client(), httptest.NewRequestWithContext(w.t.Context(), "GET", "http://example.com/p", nil))
			}()
			synctest.Wait()
			if _, err := w.store.Purge(w.t.Context(), policy.Selector{All: true}, store.Hard); err != nil {
				t.Fatal(err)
			}
			if p := <-served; (p == http.ErrAbortHandler) != (name == "slow") {
				t.Errorf("%s: ended with %v", name, p)
			}
			if r := w.reports[1]; (r.Detail == policy.TooSlow) != (name == "slow") {
				t.Errorf("%s: report: %s %v", name, r.Detail, r.Err)
			}
			w.replicas[0].table.GiveBack(lack)
		})
	}
}

// chunks is an answer whose length is not announced, in pieces as a connection would bring them.
func chunks(body string, lines ...string) answer {
	return func(r *http.Request, nth int) (*http.Response, error) {
		res, err := respond(200, lines...)(r, nth)
		res.Body, res.ContentLength, res.TransferEncoding = io.NopCloser(strings.NewReader(body)), -1, []string{"chunked"}
		return res, err
	}
}

// A client that is slow with a page that nobody can keep is cut off while another waits for its slot, and its report
// says so (R25).
func TestSlowClientGivesWay(t *testing.T) {
	setup := setup{config: func(c *Config) { c.Spool = 0 }}
	setup.upstream = func(c *upstream.Config) { c.MaxConcurrent = 1 }
	inWorld(t, setup, func(w *world) {
		w.up.on("/large", chunks(pattern(1<<20), "Cache-Control: max-age=60"))
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		gate := make(chan struct{})
		cut := make(chan any, 1)
		go func() {
			defer func() { cut <- recover() }()
			w.replicas[0].ServeHTTP(stuck{httptest.NewRecorder(), gate}, httptest.NewRequestWithContext(w.t.Context(), "GET", "http://example.com/large", nil))
		}()
		synctest.Wait()
		time.Sleep(time.Minute)
		got := w.get("/p")
		if got.Code != 200 || got.took > 500*time.Millisecond {
			t.Errorf("%d after %v: the slot was held for a client that is a minute behind", got.Code, got.took)
		}
		close(gate)
		if p := <-cut; p != http.ErrAbortHandler {
			t.Errorf("the slow client's answer ended with %v", p)
		}
		if r := w.reports[1]; r.Detail != policy.TooSlow || !errors.Is(r.Err, fill.ErrTooSlow) {
			t.Errorf("report: %s %v", r.Detail, r.Err)
		}
	})
}

// A page that the memory has no room for reaches its client whole all the same; it is not kept, and the report names
// why. Once there is room it is (R25).
func TestNoRoom(t *testing.T) {
	const size = 1 << 20
	for name, c := range map[string]struct {
		spool  int64
		length bool // is announced
		want   policy.Reason
	}{
		"announced, and too much":         {size - 1, true, policy.NoRoom},
		"more and more until it is":       {size - 1, false, policy.NoRoom},
		"announced, and there is room":    {size, true, policy.None},
		"more and more, and there's room": {2 * size, false, policy.None},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{config: func(config *Config) { config.Spool = c.spool }}, func(w *world) {
				w.up.on("/p", chunks(pattern(size), "Cache-Control: max-age=60"))
				if c.length {
					w.up.on("/p", serving(pattern(size), `"1"`, nil))
				}
				first := w.get("/p")
				if first.Body.String() != pattern(size) {
					t.Errorf("%d bytes", first.Body.Len())
				}
				if kept := strings.Contains(first.Header().Get("Cache-Status"), "stored"); c.length && kept != (c.want == policy.None) {
					t.Errorf("Cache-Status: %s", first.Header().Get("Cache-Status"))
				}
				synctest.Wait()
				if got := w.fills[0]; got.Reason != c.want || (got.End == fill.Stored) != (c.want == policy.None) {
					t.Errorf("fill: %s, %s", got.End, got.Reason)
				}
			})
		})
	}
}
