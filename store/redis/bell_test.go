package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// hearing is what a watcher has been told.
type hearing struct {
	mu     sync.Mutex
	events []store.Event
}

func (h *hearing) has(e store.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.events, e)
}

// purge reports whether a purge of it was heard.
func (h *hearing) purge(sel policy.Selector) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.events, func(e store.Event) bool { return e.Kind == store.PurgedNote && e.Selector == sel })
}

func (h *hearing) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = nil
}

// watch returns when the watcher is there.
func (b *bench) watch() *hearing {
	h := &hearing{}
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Watch(ctx, func(e store.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		})
	}()
	b.Cleanup(func() { stop(); <-done })
	eventually(b, "it watches", func() bool { return h.has(store.Event{Kind: store.Healed}) })
	h.forget()
	return h
}

// TestDeafReplica: with no bell at all, waiters still learn how a lease ended, by looking.
func TestDeafReplica(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	// From here on nobody may publish, or subscribe anew, and the subscriptions there are end.
	b.must(b.raw.Do(ctx, "acl", "setuser", "default", "resetchannels").Err())
	b.must(b.raw.Do(ctx, "client", "kill", "type", "pubsub").Err())
	eventually(t, "the bell is silent", func() bool { return !b.bell.hears() })
	for name, end := range map[string]func(l store.Lease) error{
		"filled": func(l store.Lease) error { return b.Commit(ctx, l, write(l.Key, answer("one", -time.Second))) },
		"failed": func(l store.Lease) error {
			return b.Release(ctx, l, store.Outcome{End: store.Failed, Fault: policy.Fault{Kind: policy.Reset}})
		},
		"purged": func(l store.Lease) error {
			_, err := b.Purge(ctx, policy.Selector{Page: l.Key.Primary}, store.Soft)
			return err
		},
	} {
		key := policy.Key{Primary: page(name).Primary, Variant: "v"} // a purge finds no lease there, only its note tells
		l := b.lease(key, "t1")
		learned := make(chan store.Outcome, 1)
		go func() {
			out, err := b.Await(ctx, l)
			if err != nil {
				t.Errorf("%s: await: %v", name, err)
			}
			learned <- out
		}()
		eventually(t, "somebody waits", func() bool { return b.Waiting() == 1 })
		b.must(end(l))
		want := map[string]store.Outcome{
			"filled": {End: store.Filled, Taken: l.Taken},
			"failed": {End: store.Failed, Fault: policy.Fault{Kind: policy.Reset}},
			"purged": {End: store.Revoked},
		}[name]
		if got := <-learned; got != want {
			t.Errorf("%s: learned %+v, want %+v", name, got, want)
		}
	}
	warned := strings.Join(b.Warnings(ctx), "\n")
	if !strings.Contains(warned, "may not subscribe") {
		t.Errorf("warnings = %q", warned)
	}
}

func TestWarnings(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	if got := b.Warnings(ctx); len(got) != 0 {
		t.Errorf("of a Redis without a limit: %q", got)
	}
	b.must(b.raw.ConfigSet(ctx, "maxmemory", "100mb").Err())
	for policy, warns := range map[string]bool{"volatile-ttl": true, "noeviction": true, "allkeys-random": true, "allkeys-lru": false} {
		b.must(b.raw.ConfigSet(ctx, "maxmemory-policy", policy).Err())
		got := strings.Join(b.Warnings(ctx), "\n")
		if strings.Contains(got, policy) != warns {
			t.Errorf("%s: warnings = %q", policy, got)
		}
	}
}

// TestTwoDeployments: who shares a prefix with another is told what that one was told.
func TestTwoDeployments(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ settings, before string }{{"one", ""}, {"one", "one"}, {"two", "one"}} {
		if got, err := b.Settle(t.Context(), c.settings); got != c.before || err != nil {
			t.Errorf("%s: before it %q, %v; want %q", c.settings, got, err, c.before)
		}
	}
}

// TestCutLine: the connection is gone and comes back; what was said meanwhile is lost, and everybody knows that.
func TestCutLine(t *testing.T) {
	b := newBench(t)
	heard := b.watch()
	b.must(b.raw.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	for _, e := range []store.EventKind{store.Silence, store.Healed} {
		eventually(t, "watchers know", func() bool { return heard.has(store.Event{Kind: e}) })
	}
	eventually(t, "purges are heard again", func() bool {
		_, err := b.Purge(t.Context(), policy.Selector{Page: "p"}, store.Hard)
		b.must(err)
		return heard.purge(policy.Selector{Page: "p"})
	})
}

// TestBrokenLineWakesWaiters: they look for themselves at once, and not when their patience ends.
func TestBrokenLineWakesWaiters(t *testing.T) {
	b := newBench(t)
	w := b.bell.wait(page("x"), "t1")
	b.bell.broken(nil)
	if len(w.look) != 1 {
		t.Error("nobody looks when the line breaks")
	}
	<-w.look
	b.bell.healed()
	if len(w.look) != 1 {
		t.Error("nobody looks when the line is back")
	}
}

// TestLostRing: rings are numbered, and a gap is as good as a broken line.
func TestLostRing(t *testing.T) {
	b := newBench(t)
	heard := b.watch()
	ring := func(counter string, n int) {
		b.bell.hear(fmt.Sprintf("B1|%s|%d|0|%s|0|{}", counter, n, lapsed()))
	}
	silent := func() bool { return heard.has(store.Event{Kind: store.Silence}) }
	ring("one", 5) // the first tells nothing
	ring("one", 6)
	ring("two", 1)
	ring("one", 7)
	ring("one", 0) // not numbered
	ring("one", 8)
	if silent() {
		t.Fatal("a gap was heard where there is none")
	}
	ring("one", 10)
	if !silent() {
		t.Error("a gap was not heard")
	}
	heard.forget()
	ring("one", 1) // the counter was flushed
	if !silent() {
		t.Error("a number that fell was not heard")
	}
}

// TestBellRingsWhenItMatters: a commit that replaced nothing, with nobody waiting, is silent.
func TestBellRingsWhenItMatters(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	rings := func() string { return b.raw.Get(ctx, b.of(page("x")).bell).Val() }
	b.seed(page("x"), "one", -time.Second)
	b.must(b.Release(ctx, b.lease(page("y"), "t1"), store.Outcome{End: store.Lapsed}))
	if got := rings(); got != "" {
		t.Errorf("it rang %s times, and there was nothing to tell", got)
	}
	b.seed(page("x"), "two", -time.Second) // replaces
	l := b.lease(page("y"), "t2")
	b.taken(page("y"), want("t3")) // is told who holds it, and so waits
	b.must(b.Release(ctx, l, store.Outcome{End: store.Lapsed}))
	if got := rings(); got != "2" {
		t.Errorf("it rang %q times, want twice", got)
	}
}

// TestPurgeSparesLaterLeases: a purge may be heard after a lease was taken that it does not concern.
func TestPurgeSparesLaterLeases(t *testing.T) {
	b := newBench(t)
	l := b.lease(page("x"), "t1")
	purge := func(at uint64) {
		b.bell.hear(fmt.Sprintf("B1|c|0|%d|%s|0|%s", at, lapsed(),
			b.bell.message(message{Purge: &purgeNote{ID: 1, Page: []byte(page("x").Primary)}})))
	}
	purge(l.Taken - 1)
	if lost(l) {
		t.Fatal("a purge before the lease revoked it")
	}
	waits, other := b.bell.wait(page("x"), "t2"), b.bell.wait(page("y"), "t2")
	purge(l.Taken)
	if !lost(l) {
		t.Error("a purge after the lease did not revoke it")
	}
	if len(waits.look) != 1 || len(other.look) != 0 {
		t.Error("those who wait for the page, and no others, are to look at once")
	}
}

// TestPurgeOfALaterVersion: a mode that this version does not know is obeyed as the hardest.
func TestPurgeOfALaterVersion(t *testing.T) {
	b := newBench(t)
	h := b.watch()
	b.bell.hear(fmt.Sprintf("B1|c|0|7|%s|0|%s", lapsed(),
		b.bell.message(message{Purge: &purgeNote{ID: 1, Tag: []byte("t"), Mode: store.MustValidate + 1}})))
	sel := policy.Selector{Tag: "t"}
	if !h.has(store.Event{Kind: store.PurgedNote, Selector: sel, Mode: store.Hard, At: 7}) {
		t.Errorf("heard %+v, want the tag purged hard", h.events)
	}
}

// TestPurgeFreesVariants: the purge cannot know which variants are leased, and revokes them all the same.
func TestPurgeFreesVariants(t *testing.T) {
	b := newBench(t)
	v := policy.Key{Primary: page("x").Primary, Variant: "v"}
	for _, sel := range []policy.Selector{{Page: v.Primary}, {All: true}} {
		before := b.lease(v, "t1")
		b.lease(page("x"), "t0")
		_, err := b.Purge(b.Context(), sel, store.Soft)
		b.must(err)
		if value := b.raw.Get(b.Context(), b.of(page("x")).lease).Val(); sel.Page != "" && !strings.HasPrefix(value, "E1|") {
			t.Errorf("where the page's lease was lies %q, want a tombstone", value)
		}
		next := b.lease(v, "t2")
		if next.Taken <= before.Taken {
			t.Errorf("taken at %d, after %d", next.Taken, before.Taken)
		}
		b.must(b.Release(b.Context(), next, store.Outcome{End: store.Lapsed}))
	}
}

func FuzzHear(f *testing.F) {
	f.Add("B1|c|7|8|0,0,0,0,0|1|" + `{"from":"a","token":"t","keys":[{"p":"cGFnZQ=="}],"purge":{"id":1,"page":"cA==","mode":0}}`)
	f.Add("B1||0|0||0|" + `{"from":"a","ack":3}`)
	f.Add("B1|c|7|8|0,0,0,0,0|0|" + `{"from":"a","purge":{"id":1,"mode":7}}`) // a mode of a later version
	f.Add("B1|||||||")
	f.Add("B2|c|7|8|0|1|{}")
	s, err := Open(Config{Mode: "single", Addresses: []string{"/nowhere/redis.sock"}, Prefix: "weir", Timeout: time.Millisecond})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	w := s.bell.wait(policy.Key{Primary: "page"}, "t")
	f.Fuzz(func(t *testing.T, payload string) {
		s.bell.hear(payload)
		select {
		case out := <-w.ended:
			if out.End > store.Lapsed {
				t.Errorf("outcome = %+v", out)
			}
		default:
		}
	})
}
