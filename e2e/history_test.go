package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 1, "of random histories")

// TestOneHistory plays the same random history to one replica with memory and to three with Redis. One oracle knows of
// every answer which version it must be, and of every page how often it may have been fetched: however many replicas
// there are, they are one cache.
func TestOneHistory(t *testing.T) {
	seed, steps := *seed, 80
	if *long {
		steps = 1000
	}
	for _, names := range [][]string{{"a"}, {"a", "b", "c"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			h := newHistory(t, names, rand.New(rand.NewPCG(seed, 0)))
			for step := range steps {
				if err := h.step(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
		})
	}
}

// history is what has been done, and what must follow.
type history struct {
	*world
	oracle *oracle
	names  []string
	dice   *rand.Rand
	kept   map[int]*keptPage // what the one cache holds
}

// keptPage is a page as it lies in the cache.
type keptPage struct {
	version int
	valid   bool // else it is asked for again
}

const historyPages = 12

func newHistory(t *testing.T, names []string, dice *rand.Rand) *history {
	h := &history{world: worldOf(t), names: names, dice: dice, kept: map[int]*keptPage{}}
	h.oracle = newOracle(t, func(n int) pace { return pace{control: "max-age=3600", size: historySize(n)} })
	h.sections["config.yaml"] = fmt.Sprintf("upstreams: [{ name: upstream, url: %q }]\n", h.oracle.URL)
	if err := h.startReplicas(names); err != nil {
		t.Fatal(err)
	}
	return h
}

// historySize: small, with segments, with several.
func historySize(n int) int { return []int{300, 20_000, 1_200_000}[n%12/5] }

// step does one thing, at any replica: what they do must not depend on which.
func (h *history) step() error {
	n, at := h.dice.IntN(historyPages), h.dice.IntN(12)
	replica := h.names[h.dice.IntN(12)%len(h.names)]
	switch {
	case at == 0:
		h.oracle.see(n, func(p *oraclePage) { p.version++ })
		return nil
	case at == 1:
		h.kept[n] = nil
		return h.purge([]string{replica, pageName(n)})
	case at == 2:
		for other := range historyPages {
			if other%10 == n%10 {
				h.kept[other] = nil
			}
		}
		return h.purge([]string{replica, fmt.Sprint("tag=tag-", n%10)})
	case at == 3:
		if p := h.kept[n]; p != nil {
			p.valid = false // and is validated (RFC 9111 §4.4)
		}
		return h.ask(replica, http.MethodPost, n)
	case at == 4:
		if p := h.kept[n]; p != nil {
			p.valid = false
		}
		return h.ask(replica, http.MethodGet, n, "Cache-Control", "no-cache")
	}
	return h.ask(replica, http.MethodGet, n)
}

func (h *history) ask(replica, method string, n int, pairs ...string) error {
	before, current := h.count(n)
	got := send(h.replicas[replica].listen, ask{method: method, target: pageName(n), header: append(header("Host", "weir.test"), header(pairs...)...)})
	if err := got.whole(time.Minute); err != nil {
		return err
	}
	version, err := versionOf(n, historySize(n), string(got.body))
	if err != nil {
		return err
	}
	if err := h.settle(nil); err != nil {
		return err
	}
	after, _ := h.count(n)
	want, asked := current, 1
	switch p := h.kept[n]; {
	case method == http.MethodPost:
		want++
	case p != nil && p.valid:
		want, asked = p.version, 0
		fallthrough
	default:
		h.kept[n] = &keptPage{want, true}
	}
	if version != want || after-before != asked {
		return fmt.Errorf("%s %s at %s: version %d, not %d; the upstream was asked %d times, not %d\n%s", method, pageName(n), replica, version, want, after-before, asked, got)
	}
	return nil
}

func (h *history) count(n int) (asked, version int) {
	h.oracle.see(n, func(p *oraclePage) { asked, version = p.asked, p.version })
	return asked, version
}
