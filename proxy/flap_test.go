package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// weather is an upstream that flaps between well, slow, erroneous, unreachable and silent. It notes how each of its
// pages was asked.
type weather struct {
	mu      sync.Mutex
	state   string
	dice    *rand.Rand
	fetches map[string][]fetch
	made    map[string]int // the newest version of each page
	floor   map[string]int // the newest version that a client has had in full
}

type fetch struct {
	begun, ended time.Time
	state        string
	failed       bool
	retry        time.Duration
	again        bool // it was about another answer, and is asked for once more (R28)
}

func (w *weather) now() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// answer is what a page is answered in the present weather: its newest version, and a new one every time but for those
// pages that can be confirmed.
func (w *weather) answer(r *http.Request, n int) (*http.Response, error) {
	path := r.URL.Path
	f := fetch{begun: time.Now(), state: w.now()}
	res, err := w.fetch(&f, r, n)
	f.ended = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetches[path] = append(w.fetches[path], f)
	return res, err
}

func (w *weather) fetch(f *fetch, r *http.Request, n int) (*http.Response, error) {
	switch f.state {
	case "well":
		return after(100*time.Millisecond, w.page)(r, n)
	case "slow":
		return after(8*time.Second, w.page)(r, n)
	}
	f.failed = true
	switch f.state {
	case "unreachable":
		return nil, dialFails
	case "silent":
		return after(30*time.Second, fails(timeout{}))(r, n)
	}
	switch n % 7 {
	case 0:
		f.retry = 5 * time.Second
		return respond(503, "Retry-After: 5")(r, n)
	case 1:
		return respond(500, "Cache-Control: max-age=30")(r, n)
	case 2:
		return respond(429)(r, n)
	case 3:
		return breaks(broken{io.ErrUnexpectedEOF})(r, n)
	case 4:
		f.again = true
		return respond(304, `ETag: "none of ours"`)(r, n)
	case 5:
		return nil, io.EOF
	}
	return respond(504)(r, n)
}

// page is the newest version; pages of even numbers have tags and change once a minute.
func (w *weather) page(r *http.Request, _ int) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := r.URL.Path
	w.made[path]++
	lines := []string{"Cache-Control: max-age=10"}
	if tagged := (path[1]-'0')%2 == 0; tagged {
		w.made[path] = int(time.Now().Unix() / 60)
		tag := fmt.Sprintf(`"%d"`, w.made[path])
		lines = append(lines, "ETag: "+tag)
		if r.Header.Get("If-None-Match") == tag {
			return respond(304, lines...)(r, 0)
		}
	}
	body := fmt.Sprintf("%s %d", path, w.made[path])
	return bodyOf(strings.NewReader(body), int64(len(body)), lines...)(r, 0)
}

// begin is what a client that asks now may expect: no version older than one that a client has had already.
func (w *weather) begin(path string) (floor int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.floor[path]
}

func (w *weather) end(path string, version int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.floor[path] = max(w.floor[path], version)
}

// An hour of an upstream that flaps, with three replicas' worth of traffic: no good copy is lost, no error is served
// while a copy may stand in, nobody waits longer than soft_timeout, nothing is older than it may be, and an upstream
// that fails is not asked for a page sooner than its back-off says.
func TestAnHourOfFlapping(t *testing.T) {
	const (
		pages    = 6
		soft     = 2 * time.Second
		lifetime = 10 * time.Second
		longest  = 30 * time.Minute // stale_if_error
	)
	cache := func(c *policy.Cache) {
		c.Grace, c.StaleIfError, c.SoftTimeout = policy.Grace{Well: 15 * time.Second, Sick: 10 * time.Minute}, longest, soft
		c.EarlyRefresh = policy.EarlyRule{Mode: "xfetch", Beta: 1}
	}
	inWorld(t, setup{replicas: 3, cache: cache}, func(w *world) {
		dice := rand.New(rand.NewPCG(5, 8))
		sky := &weather{state: "well", dice: dice, fetches: map[string][]fetch{}, made: map[string]int{}, floor: map[string]int{}}
		for i := range pages {
			path := fmt.Sprint("/", i)
			w.up.on(path, sky.answer)
			w.get(path)
		}
		clients := sync.WaitGroup{}
		ask := func(replica int, path string) {
			defer clients.Done()
			floor := sky.begin(path)
			r := <-w.client(replica, "GET", path)
			var at string
			var version, age int
			_, err := fmt.Sscan(r.Body.String(), &at, &version)
			_, _ = fmt.Sscan(r.Header().Get("Age"), &age)
			switch what := fmt.Sprintf("%v %s: %d %q after %v, %v", sky.now(), path, r.Code, r.Body, r.took, r.Header()); {
			case r.Code != 200 || r.aborted || err != nil || at != path:
				t.Errorf("an error: %s", what)
			case version < floor:
				t.Errorf("version %d, after %d: %s", version, floor, what)
			case r.took > soft:
				t.Errorf("waited: %s", what)
			case time.Duration(age)*time.Second > lifetime+longest:
				t.Errorf("too old: %s", what)
			}
			sky.end(path, version)
		}
		states := []string{"well", "slow", "erroneous", "unreachable", "silent"}
		for begun := time.Now(); time.Since(begun) < time.Hour; {
			for _, i := range dice.Perm(len(states)) {
				sky.mu.Lock()
				sky.state = states[i]
				sky.mu.Unlock()
				for range 20 + dice.IntN(360) { // half seconds
					for replica := range 3 {
						clients.Add(1)
						go ask(replica, fmt.Sprint("/", dice.IntN(pages)))
					}
					time.Sleep(500 * time.Millisecond)
				}
			}
		}
		clients.Wait()
		synctest.Wait()
		sky.judge(t)
	})
}

// judge holds the upstream's record of each page against the back-off.
func (w *weather) judge(t *testing.T) {
	failures, states := 0, map[string]int{}
	for path, all := range w.fetches {
		var pause time.Duration
		for i, f := range all {
			states[f.state]++
			if f.again {
				continue
			}
			if i > 0 && all[i-1].again {
				i-- // the pause is before the one that this one repeats
				f.begun = all[i].begun
			}
			if i > 0 && all[i-1].failed && f.begun.Sub(all[i-1].ended) < pause {
				t.Errorf("%s: failed at %v, asked again at %v, %v later; the pause was to be %v", path, all[i-1].ended, f.begun, f.begun.Sub(all[i-1].ended), pause)
			}
			if !f.failed {
				pause = 0
				continue
			}
			failures++
			pause = max(time.Second, min(2*pause, time.Minute), f.retry)
		}
	}
	if failures < 50 || len(states) != 5 {
		t.Errorf("%d failures in %v: too few to tell", failures, states)
	}
	t.Logf("the upstream was asked %v times", states)
}
