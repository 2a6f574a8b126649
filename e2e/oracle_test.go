package e2e

import (
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// oracle is an upstream whose every body names its page and version, and which so can tell of any answer whose it is,
// and how old.
type oracle struct {
	*httptest.Server
	pace    func(n int) pace
	crowded func(p oraclePage, now int) // told when a page is asked for, if somebody wants to know

	mu        sync.Mutex
	pages     map[string]*oraclePage
	now, most int    // requests under way, and how many ever were
	ails      string // what most requests meet with for a while: errors, resets, truncates, slow; "": nothing
}

// pace is how a page is answered.
type pace struct {
	control       string
	size          int
	delay, spread time.Duration // before the head, and while the body comes
}

type oraclePage struct {
	n, version int
	asked      int
	now, most  int
	ails       string            // the upstream, as it is asked for
	sent       map[int]time.Time // when a version was answered last
	purged     int               // versions up to this one are gone
	purgedAt   time.Time         // as acknowledged
	purging    time.Time         // when a purge was asked for last
}

func newOracle(t *testing.T, pace func(n int) pace) *oracle {
	o := &oracle{pace: pace, pages: map[string]*oraclePage{}}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func pageName(n int) string { return fmt.Sprint("/page/", n) }

// see gives a page under the lock.
func (o *oracle) see(n int, do func(*oraclePage)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pages[pageName(n)]
	if p == nil {
		p = &oraclePage{n: n, version: 1, sent: map[int]time.Time{}}
		o.pages[pageName(n)] = p
	}
	do(p)
}

// ail has most requests meet with something from now on; "": with nothing.
func (o *oracle) ail(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ails = what
}

// suffers answers as an upstream does that is not well. It reports whether it did.
func suffers(w http.ResponseWriter, what string, body string) bool {
	switch what {
	case "errors":
		w.Header().Del("Cache-Control") // what names its lifetime is a page like any other
		http.Error(w, "the database is away", http.StatusServiceUnavailable)
	case "resets":
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	case "truncates":
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body[:len(body)/2])
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/page/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	version, pace := 0, o.pace(n)
	var seen oraclePage
	var now int
	o.see(n, func(p *oraclePage) {
		p.asked++
		p.now++
		o.now++
		p.most, o.most = max(p.most, p.now), max(o.most, o.now)
		seen, now = *p, o.now
		seen.ails = o.ails
	})
	if o.crowded != nil {
		o.crowded(seen, now)
	}
	ails := ""
	if seen.asked%3 > 0 {
		ails = seen.ails
	}
	over := sync.OnceFunc(func() { o.see(n, func(p *oraclePage) { p.now--; o.now-- }) })
	defer over()
	if ails == "slow" {
		pace.delay += 2 * time.Second
	}
	select {
	case <-time.After(pace.delay):
	case <-r.Context().Done():
		return
	}
	o.see(n, func(p *oraclePage) {
		if r.Method == http.MethodPost {
			p.version++
		}
		if version = p.version; ails == "" || ails == "slow" {
			p.sent[version] = time.Now()
		}
	})
	w.Header().Set("Cache-Control", pace.control)
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, version))
	w.Header().Set("Cache-Tag", fmt.Sprintf("tag-%d", n%10))
	w.Header().Set("Content-Type", "text/plain")
	body := testimony(n, version, pace.size)
	if suffers(w, ails, body) {
		return
	}
	http.ServeContent(w, r, "", time.Time{}, &slowly{strings.NewReader(body), over, pace.spread * (32 << 10) / time.Duration(len(body))})
}

// slowly waits before each read of at most 32 KiB. It is over before the other side can know that it is, and asks again.
type slowly struct {
	*strings.Reader
	over func()
	wait time.Duration
}

func (s *slowly) Read(b []byte) (int, error) {
	if s.wait > 0 {
		<-time.After(s.wait)
	}
	n, err := s.Reader.Read(b[:min(len(b), 32<<10)])
	if s.Len() == 0 {
		s.over()
	}
	return n, err
}

// WriteTo would pass all at once.
func (s *slowly) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{s}) }

// testimony is the body of a version of a page: no other's has a stretch of it, and it ends with the hash of what it says.
func testimony(n, version, size int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "page %d version %d\n", n, version)
	for i := 0; b.Len() < size; i++ {
		b.WriteString(strconv.Itoa(n) + "." + strconv.Itoa(version) + "." + strconv.Itoa(i) + " ")
	}
	return fmt.Sprintf("%s\n%08x", b.String(), crc32.ChecksumIEEE([]byte(b.String())))
}

// versionOf reads which version of a page a body is, all of it.
func versionOf(n, size int, body string) (version int, err error) {
	var page int
	if _, err := fmt.Sscanf(body, "page %d version %d\n", &page, &version); err != nil {
		return 0, fmt.Errorf("no page: %.80q", body)
	}
	if page != n {
		return 0, fmt.Errorf("it is page %d", page)
	}
	if want := testimony(n, version, size); body != want {
		at := 0
		for at < min(len(body), len(want)) && body[at] == want[at] {
			at++
		}
		return 0, fmt.Errorf("version %d, but for byte %d of %d (%d came)", version, at, len(want), len(body))
	}
	return version, nil
}
