package redis

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/near"
)

// How soon a copy is not answered any more: the bounds of R11 and R19, which README names.
const (
	heardWithin  = 50 * time.Millisecond // p99, on a whole line
	noticedAfter = time.Second           // on one that swallows everything
)

// hole is a line to a server that may swallow all that is sent on it, either way, and tells nobody.
type hole struct {
	socket   string
	swallows atomic.Bool
	mu       sync.Mutex
	conns    []net.Conn
}

func (s *server) behindHole(t *testing.T) *hole {
	h := &hole{socket: filepath.Join(s.dir, "hole.sock")}
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(h.heal)
	t.Cleanup(func() { _ = l.Close() })
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", s.socket)
			if err != nil {
				_ = from.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, from, to)
			h.mu.Unlock()
			all.Go(func() { h.carry(to, from) })
			all.Go(func() { h.carry(from, to) })
		}
	})
	return h
}

func (h *hole) carry(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !h.swallows.Load() {
			_, err = to.Write(buffer[:n])
		}
		if err != nil && err != io.EOF {
			return
		}
	}
}

// heal ends the connections that may have lost something; new ones are whole.
func (h *hole) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.swallows.Store(false)
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.conns = nil
}

// third is one more replica, behind a line of its own.
func (r *replicas) third(timeout time.Duration) (*near.Store, *Store, *hole) {
	h := r.srv.behindHole(r.T)
	c := r.srv.config("weir")
	c.Addresses, c.Timeout = []string{h.socket}, timeout
	far := r.srv.open(r, c)
	return before(r, far), far, h
}

// within has a measurement repeated when it fails: on a machine that is busy with other things a quick answer may be
// slow now and then, and a slow one is never quick.
func within(t *testing.T, bound time.Duration, measure func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 5 {
		d := measure()
		if d <= bound {
			t.Logf("%v", d)
			return
		}
		all = append(all, d)
	}
	t.Errorf("%v, want %v at most", all, bound)
}

// p99 of what begins and ends round after round.
func p99(rounds int, do func(i int) time.Duration) time.Duration {
	all := make([]time.Duration, rounds)
	for i := range all {
		all[i] = do(i)
	}
	slices.Sort(all)
	return all[rounds*99/100]
}

func (r *replicas) everyone(c *near.Store, key policy.Key, body string) {
	r.Helper()
	for _, s := range []*near.Store{r.a, r.b, c} {
		if _, err := s.Take(r.Context(), key, look()); err != nil {
			r.Fatal(err)
		}
		if got := r.peeks(s, key); got != body {
			r.Fatalf("%q is not kept here: %q", body, got)
		}
	}
}

// TestPurgeIsObeyedInTime: from the call of a purge on one of three replicas, and from the return of a commit that
// replaces something, until no replica answers the old copy.
func TestPurgeIsObeyedInTime(t *testing.T) {
	r := newReplicas(t)
	c, _, _ := r.third(3 * time.Second)
	key := page("x")
	old := func(body string) func() bool {
		return func() bool { return r.peeks(r.a, key) == body || r.peeks(r.b, key) == body || r.peeks(c, key) == body }
	}
	const rounds = 200
	within(t, heardWithin, func() time.Duration {
		return p99(rounds, func(i int) time.Duration {
			body := fmt.Sprint("purge ", i)
			r.fill(key, body)
			r.everyone(c, key, body)
			sel := []policy.Selector{{Page: key.Primary}, {Tag: "red"}, {All: true}}[i%3]
			began := time.Now()
			p, err := r.a.Purge(r.Context(), sel, store.Mode(i%3))
			took := time.Since(began)
			r.must(err)
			if p.Replicas != 3 || old(body)() {
				t.Fatalf("%d replicas obeyed, and the old copy is answered: %v", p.Replicas, old(body)())
			}
			return took
		})
	})
	r.fill(key, "at first")
	within(t, heardWithin, func() time.Duration {
		return p99(rounds, func(i int) time.Duration {
			was, body := fmt.Sprint("commit ", i), fmt.Sprint("commit ", i+1)
			r.fill(key, was)
			r.everyone(c, key, was)
			r.fill(key, body)
			began := time.Now()
			eventually(t, "the old copy is gone", func() bool { return !old(was)() })
			return time.Since(began)
		})
	})
}

// TestPurgeInABlackHole: a replica whose line swallows everything stops believing its copies within a second of a purge
// that it cannot hear of; and what it had then is never answered again, alone or when the line is back.
func TestPurgeInABlackHole(t *testing.T) {
	r := newReplicas(t)
	c, _, hole := r.third(250 * time.Millisecond)
	r.replies = 50 * time.Millisecond // the purge does not wait for it
	key, i := page("x"), 0
	within(t, noticedAfter, func() time.Duration {
		i++
		body := fmt.Sprint("one ", i)
		r.fill(key, body)
		eventually(t, "the copies are there", func() bool {
			_, _ = c.Take(r.Context(), key, look())
			return r.peeks(c, key) == body
		})
		hole.swallows.Store(true)
		_, err := r.a.Purge(r.Context(), policy.Selector{Page: key.Primary}, store.Hard)
		acknowledged := time.Now()
		r.must(err)
		if got := r.peeks(r.b, key); got != "" {
			t.Errorf("who can hear answers %q", got)
		}
		eventually(t, "the copy is not believed", func() bool { return r.peeks(c, key) == "" })
		took := time.Since(acknowledged)
		hole.heal()
		eventually(t, "it hears again", func() bool {
			if got := r.peeks(c, key); got != "" {
				t.Fatalf("%q is answered after the purge", got)
			}
			got, err := c.Take(r.Context(), key, look())
			return err == nil && got.Alone == nil && got.Entry == nil
		})
		return took
	})
}
