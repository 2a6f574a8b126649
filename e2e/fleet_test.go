package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Three replicas under steady load, while something happens to them.

// fleetOf starts replicas before an oracle.
func fleetOf(t *testing.T, config string, pace func(int) pace) *traffic {
	w, o := worldOf(t), newOracle(t, pace)
	w.sections["config.yaml"] = fmt.Sprintf("upstreams: [{ name: upstream, url: %q, max_concurrent: %d, queue_timeout: 60s }]\ntelemetry: { log: { access: false } }\n", o.URL, fleetSlots) +
		"store: { kind: redis, redis: { addresses: [$REDIS], timeout: 5s } }\n"
	w.sections["config.yaml"] = overlay(w.sections["config.yaml"], config)
	if err := w.startReplicas([]string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	return &traffic{world: w, oracle: o, balancer: balancer{list: w.doors()}}
}

// fleetSlots is how many upstream requests each replica may have under way.
const fleetSlots = 16

// doors are where clients come in.
func (w *world) doors() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(w.replicas)) {
		all = append(all, w.replicas[name].listen)
	}
	return all
}

// balancer knows where clients may go, as the one does that asks replicas whether they are ready.
type balancer struct {
	mu   sync.Mutex
	list []string
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.list[rand.IntN(len(b.list))]
}

func (b *balancer) use(doors []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = doors
}

// traffic is load whose every answer must be a version of its page.
type traffic struct {
	*world
	balancer
	oracle *oracle

	noted  sync.Mutex
	waits  []time.Duration
	faults []string
	going  sync.WaitGroup
}

// flow sends so many requests a second over so many pages, until it is told to stop; that waits for all answers.
func (l *traffic) flow(rate, pages int) (stop func()) {
	done := make(chan struct{})
	l.going.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				for range rate / 100 {
					l.going.Go(func() { l.visit(rand.IntN(pages)) })
				}
			}
		}
	})
	return func() { close(done); l.going.Wait() }
}

func (l *traffic) visit(n int) {
	got := send(l.pick(), ask{method: http.MethodGet, target: pageName(n), header: header("Host", "weir.test")})
	err := got.whole(time.Minute)
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("status %d", got.status)
	}
	if err == nil {
		_, err = versionOf(n, l.oracle.pace(n).size, string(got.body))
	}
	l.noted.Lock()
	defer l.noted.Unlock()
	l.waits = append(l.waits, got.firstByte)
	if err != nil {
		l.faults = append(l.faults, fmt.Sprintf("%s: %v: %s", pageName(n), err, got))
	}
}

// report tells how long the answers took since the last report, and of those that were none.
func (l *traffic) report(t *testing.T, what string) {
	t.Helper()
	l.noted.Lock()
	defer l.noted.Unlock()
	slices.Sort(l.waits)
	n := len(l.waits)
	t.Logf("%s: %d answers, first byte median %v, p99 %v, slowest %v", what, n, l.waits[n/2].Round(time.Millisecond), l.waits[n*99/100].Round(time.Millisecond), l.waits[n-1].Round(time.Millisecond))
	if len(l.faults) > 0 {
		t.Errorf("%s: %d clients were not served, the first: %s", what, len(l.faults), l.faults[0])
	}
	l.waits, l.faults = nil, nil
}

func (l *traffic) askedEach(pages int) (asked []int) {
	for n := range pages {
		l.oracle.see(n, func(p *oraclePage) { asked = append(asked, p.asked) })
	}
	return asked
}

// Redis is emptied under load over hot pages, by -long 1,000 requests a second over 500: each page is asked for at most once, within the
// upstream's limit, and every client is served. With the near tier hardly anybody notices; without it all pages are cold.
func TestLoadFlush(t *testing.T) {
	pages, rate, after := 100, 200, 2*time.Second
	if *long {
		pages, rate, after = 500, 1000, 4*time.Second
	}
	for _, near := range []string{"true", "false"} {
		t.Run("near "+near, func(t *testing.T) {
			l := fleetOf(t, fmt.Sprintf("store: { kind: redis, redis: { addresses: [$REDIS], timeout: 5s, near: %s } }\n", near),
				func(int) pace { return pace{control: "max-age=3600", size: 2000, delay: 200 * time.Millisecond} })
			stop := l.flow(rate, pages)
			until := func(what string, seen func() bool) {
				if err := poll(time.Minute, func() error {
					if !seen() {
						return fmt.Errorf("%s does not come", what)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
			until("every page", func() bool { return slices.Min(l.askedEach(pages)) > 0 })
			settle(t, l.world)
			l.oracle.mu.Lock()
			l.oracle.most = 0
			l.oracle.mu.Unlock()
			before := l.askedEach(pages)
			l.reset()
			if err := l.redis.say("FLUSHALL"); err != nil {
				t.Error(err)
			}
			<-time.After(after)
			stop()
			l.report(t, "after the flush")
			more, again := 0, 0
			for n, asked := range l.askedEach(pages) {
				more += asked - before[n]
				again = max(again, asked-before[n])
			}
			t.Logf("%d upstream requests, %d at once", more, l.oracle.most)
			if again > 1 || l.oracle.most > 3*fleetSlots {
				t.Errorf("a page was asked for %d times after the flush, and the upstream %d times at once, of %d", again, l.oracle.most, 3*fleetSlots)
			}
		})
	}
}

func (l *traffic) reset() {
	l.noted.Lock()
	defer l.noted.Unlock()
	l.waits, l.faults = nil, nil
}

// Each of three replicas is stopped and started again under load. Clients come by a balancer that asks every 50 ms
// who is ready; not one of them notices.
func TestLoadRollingRestart(t *testing.T) {
	l := fleetOf(t, "drain: { lame_duck: 500ms, timeout: 10s }\n",
		func(int) pace { return pace{control: "max-age=1", size: 2000, delay: 50 * time.Millisecond} })
	stop := sync.OnceFunc(l.flow(300, 50))
	defer stop()
	for _, name := range []string{"a", "b", "c"} {
		old := l.replicas[name]
		if err := old.signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := poll(pollLimit, func() error { return l.lookReplica(old, []string{"/readyz", "503"}) }); err != nil {
			t.Fatal(err)
		}
		l.use(slices.DeleteFunc(l.doors(), func(door string) bool { return door == old.listen }))
		if code, err := old.exit(); err != nil || code != 0 {
			t.Errorf("replica %s: code %d, %v", name, code, err)
		}
		if err := l.start(name); err != nil {
			t.Fatal(err)
		}
		l.use(l.doors())
	}
	stop()
	l.report(t, "three restarts")
}
