package warm

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/proxy"
	"weir/store"
	"weir/store/memory"
)

// site is a handler whose pages are facts: each has a lifetime, takes its time, and may fail.
type site struct {
	mu        sync.Mutex
	took      time.Duration
	life      map[string]time.Duration // none: it cannot be kept
	faults    map[string]policy.Fault
	kept      map[string]policy.Stored
	fetched   map[string][]time.Time
	clock     uint64
	now, most int // fetches at once
	looked    int
	then      func() // happens once a page has been looked at, before its warmer knows
	served    http.HandlerFunc
}

func newSite(pages ...string) *site {
	s := &site{life: map[string]time.Duration{}, faults: map[string]policy.Fault{}, kept: map[string]policy.Stored{}, fetched: map[string][]time.Time{}}
	for _, p := range pages {
		s.life[p] = 100 * time.Second
	}
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.served(w, r) }

// Warm is proxy.Handler's contract.
func (s *site) Warm(ctx context.Context, r *http.Request, known uint64) (proxy.Warmed, error) {
	url := "http://" + r.Host + r.URL.RequestURI()
	w, err := s.warm(ctx, url, known)
	w.Page = "api " + url
	s.mu.Lock()
	then := s.then
	s.then = nil
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return w, err
}

func (s *site) warm(ctx context.Context, url string, known uint64) (proxy.Warmed, error) {
	s.mu.Lock()
	s.looked++
	if k, ok := s.kept[url]; ok && k.Leased > known && k.FreshUntil.After(time.Now()) {
		s.mu.Unlock()
		return proxy.Warmed{Kept: k, Reason: policy.Fresh}, nil
	}
	s.fetched[url] = append(s.fetched[url], time.Now())
	s.now++
	s.most = max(s.most, s.now)
	took := s.took
	s.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	switch fault, failed := s.faults[url]; {
	case ctx.Err() != nil:
		return proxy.Warmed{}, ctx.Err()
	case failed:
		return proxy.Warmed{Reason: policy.FaultReason(fault), Fault: fault}, nil
	case s.life[url] == 0:
		return proxy.Warmed{Reason: policy.NoStore}, nil
	}
	return proxy.Warmed{Kept: s.keep(url), Fetched: true}, nil
}

// keep stores a page as of now; a client's request does it, too.
func (s *site) keep(url string) policy.Stored {
	s.clock++
	k := policy.Stored{Response: policy.Response{Arrived: time.Now()}, FreshUntil: time.Now().Add(s.life[url]), Leased: s.clock}
	s.kept[url] = k
	return k
}

func (s *site) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// looks is how many pages were looked at.
func (s *site) looks() (n int) {
	s.change(func() { n = s.looked })
	return n
}

// times are when a page was fetched, counted from the start of the bubble.
func (s *site) times(page string) (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // synctest's own
	for _, at := range s.fetched[page] {
		all = append(all, at.Sub(begin))
	}
	return all
}

// inBubble runs body with a site, a store, and replicas' warmers on it.
func inBubble(t *testing.T, s *site, body func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, site: s, store: memory.New(memory.Config{MaxSize: 1 << 20})}
		defer w.store.Close()
		body(w)
		for _, replica := range w.replicas {
			replica.Close()
		}
	})
}

type world struct {
	t        *testing.T
	site     *site
	store    *memory.Store
	replicas []*Warmer
	mu       sync.Mutex
	log      bytes.Buffer
}

// Write takes a log line.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *world) said(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), text)
}

// replica starts one with these jobs.
func (w *world) replica(jobs ...Config) *Warmer { return w.on(w.store, jobs...) }

// on starts one with a store of its own.
func (w *world) on(s Store, jobs ...Config) *Warmer {
	r := New(Options{Handler: w.site, Store: s, Log: slog.New(slog.NewTextHandler(w, nil))})
	r.Use(jobs)
	w.replicas = append(w.replicas, r)
	return r
}

// hot is a job of these pages.
func hot(t *testing.T, every string, urls ...string) Config {
	t.Helper()
	e, err := ParseEvery(every, time.ParseDuration)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Name: "hot", URLs: urls, Every: e, Concurrency: 4}
}

const home = "http://weir.test/"

func many(n int) (urls []string) {
	for i := range n {
		urls = append(urls, fmt.Sprint(home, i))
	}
	return urls
}

// gaps wants the times between fetches to be within bounds, one pair for each.
func gaps(t *testing.T, times []time.Duration, bounds ...[2]time.Duration) {
	t.Helper()
	if len(times) != len(bounds)+1 {
		t.Fatalf("fetched at %v, which is not %d times", times, len(bounds)+1)
	}
	for i, b := range bounds {
		if gap := times[i+1] - times[i]; gap < b[0] || gap > b[1] {
			t.Errorf("fetched at %v: gap %d is %v, want %v to %v", times, i+1, gap, b[0], b[1])
		}
	}
}

// awhile is a store that is away until a moment.
type awhile struct {
	Store
	until time.Time
}

func (a awhile) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	if time.Now().Before(a.until) {
		return store.Taken{}, store.ErrUnavailable
	}
	return a.Store.Take(ctx, key, want)
}
