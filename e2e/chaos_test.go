package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var chaosLasts = flag.Duration("chaos", 0, "how long chaos lasts; 0: it stays away")

const (
	chaosClients = 200 // a quarter of them in a run of less than a minute
	chaosEditors = 4   // each has pages of its own
	chaosPages   = 200
	// chaosQuiet is how long after a fault nothing may be left of it: a lease of 5 s, and a breaker's next try.
	chaosQuiet = 8 * time.Second
	chaosRound = 40 * time.Second
)

// fault is something that happens to a fleet. The plan of them follows from the seed alone.
type fault struct {
	what, whom string // whom "": all
	at, lasts  time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%6.2fs %s %s for %v", f.at.Seconds(), f.what, f.whom, f.lasts.Round(time.Millisecond))
}

// chaosPlan is what goes wrong: with replicas in one row, with Redis and the lines to it in another, with the upstream in
// the third. One round in three is the upstream's alone.
func chaosPlan(seed uint64, during time.Duration) (plan [3][]fault) {
	kinds := [3][]string{ofReplicas(), ofRedis(), ofUpstream()}
	for row, what := range kinds {
		dice := rand.New(rand.NewPCG(seed, uint64(row)))
		for at := time.Second; at < during; {
			f := fault{what: what[dice.IntN(len(what))], at: at, lasts: 200*time.Millisecond + time.Duration(dice.Int64N(int64(3*time.Second)))}
			f.whom = []string{"a", "b", "c", ""}[dice.IntN([]int{3, 4, 4}[row])]
			if f.what == "freeze" && dice.IntN(3) == 0 {
				f.lasts += 5 * time.Second // past its lease
			}
			if f.what == "flush" || f.what == "crash" {
				f.whom = "redis"
			}
			if row == 2 {
				f.whom = "upstream"
			}
			if row < 2 && f.at/chaosRound%3 == 1 {
				at += chaosRound
				continue
			}
			if end := f.at%chaosRound + f.lasts; end > chaosRound-2*chaosQuiet { // let all be well now and then
				at += chaosRound - f.at%chaosRound
				continue
			}
			at += f.lasts + time.Duration(dice.ExpFloat64()*float64(2*time.Second))
			plan[row] = append(plan[row], f)
		}
	}
	return plan
}

// chaos is a fleet, its clients, and its faults.
type chaos struct {
	*world
	t      *testing.T
	oracle *oracle
	begun  time.Time

	mu       sync.Mutex // also guards the world's replicas
	troubles []trouble
	broken   []string // promises, and how
	counts   map[string]int
	slowest  time.Duration // of those whom no fault could reach
}

// trouble is a fault that came about.
type trouble struct {
	fault
	from, to time.Time // to is zero while it lasts
}

// TestChaos lets random faults happen to three replicas under 200 clients, and holds every answer to what is promised.
// A long run: make chaos. Another: -args -seed 7 -chaos 2m.
func TestChaos(t *testing.T) {
	if *chaosLasts == 0 {
		t.Skip("by hand: make chaos")
	}
	plan := chaosPlan(*seed, *chaosLasts)
	t.Logf("seed %d for %v:\n%s\n%s\n%s", *seed, *chaosLasts, lines(plan[0]), lines(plan[1]), lines(plan[2]))
	c := newChaos(t)
	idle := c.goroutines()
	stop := make(chan struct{})
	var busy, faults sync.WaitGroup
	clients := chaosClients
	if *chaosLasts < time.Minute {
		clients /= 4
	}
	for i := range clients {
		busy.Go(func() { c.client(rand.New(rand.NewPCG(*seed, uint64(100+i))), stop) })
	}
	for i := range chaosEditors {
		busy.Go(func() { c.editor(i, rand.New(rand.NewPCG(*seed, uint64(50+i))), stop) })
	}
	for _, row := range plan {
		faults.Go(func() {
			for _, f := range row {
				<-time.After(time.Until(c.begun.Add(f.at)))
				c.happen(f)
			}
		})
	}
	faults.Wait()
	<-time.After(time.Until(c.begun.Add(*chaosLasts)))
	close(stop)
	busy.Wait()
	c.aftermath(idle)
	t.Logf("%v; first byte of those whom no fault could reach: %v at most", c.counts, c.slowest.Round(time.Millisecond))
	for i, promise := range c.broken {
		if i == 20 {
			t.Errorf("and %d more", len(c.broken)-i)
			break
		}
		t.Error(promise)
	}
}

func lines(plan []fault) string {
	var text []string
	for _, f := range plan {
		text = append(text, f.String())
	}
	return strings.Join(text, "\n")
}

func newChaos(t *testing.T) *chaos {
	c := &chaos{world: worldOf(t), t: t, counts: map[string]int{}}
	c.oracle = newOracle(t, chaosPace)
	c.oracle.crowded = c.crowded
	timeout := "1s"
	if *chaosLasts < time.Minute {
		timeout = "5s" // other tests go beside it: a replica that gets no processor must not take that for an outage
	}
	c.sections["config.yaml"] = fmt.Sprintf("upstreams: [{ name: upstream, url: %q, max_concurrent: %d, queue_timeout: 60s }]\ndrain: { lame_duck: 0s, timeout: 15s }\n", c.oracle.URL, fleetSlots) +
		"store: { kind: redis, redis: { addresses: [$REDIS], timeout: " + timeout + " } }\ntelemetry: { log: { access: false } }\n"
	if err := c.doRedis([]string{"start"}); err != nil {
		t.Fatal(err)
	}
	c.redis.forgets = true
	if err := c.startReplicas([]string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	c.begun = time.Now()
	return c
}

// chaosPace: some pages live for seconds, some until they are purged; most are small, some have segments.
func chaosPace(n int) pace {
	p := pace{size: 200 + 10*n, delay: time.Duration(20+n%7*20) * time.Millisecond}
	p.control = []string{"max-age=2", "max-age=1, stale-while-revalidate=2", "max-age=3600", "max-age=4"}[n%4]
	switch {
	case n%50 == 0:
		p.size, p.spread = 1_200_000, 300*time.Millisecond
	case n%5 == 1:
		p.size, p.spread = 60_000, 100*time.Millisecond
	}
	return p
}

// chaosStale is how old an answer may be: its lifetime, and what it may be served stale.
func chaosStale(n int) time.Duration {
	return []time.Duration{2, 3, 3600, 4}[n%4] * time.Second
}

func (c *chaos) door(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replicas[name].listen
}

func (c *chaos) client(dice *rand.Rand, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(dice.Int64N(int64(time.Second)))):
		}
		n := int(float64(chaosPages) * dice.Float64() * dice.Float64()) // some are hot
		v := visitor{n: n, name: []string{"a", "b", "c"}[dice.IntN(3)]}
		v.answer = send(c.door(v.name), ask{method: http.MethodGet, target: pageName(n), header: header("Host", "weir.test")})
		if dice.IntN(30) == 0 {
			<-time.After(time.Duration(dice.Int64N(int64(100 * time.Millisecond))))
			v.answer.leave()
			continue
		}
		v.stuck = v.answer.wait(2 * time.Minute)
		c.judge(v)
	}
}

// editor changes pages, and purges what it has changed.
func (c *chaos) editor(i int, dice *rand.Rand, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(dice.Int64N(int64(200 * time.Millisecond)))):
		}
		n, name := dice.IntN(chaosPages/chaosEditors)*chaosEditors+i, []string{"a", "b", "c"}[dice.IntN(3)]
		before := 0
		c.oracle.see(n, func(p *oraclePage) {
			before = p.version
			p.version++
		})
		if dice.IntN(2) == 0 {
			continue
		}
		c.oracle.see(n, func(p *oraclePage) { p.purging = time.Now() })
		confirmed, err := c.purgeOnce(name, n)
		if err != nil {
			c.count("purges refused", 1)
			continue
		}
		at := time.Now()
		if confirmed < 3 {
			at = at.Add(time.Second)
		}
		c.count("purges", 1)
		c.oracle.see(n, func(p *oraclePage) { p.purged, p.purgedAt = before, at })
	}
}

func (c *chaos) purgeOnce(name string, n int) (confirmed int, err error) {
	c.mu.Lock()
	r := c.replicas[name]
	c.mu.Unlock()
	text, err := r.tell("/api/purge", map[string]any{"url": "http://weir.test" + pageName(n)})
	var receipt struct{ Replicas int }
	if err == nil {
		err = json.Unmarshal([]byte(text), &receipt)
	}
	return receipt.Replicas, err
}

// happen lets a fault come, last and go.
func (c *chaos) happen(f fault) {
	c.mu.Lock()
	i := len(c.troubles)
	c.troubles = append(c.troubles, trouble{fault: f, from: time.Now()})
	c.mu.Unlock()
	if err := c.suffer(f); err != nil {
		c.breach("fault %s: %v", f, err)
	}
	c.mu.Lock()
	c.troubles[i].to = time.Now()
	c.mu.Unlock()
}

func (c *chaos) suffer(f fault) error {
	last := func() { <-time.After(f.lasts) }
	state := map[string]condition{"cut": cut, "pause": paused, "blackhole": blackhole}
	switch f.what {
	case "kill", "stop":
		end := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGTERM}[f.what]
		r := c.replicas[f.whom]
		if err := r.signal(end); err != nil {
			return err
		}
		if code, err := r.exit(); err != nil || f.what == "stop" && code != 0 {
			return fmt.Errorf("exit %d, %v", code, err)
		}
		last()
		return c.again(f.whom)
	case "freeze":
		r := c.replicas[f.whom]
		r.signal(syscall.SIGSTOP)
		last()
		return r.signal(syscall.SIGCONT)
	case "errors", "resets", "truncates", "slow":
		c.oracle.ail(f.what)
		last()
		c.oracle.ail("")
		return nil
	case "flush":
		return c.redis.say("FLUSHALL")
	case "crash":
		c.redis.kill()
		last()
		return c.redis.start()
	}
	var whom []string
	if f.whom != "" {
		whom = []string{f.whom}
	}
	if err := c.redis.set(state[f.what], whom); err != nil {
		return err
	}
	last()
	return c.redis.set(whole, nil)
}

// again starts a process under a name that one had, without holding up those who look for the others.
func (c *chaos) again(name string) error {
	r, err := c.process(name)
	if err != nil {
		return err
	}
	err = r.await()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past, c.replicas[name] = append(c.past, c.replicas[name]), r
	return err
}

func (c *chaos) goroutines() map[string]float64 {
	all := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(c.replicas)) {
		all[name], _ = c.replicas[name].metric("go_goroutines")
	}
	return all
}
