package near

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/memory"
	"weir/store/storetest"
)

const awayTTL = 30 * time.Second

// Two replicas in front of one store in memory: what the one does, the other hears at once.
func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
		far := memory.New(memory.Config{MaxSize: 256 << 20})
		return open(t, far), open(t, far)
	}, synctest.Test)
}

func open(t *testing.T, f Far) *Store {
	clock, _ := f.(store.Clock)
	s := New(f, memory.Near(memory.Config{MaxSize: 64 << 20}, clock), awayTTL)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// far is a store that can be away, and in which things can happen between its deed and its answer.
type far struct {
	*memory.Store
	obey  func(store.Event)
	away  error  // what its verbs answer, undone
	lost  bool   // the deed is done, and the answer lost
	mute  bool   // watchers hear nothing
	full  bool   // it answers, and takes nothing
	meant func() // happens between
	asked atomic.Int64
}

func (f *far) Watch(ctx context.Context, obey func(store.Event)) error {
	f.obey = obey
	return f.Store.Watch(ctx, func(e store.Event) {
		if !f.mute {
			obey(e)
		}
	})
}

// answer is how a verb's deed becomes its answer.
func (f *far) answer(err error) error {
	if between := f.meant; between != nil {
		f.meant = nil
		between()
	}
	if f.lost {
		f.lost = false
		return store.ErrUnavailable
	}
	return err
}

func (f *far) Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error) {
	f.asked.Add(1)
	if f.away != nil {
		return store.Taken{}, f.away
	}
	if f.full {
		got, err := f.Store.Take(ctx, key, store.Want{At: want.At})
		if err == nil && want.TTL > 0 && (got.Entry == nil || !got.Entry.FreshUntil.After(want.At)) {
			err = store.ErrReadOnly // R16: the entry first
		}
		return got, err
	}
	got, err := f.Store.Take(ctx, key, want)
	if err = f.answer(err); err != nil {
		return store.Taken{}, err
	}
	return got, nil
}

func (f *far) Commit(ctx context.Context, l store.Lease, w store.Write) error {
	f.asked.Add(1)
	if f.away != nil {
		return f.away
	}
	return f.answer(f.Store.Commit(ctx, l, w))
}

func (f *far) Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	if f.away != nil {
		return store.Purged{}, f.away
	}
	return f.Store.Purge(ctx, sel, mode)
}

// breaks is a line that broke and, whole says, is mended.
func (f *far) breaks(whole ...bool) {
	f.obey(store.Event{Kind: store.Silence})
	for range whole {
		f.obey(store.Event{Kind: store.Healed})
	}
}

// bench is a replica, and the store behind it in which others act.
type bench struct {
	*testing.T
	*Store
	f *far
}

// try runs a test in a bubble.
func try(t *testing.T, run func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &far{Store: memory.New(memory.Config{MaxSize: 256 << 20})}
		run(&bench{T: t, Store: open(t, f), f: f})
	})
}

func page(name string) policy.Key { return policy.Key{Primary: "api http://example.com/" + name} }

// fill keeps an answer for ten minutes in the name of one replica, whatever is there.
func (b *bench) fill(s store.Store, key policy.Key, body string) store.Lease {
	b.Helper()
	got, err := s.Take(context.Background(), key, store.Want{Token: body, TTL: time.Minute, At: time.Now().Add(time.Hour)})
	if err != nil || got.Lease == nil {
		b.Fatalf("take: %+v, %v", got, err)
	}
	b.commit(s, *got.Lease, key, body)
	return *got.Lease
}

func (b *bench) commit(s store.Store, l store.Lease, key policy.Key, body string) {
	b.Helper()
	if err := s.Commit(context.Background(), l, write(key, body)); err != nil {
		b.Fatalf("commit: %v", err)
	}
}

func write(key policy.Key, body string) store.Write {
	e := &store.Entry{Body: store.Bytes{[]byte(body)}}
	e.Status, e.Tags, e.Arrived = 200, []string{"red"}, time.Now()
	e.FreshUntil = time.Now().Add(10 * time.Minute)
	e.RefreshUntil, e.RescueUntil = e.FreshUntil.Add(time.Minute), e.FreshUntil.Add(time.Hour)
	return store.Write{Key: key, Entry: e, Keep: time.Hour}
}

func (b *bench) take(key policy.Key, w store.Want) store.Taken {
	b.Helper()
	got, err := b.Take(context.Background(), key, w)
	if err != nil {
		b.Fatalf("take: %v", err)
	}
	return got
}

func look() store.Want { return store.Want{At: time.Now()} }

func want(token string) store.Want { return store.Want{Token: token, TTL: time.Minute, At: time.Now()} }

// text is an entry's body; "": there is none.
func (b *bench) text(e *store.Entry) string {
	b.Helper()
	if e == nil {
		return ""
	}
	p := make([]byte, e.Body.Size())
	if n, err := e.Body.ReadAt(context.Background(), p, 0); n != len(p) {
		b.Fatalf("%d bytes of %d: %v", n, len(p), err)
	}
	return string(p)
}

// peeks asserts what is answered without asking; "": nothing.
func (b *bench) peeks(key policy.Key, body string) {
	b.Helper()
	before := b.f.asked.Load()
	e, ok := b.Peek(key)
	if got := b.text(e); !ok && body != "" || ok && got != body {
		b.Errorf("peeked %q (%v), want %q", got, ok, body)
	}
	if b.f.asked.Load() != before {
		b.Error("a peek asked the far store")
	}
}

// R10: what is heard between the question and the answer makes the answer the past.
func TestPastIsNotInserted(t *testing.T) {
	x := page("x")
	for name, happens := range map[string]func(b *bench){
		"another commit":         func(b *bench) { b.fill(b.f.Store, x, "two") },
		"a purge":                func(b *bench) { b.purge(policy.Selector{Page: x.Primary}, store.Hard) },
		"a soft purge":           func(b *bench) { b.purge(policy.Selector{Page: x.Primary}, store.Soft) },
		"a purge by tag":         func(b *bench) { b.purge(policy.Selector{Tag: "red"}, store.Hard) },
		"an invalidation by tag": func(b *bench) { b.purge(policy.Selector{Tag: "red"}, store.MustValidate) },
		"a gap":                  func(b *bench) { time.Sleep(time.Second); b.f.breaks(true); time.Sleep(time.Second) },
		"a broken line":          func(b *bench) { b.f.breaks() },
	} {
		t.Run(name, func(t *testing.T) {
			try(t, func(b *bench) {
				b.fill(b.f.Store, x, "one")
				b.f.meant = func() { happens(b) }
				if got := b.text(b.take(x, look()).Entry); got != "one" {
					b.Errorf("taken %q", got)
				}
				b.peeks(x, "")
			})
			try(t, func(b *bench) {
				got := b.take(x, want("t"))
				b.f.meant = func() { happens(b) }
				b.commit(b.Store, *got.Lease, x, "one")
				b.peeks(x, "")
			})
		})
	}
	try(t, func(b *bench) {
		b.fill(b.f.Store, x, "one")
		b.f.meant = func() {
			b.fill(b.f.Store, page("y"), "other")
			b.purge(policy.Selector{Page: page("z").Primary}, store.Hard)
		}
		b.take(x, look())
		b.peeks(x, "one")
		// What is heard of its own commit does not make it the past.
		b.fill(b.Store, x, "two")
		b.peeks(x, "two")
		// Nor what is heard late of what came before it; but so much that not all of it is remembered does.
		before := store.Event{Kind: store.Replaced, Key: x, At: 1}
		got := b.take(x, store.Want{Token: "three", TTL: time.Minute, At: time.Now().Add(time.Hour)})
		b.f.meant = func() { b.f.obey(before) }
		b.commit(b.Store, *got.Lease, x, "three")
		b.peeks(x, "three")
		b.purge(policy.Selector{All: true}, store.Hard)
		b.fill(b.f.Store, x, "four")
		b.f.meant = func() {
			for range 9 {
				b.f.obey(before)
			}
		}
		b.take(x, look())
		b.peeks(x, "")
	})
}

func (b *bench) purge(sel policy.Selector, mode store.Mode) {
	b.Helper()
	if _, err := b.f.Store.Purge(context.Background(), sel, mode); err != nil {
		b.Fatal(err)
	}
}

// A copy is believed for a minute after the far store was asked, and while it is fresh.
func TestBelievedForAMinute(t *testing.T) {
	try(t, func(b *bench) {
		b.fill(b.Store, page("x"), "one")
		time.Sleep(believed - time.Second)
		b.peeks(page("x"), "one")
		time.Sleep(time.Second)
		b.peeks(page("x"), "")
		b.take(page("x"), look())
		b.peeks(page("x"), "one")
		for range 9 {
			time.Sleep(believed)
			b.take(page("x"), look())
		}
		b.peeks(page("x"), "") // stale by now
	})
}

// R5: the signpost is here too, so that a variant costs no question either.
func TestSignpostsLiveHere(t *testing.T) {
	try(t, func(b *bench) {
		x, de := page("x"), policy.Key{Primary: page("x").Primary, Variant: "de"}
		w := write(de, "de")
		w.Variant, w.Sign = &policy.Variant{Variant: "de", Arrived: time.Now()}, x
		if err := b.Commit(context.Background(), *b.take(x, want("t")).Lease, w); err != nil {
			b.Fatal(err)
		}
		b.take(x, look())
		if e, ok := b.Peek(x); !ok || e.Kind != policy.Signpost || len(e.Variants) != 1 {
			b.Errorf("peeked %+v", e)
		}
		b.peeks(de, "de")
		// Another replica's variant leaves the signpost incomplete: it goes.
		en := policy.Key{Primary: x.Primary, Variant: "en"}
		got, err := b.f.Store.Take(context.Background(), en, want("u"))
		if err != nil {
			b.Fatal(err)
		}
		w = write(en, "en")
		w.Variant, w.Sign = &policy.Variant{Variant: "en", Arrived: time.Now()}, x
		if err := b.f.Store.Commit(context.Background(), *got.Lease, w); err != nil {
			b.Fatal(err)
		}
		if e, ok := b.Peek(x); ok {
			b.Errorf("the old signpost is still believed: %+v", e.Variants)
		}
		b.peeks(de, "de")
	})
}

// What another replica commits drops the copy that it replaces.
func TestReplaced(t *testing.T) {
	try(t, func(b *bench) {
		b.fill(b.Store, page("x"), "one")
		b.fill(b.Store, page("y"), "one")
		time.Sleep(time.Second)
		b.fill(b.f.Store, page("x"), "two")
		b.peeks(page("x"), "")
		b.peeks(page("y"), "one")
	})
}

// R19: on a broken line nothing is believed; after that, what was checked.
func TestSilence(t *testing.T) {
	try(t, func(b *bench) {
		b.fill(b.Store, page("x"), "one")
		b.fill(b.Store, page("y"), "one")
		time.Sleep(time.Second)
		b.f.breaks()
		b.peeks(page("x"), "")
		if got := b.text(b.take(page("x"), look()).Entry); got != "one" {
			b.Errorf("taken %q", got)
		}
		b.peeks(page("x"), "")
		time.Sleep(time.Second)
		b.f.breaks(true)
		b.peeks(page("x"), "")
		b.take(page("x"), look())
		b.peeks(page("x"), "one")
		b.peeks(page("y"), "")
	})
}

// What the far store has dropped without a word is dropped here when it is noticed.
func TestDroppedInTheFarStore(t *testing.T) {
	try(t, func(b *bench) {
		b.fill(b.Store, page("x"), "one")
		b.f.Drop(page("x"), always)
		b.take(page("x"), look())
		b.f.away = store.ErrUnavailable
		if got := b.take(page("x"), look()); got.Entry != nil {
			b.Errorf("alone, and there is still %q", b.text(got.Entry))
		}
	})
}

// remote is a body that lies elsewhere.
type remote struct {
	store.Bytes
	spans []policy.Span
	reads *atomic.Int64
	fault error
}

func (r remote) Spans() []policy.Span { return r.spans }

func (r remote) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	r.reads.Add(1)
	if r.fault != nil {
		return 0, r.fault
	}
	return r.Bytes.ReadAt(ctx, p, off)
}

// Large bodies are loaded behind the answer's back, once; what cannot be had whole is not kept.
func TestBodiesAreLoaded(t *testing.T) {
	whole := strings.Repeat("0123456789abcdef", 200_000)
	all := []policy.Span{{Start: 0, End: int64(len(whole))}}
	for name, c := range map[string]struct {
		body remote
		kept bool
	}{
		"whole":         {remote{spans: all}, true},
		"a part":        {remote{spans: []policy.Span{{Start: 0, End: 7}}}, false},
		"a broken line": {remote{spans: all, fault: errors.New("cut")}, false},
	} {
		try(t, func(b *bench) {
			c.body.Bytes, c.body.reads = store.Bytes{[]byte(whole)}, &atomic.Int64{}
			key := page("x")
			w := write(key, "")
			w.Entry.Body = c.body
			got := b.take(key, want("t"))
			if err := b.Commit(context.Background(), *got.Lease, w); err != nil {
				b.Fatal(err)
			}
			synctest.Wait()
			if _, kept := b.Peek(key); kept != c.kept {
				b.Fatalf("%s: kept is %v", name, kept)
			}
			if !c.kept {
				return
			}
			b.peeks(key, whole)
			n := c.body.reads.Load()
			if got := b.text(b.take(key, look()).Entry); got != whole || c.body.reads.Load() != n {
				b.Errorf("%s: read again from afar: %d times, then %d", name, n, c.body.reads.Load())
			}
			b.f.mute = true // on a broken line, the copy stays when there is another commit
			b.f.breaks()
			time.Sleep(time.Second)
			b.fill(b.f.Store, key, "two")
			if got := b.text(b.take(key, look()).Entry); got != "two" {
				b.Errorf("%s: after another commit the body is %.20q", name, got)
			}
		})
	}
	try(t, func(b *bench) { // more than the memory store keeps of one
		w := write(page("x"), "")
		w.Entry.Body = remote{Bytes: store.Bytes{make([]byte, 5<<20)}, spans: []policy.Span{{Start: 0, End: 5 << 20}}, reads: &atomic.Int64{}}
		got := b.take(page("x"), want("t"))
		_ = b.Commit(context.Background(), *got.Lease, w)
		synctest.Wait()
		if n := w.Entry.Body.(remote).reads.Load(); n != 0 {
			b.Errorf("a body that is not kept was loaded in %d reads", n)
		}
	})
}

// Closing ends loads, and nothing starts after it.
func TestLoadsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l loads
		gate := make(chan struct{})
		for i := range 2 * atOnce {
			l.start(page(fmt.Sprint(i)), func() { <-gate })
			l.start(page("0"), func() { t.Error("twice at once") })
		}
		if len(l.running) != atOnce {
			t.Errorf("%d at once", len(l.running))
		}
		close(gate)
		l.stop()
		l.start(page("late"), func() { t.Error("after the end") })
	})
}

// Operators see what copies answer, and what they hear.
func TestStats(t *testing.T) {
	try(t, func(b *bench) {
		b.peeks(page("x"), "")
		b.fill(b.Store, page("x"), "one")
		b.fill(b.Store, page("y"), "one")
		b.peeks(page("x"), "one")
		b.peeks(page("x"), "one")
		before := b.Stats()
		b.fill(b.f.Store, page("x"), "two")
		if _, err := b.Purge(context.Background(), policy.Selector{Page: page("y").Primary}, store.Hard); err != nil {
			b.Fatal(err)
		}
		b.f.breaks(true)
		b.f.breaks()
		b.peeks(page("y"), "")
		want := Stats{Hits: 2, Misses: before.Misses + 1, Replaced: before.Replaced + 1, Purges: 1, Silences: 2}
		if got := b.Stats(); got != want || before != (Stats{Hits: 2, Misses: 1}) {
			b.Errorf("first %+v, then %+v, want %+v", before, got, want)
		}
	})
}
