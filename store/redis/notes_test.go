package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

func (b *bench) purge(sel policy.Selector, mode store.Mode) store.Purged {
	b.Helper()
	got, err := b.Purge(b.Context(), sel, mode)
	b.must(err)
	return got
}

// TestPurgeOfAHundredThousand: one note, in one round trip, however many entries it is about.
func TestPurgeOfAHundredThousand(t *testing.T) {
	const n = 100_000
	b := newBench(t)
	ctx := t.Context()
	e := answer("", long)
	e.Tags, e.Leased = []string{"all", "some"}, uint64(time.Now().UnixMicro())
	for from := 0; from < n; from += 1000 {
		_, err := b.raw.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < from+1000; i++ {
				e.Key = page(fmt.Sprint(i))
				head, err := store.EncodeHead(e, 0)
				b.must(err)
				p.Set(ctx, b.of(e.Key).head, plan{}.append(head), long)
			}
			return nil
		})
		b.must(err)
	}
	l := b.lease(page("other"), "t1")
	other := answer("other", long)
	other.Tags = []string{"other"}
	b.must(b.Commit(ctx, l, write(page("other"), other)))
	b.purge(policy.Selector{Tag: "warm"}, store.Hard) // the server has the script then
	there := func(i int) bool { return b.taken(page(fmt.Sprint(i)), look()).Entry != nil }
	if !there(0) || !there(n-1) {
		t.Fatal("the entries are not there to begin with")
	}

	trips := b.countTrips()
	if got := b.purge(policy.Selector{Tag: "all"}, store.Hard); got.Estimate != -1 || got.Replicas != 1 {
		t.Errorf("purged %+v", got)
	}
	// One is the note, one what this replica rings back to itself; and on busy cores the bell's line may be made anew,
	// and Redis told the last purge again.
	if got := trips.n.Load(); got > 4 {
		t.Errorf("it took %d round trips", got)
	}
	for i := 0; i < n; i += 97 {
		if there(i) {
			t.Fatalf("%d is still there", i)
		}
	}
	b.holds(page("other"), "other")
}

// TestPurgeIsToldAgain: a Redis that comes back without the last purges, as one does that has taken over, is told them,
// with the dates that they had.
func TestPurgeIsToldAgain(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	sels := map[string]policy.Selector{
		"page": {Page: page("page").Primary}, "tag": {Tag: "tag"}, "prefix": {Prefix: page("prefix").Place()},
	}
	// before is an entry, and what lies in Redis of it, to be put back there.
	before := make(map[string]string)
	for name, sel := range sels {
		e := answer(name, long)
		e.Tags = []string{name}
		b.must(b.Commit(ctx, b.lease(page(name), name), write(page(name), e)))
		before[name] = b.raw.Get(ctx, b.of(page(name)).head).Val()
		b.purge(sel, store.Hard)
	}
	lost := []string{b.of(page("page")).page, b.of(page("page")).notes}
	dates := func() string {
		notes := b.raw.HGetAll(ctx, lost[1]).Val()
		delete(notes, "last") // which leases move, too
		return b.raw.Get(ctx, lost[0]).Val() + fmt.Sprint(notes)
	}
	was := dates()
	b.must(b.raw.Del(ctx, append(lost, b.of(page("page")).lease)...).Err())
	running := b.lease(page("page"), "running")
	for name, raw := range before {
		b.must(b.raw.Set(ctx, b.of(page(name)).head, raw, long).Err())
	}
	after := b.seed(page("later"), "later", long)

	heard := b.watch()
	b.must(b.raw.Do(ctx, "client", "kill", "type", "pubsub").Err())
	eventually(t, "the line is back", func() bool { return heard.has(store.Event{Kind: store.Healed}) })
	if now := dates(); now != was {
		t.Errorf("told again: %q\nwant %q", now, was)
	}
	for name := range sels {
		if e := b.taken(page(name), look()).Entry; e != nil {
			t.Errorf("by %s, and it is back", name)
		}
	}
	b.must(b.Commit(ctx, running, write(page("page"), answer("new", long))))
	if e := b.taken(page("later"), look()).Entry; e == nil || e.Leased != after.Taken {
		t.Error("what came after the purges is gone")
	}
}

// TestSoftDatesAreToldAgain: the windows of an entry begin with the first soft purge that is about it, so the last one alone
// would lengthen them. As many are told as are remembered.
func TestSoftDatesAreToldAgain(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	notes := func() string {
		hash := b.raw.HGetAll(ctx, b.of(page("x")).notes).Val()
		delete(hash, "last")
		return b.raw.Get(ctx, b.of(page("x")).page).Val() + fmt.Sprint(hash)
	}
	for range store.Softs + 2 {
		b.purge(policy.Selector{Page: page("x").Primary}, store.Soft)
		b.purge(policy.Selector{Tag: "red"}, store.Soft)
	}
	eventually(t, "all are heard", func() bool {
		all := b.recent.all()
		return len(all) == 2*store.Softs && strings.Contains(notes(), fmt.Sprint(all[len(all)-1].at))
	})
	was := notes()
	b.must(b.raw.FlushDB(ctx).Err())
	b.must(b.replay(ctx))
	if now := notes(); now != was {
		t.Errorf("told again: %q\nwant %q", now, was)
	}
}

// TestPurgeDuringAnOutage: it fails, so that whoever asked knows; and it is done when Redis is back, before Redis is
// trusted.
func TestPurgeDuringAnOutage(t *testing.T) {
	b := newBench(t)
	b.timeout = 100 * time.Millisecond
	e := answer("one", long)
	e.Tags = []string{"red"}
	b.must(b.Commit(t.Context(), b.lease(page("x"), "t1"), write(page("x"), e)))
	b.seed(page("y"), "two", long)
	other := &bench{T: t, srv: b.srv, Store: b.srv.open(t, b.srv.config("weir"))}
	heard := other.watch()
	b.srv.pause()
	b.opens()
	for _, sel := range []policy.Selector{{Tag: "red"}, {Page: page("y").Primary}} {
		_, err := b.Purge(t.Context(), sel, store.Hard)
		b.fails(err, store.ErrUnavailable)
	}
	b.srv.resume()
	eventually(t, "the breaker closes", b.breaker.closed)
	for _, name := range []string{"x", "y"} {
		if e := b.taken(page(name), look()).Entry; e != nil {
			t.Errorf("%s is still there", name)
		}
	}
	eventually(t, "the other replica hears of it", func() bool {
		return heard.purge(policy.Selector{Tag: "red"}) && heard.purge(policy.Selector{Page: page("y").Primary})
	})
}

// TestOldNotesGo: nothing that they could be about is left after the longest time that anything is kept.
func TestOldNotesGo(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	notes := b.of(page("x")).notes
	old := fmt.Sprintf("N2|%d|0|0|0|0|0", time.Now().Add(-longest-time.Minute).UnixMicro())
	young := fmt.Sprintf("N2|%d|0|0|0|0|0", time.Now().Add(-longest+time.Minute).UnixMicro())
	b.must(b.raw.HSet(ctx, notes, "old tag.", old, "new tag.", young, "prefix", old+"|a/\n"+young+"|b/").Err())
	eventually(t, "the old note is gone", func() bool {
		b.purge(policy.Selector{Tag: "any"}, store.Hard)
		return !b.raw.HExists(ctx, notes, "old tag.").Val()
	})
	b.purge(policy.Selector{Prefix: "c/"}, store.Hard)
	if !b.raw.HExists(ctx, notes, "new tag.").Val() {
		t.Error("a note within its time is gone")
	}
	prefixes := b.raw.HGet(ctx, notes, "prefix").Val()
	if strings.Contains(prefixes, "a/") || !strings.Contains(prefixes, young+"|b/\n") || !strings.Contains(prefixes, "|c/") {
		t.Errorf("prefixes = %q", prefixes)
	}
}

// TestNoGraceNoCopy: after a soft purge, what may not be served stale stands in for no failure either.
func TestNoGraceNoCopy(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	e := answer("one", long)
	e.RefreshUntil, e.RescueUntil = e.FreshUntil, e.FreshUntil
	b.must(b.Commit(ctx, b.lease(page("x"), "t1"), write(page("x"), e)))
	b.purge(policy.Selector{All: true}, store.Soft)
	b.must(b.Release(ctx, b.lease(page("x"), "t2"), store.Outcome{End: store.Failed, Remember: long}))
	b.lease(page("x"), "t3")
}

func TestRecentIsBounded(t *testing.T) {
	var r recent
	for i := range mostRecent + 10 {
		r.add(past{sel: policy.Selector{Tag: fmt.Sprint(i)}, at: 1})
		r.add(past{sel: policy.Selector{Tag: fmt.Sprint(i)}, at: 2}) // the same, later
	}
	if got := r.all(); len(got) != mostRecent || got[0].sel.Tag != "10" || got[0].at != 2 {
		t.Errorf("%d are remembered, the first %+v", len(got), got[0])
	}
	r.list[0].heard = time.Now().Add(-2 * lag)
	r.list[1].heard, r.list[1].taken = r.list[0].heard, true
	taken := r.list[1]
	r.add(past{sel: policy.Selector{Tag: "down"}, at: 3})
	if got := r.all(); got[0] != taken {
		t.Error("while Redis takes nothing, what it may have lost is forgotten")
	}
	r.add(past{sel: policy.Selector{Tag: "up"}, at: 3, taken: true})
	for _, p := range r.all() {
		if p == taken {
			t.Error("what Redis has had for long is still remembered")
		}
	}
}

// TestFlushedNotes: a Redis that was flushed has no notes any more. What fills that they are about bring is refused all the
// same, and Redis is told again as soon as that is noticed.
func TestFlushedNotes(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("replaced"), "one", -time.Second)
	l := b.lease(page("x"), "t1")
	b.seed(page("replaced"), "two", -time.Second) // rings, so that the number is known
	b.purge(policy.Selector{Tag: "red"}, store.Hard)
	b.must(b.raw.FlushDB(ctx).Err())
	waiter := make(chan store.Outcome, 1)
	go func() {
		out, err := b.Await(ctx, l)
		if err != nil {
			t.Error(err)
		}
		waiter <- out
	}()
	e := answer("before the purge", long)
	e.Tags = []string{"red"}
	b.fails(b.Commit(ctx, l, write(page("x"), e)), store.ErrLost)
	if out := <-waiter; out.End != store.Lapsed {
		t.Errorf("who waited learned %+v", out)
	}
	if e := b.taken(page("x"), look()).Entry; e != nil {
		t.Error("what was purged is there")
	}
	if n := b.raw.Exists(ctx, b.of(page("x")).notes).Val(); n != 0 {
		t.Fatal("the note is not gone")
	}
	b.purge(policy.Selector{Page: page("other").Primary}, store.Hard) // rings a lower number
	eventually(t, "Redis is told again", func() bool { return b.raw.Exists(ctx, b.of(page("x")).notes).Val() == 1 })
}
