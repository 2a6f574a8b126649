package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

const (
	long  = time.Minute
	short = 50 * time.Millisecond
	mib   = 1 << 20
)

func page(name string) policy.Key { return policy.Key{Primary: "api http://example.com/" + name} }

func want(token string) store.Want { return store.Want{Token: token, TTL: long, At: time.Now()} }

func look() store.Want { return store.Want{At: time.Now()} }

// answer is fresh for so long, and may stand in for an hour more.
func answer(body string, fresh time.Duration) *store.Entry {
	now := time.Now()
	e := &store.Entry{Body: store.Bytes{[]byte(body)}}
	e.Status, e.Asked, e.Arrived, e.FreshUntil = 200, now, now, now.Add(fresh)
	e.RefreshUntil, e.RescueUntil = e.FreshUntil.Add(time.Hour), e.FreshUntil.Add(time.Hour)
	return e
}

func write(key policy.Key, e *store.Entry) store.Write {
	return store.Write{Key: key, Entry: e, Keep: time.Hour}
}

// bench is a store and its server.
type bench struct {
	*testing.T
	srv *server
	*Store
	raw *redis.Client
}

func newBench(t *testing.T, args ...string) *bench {
	t.Helper()
	t.Parallel()
	srv := startServer(t, args...)
	raw := srv.client()
	t.Cleanup(func() { _ = raw.Close() })
	return &bench{T: t, srv: srv, Store: srv.open(t, srv.config("weir")), raw: raw}
}

func (b *bench) taken(key policy.Key, w store.Want) store.Taken {
	b.Helper()
	got, err := b.Take(b.Context(), key, w)
	if err != nil {
		b.Fatalf("take: %v", err)
	}
	return got
}

func (b *bench) lease(key policy.Key, token string) store.Lease {
	b.Helper()
	got := b.taken(key, want(token))
	if got.Lease == nil {
		b.Fatalf("no lease: %+v", got)
	}
	return *got.Lease
}

func (b *bench) seed(key policy.Key, body string, fresh time.Duration) store.Lease {
	b.Helper()
	l := b.lease(key, "seed "+body[:min(len(body), 9)])
	b.must(b.Commit(b.Context(), l, write(key, answer(body, fresh))))
	return l
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) fails(err, with error) {
	b.Helper()
	if !errors.Is(err, with) {
		b.Errorf("error = %v, want %v", err, with)
	}
}

func (b *bench) holds(key policy.Key, body string) {
	b.Helper()
	e := b.taken(key, look()).Entry
	if e == nil {
		b.Fatal("nothing is stored")
	}
	p := make([]byte, e.Body.Size())
	if n, err := e.Body.ReadAt(b.Context(), p, 0); n != len(p) || string(p) != body {
		b.Fatalf("%d bytes of %d, want %d: %v", n, len(p), len(body), err)
	}
}

// trips counts how often a client waits for Redis.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func (b *bench) countTrips() *trips {
	c := &trips{}
	b.client.AddHook(c)
	b.bulk.AddHook(c)
	return c
}

func TestRoundTrips(t *testing.T) {
	b := newBench(t)
	// The server has the scripts then, and each client a connection.
	b.seed(page("warm"), strings.Repeat("x", mib), long)
	b.taken(page("warm"), look())
	trips := b.countTrips()
	costs := func(what string, n int64, do func()) {
		t.Helper()
		trips.n.Store(0)
		do()
		if got := trips.n.Load(); got != n {
			t.Errorf("%s costs %d round trips, want %d", what, got, n)
		}
	}
	var l store.Lease
	costs("a miss's take", 1, func() { l = b.lease(page("x"), "t1") })
	costs("a miss's commit", 1, func() { b.must(b.Commit(t.Context(), l, write(page("x"), answer("one", long)))) })
	costs("a hit", 1, func() { b.holds(page("x"), "one") })
	costs("a refused take", 1, func() { b.taken(page("x"), want("t2")) })
	big := strings.Repeat("0123456789abcdef", 5*mib/2/16)
	costs("a commit in three segments", 4, func() { b.must(b.Commit(t.Context(), b.leaseFree(page("big")), write(page("big"), answer(big, long)))) })
	costs("reading three segments", 4, func() { b.holds(page("big"), big) })
}

// leaseFree is a lease that no round trip was counted for.
func (b *bench) leaseFree(key policy.Key) store.Lease {
	other := b.srv.open(b, b.srv.config("weir"))
	got, err := other.Take(b.Context(), key, want("free"))
	b.must(err)
	return *got.Lease
}

func TestEveryKeyHasATerm(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("small"), "one", long)
	b.seed(page("large"), strings.Repeat("x", 3*mib), long)
	l := b.lease(page("varies"), "t1")
	w := write(policy.Key{Primary: page("varies").Primary, Variant: "de"}, answer("de", long))
	w.Variant, w.Sign = &policy.Variant{Variant: "de", Arrived: time.Now()}, page("varies")
	b.must(b.Commit(ctx, l, w))
	b.must(b.Commit(ctx, b.lease(page("marked"), "t2"), write(page("marked"), &store.Entry{Stored: policy.Stored{Kind: policy.Marker}})))
	b.must(b.Release(ctx, b.lease(page("failed"), "t3"), store.Outcome{End: store.Failed, Remember: long}))
	l = b.lease(page("held"), "t4")
	b.taken(page("held"), want("t5"))
	_, err := b.Renew(ctx, l, long)
	b.must(err)
	b.taken(page("other"), want("t6"))
	b.must(b.raw.Del(ctx, b.of(page("other")).lease).Err())
	for _, sel := range []policy.Selector{{Page: page("small").Primary}, {Page: "nobody's"}, {All: true}, {Tag: "a"}, {Prefix: "a/"}} {
		for _, mode := range []store.Mode{store.Hard, store.Soft, store.MustValidate} {
			_, err := b.Purge(ctx, sel, mode)
			b.must(err)
		}
	}
	keys, err := b.raw.Keys(ctx, "*").Result()
	b.must(err)
	kinds := make(map[string]bool)
	for _, k := range keys {
		kinds[strings.SplitN(strings.TrimPrefix(k, "weir:{0}:"), ":", 2)[0]] = true
		if ttl := b.raw.PTTL(ctx, k).Val(); ttl <= 0 {
			t.Errorf("%s stays for ever: %v", k, ttl)
		}
	}
	for _, kind := range []string{"head", "seg", "lease", "fail", "page", "notes", "bell"} {
		if !kinds[kind] {
			t.Errorf("the test has written no %s", kind)
		}
	}
}

// TestForeignData: whatever strangers keep under our names, it is as if nothing were there.
func TestForeignData(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	n := b.of(page("x"))
	// Redis is told the last purges again when it was flushed: they may come to lie there first.
	foreign := func(put func(key string) error, key string) {
		eventually(t, "it is put there", func() bool { return b.raw.Del(ctx, key).Err() == nil && put(key) == nil })
	}
	for what, put := range map[string]func(key string) error{
		"a list":          func(key string) error { return b.raw.RPush(ctx, key, "one").Err() },
		"a hash":          func(key string) error { return b.raw.HSet(ctx, key, "a", "b").Err() },
		"nothing":         func(key string) error { return b.raw.Set(ctx, key, "", 0).Err() },
		"text":            func(key string) error { return b.raw.Set(ctx, key, strings.Repeat("L1|E1|N2", 20), 0).Err() },
		"our magic":       func(key string) error { return b.raw.Set(ctx, key, "WEIR", 0).Err() },
		"a later one":     func(key string) error { return b.raw.Set(ctx, key, "WEIR\x02"+strings.Repeat("\xff", 99), 0).Err() },
		"zeros":           func(key string) error { return b.raw.Set(ctx, key, "WEIR\x01"+strings.Repeat("\x00", 99), 0).Err() },
		"a lease to come": func(key string) error { return b.raw.Set(ctx, key, "L1|0|0|99999999999999999999|a|b", 0).Err() },
		"a note to come":  func(key string) error { return b.raw.Set(ctx, key, "N2|99999999999999999999|0|0|0|0|0", 0).Err() },
		"what looks like notes": func(key string) error {
			return b.raw.HSet(ctx, key, "all", "N2|99999999999999999999|0|0|0|0|0", "last", "99999999999999999999", "prefix", "N2|9|\nN2|9|9|9|9|9|9|").Err()
		},
		"an end to come": func(key string) error { return b.raw.Set(ctx, key, "E1|99999999999999999999|0|b", 0).Err() },
		"0xff":           func(key string) error { return b.raw.Set(ctx, key, "WEIR\x01"+strings.Repeat("\xff", 99), 0).Err() },
	} {
		for _, key := range []string{n.head, n.lease, n.fail, n.page, n.notes, n.bell} {
			b.must(b.raw.FlushDB(ctx).Err())
			foreign(put, key)
			got := b.taken(page("x"), want("t1"))
			if got.Lease == nil || got.Entry != nil || got.HeldBy != nil || got.Failed != nil {
				t.Fatalf("%s under %s: taken = %+v", what, key, got)
			}
			if _, err := b.Renew(ctx, *got.Lease, long); err != nil {
				t.Fatalf("%s under %s: %v", what, key, err)
			}
			b.taken(page("x"), want("t2")) // somebody waits, so the commit rings
			if err := b.Commit(ctx, *got.Lease, write(page("x"), answer("one", long))); err != nil {
				t.Fatalf("%s under %s: %v", what, key, err)
			}
			b.holds(page("x"), "one")
			b.must(b.raw.FlushDB(ctx).Err())
			foreign(put, key)
			for _, sel := range []policy.Selector{{Page: page("x").Primary}, {All: true}, {Tag: "a"}, {Prefix: "a/"}} {
				if _, err := b.Purge(ctx, sel, store.Hard); err != nil {
					t.Fatalf("%s under %s: %v", what, key, err)
				}
			}
		}
	}
}

// TestRollingUpgrade: a later version's entry is a miss, whose lease can be had, and which can be replaced.
func TestRollingUpgrade(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("x"), "one", long)
	n := b.of(page("x"))
	later := []byte(b.raw.Get(ctx, n.head).Val())
	later[4] = 2 // and its checksum, which is about the version
	b.must(b.raw.Set(ctx, n.head, later, long).Err())
	if e := b.taken(page("x"), look()).Entry; e != nil {
		t.Errorf("it was read as %+v", e)
	}
	p, err := b.Purge(ctx, policy.Selector{Page: page("x").Primary}, store.Soft)
	b.must(err)
	if now := b.raw.Get(ctx, n.head).Val(); now != string(later) || p.Estimate != 0 {
		t.Errorf("a soft purge has made of it %q, and counted %d", now, p.Estimate)
	}
	l := b.lease(page("x"), "t2")
	b.must(b.Commit(ctx, l, write(page("x"), answer("two", long))))
	b.holds(page("x"), "two")
}

// TestUniquePagesLeaveNothing: what was stored once and never asked for again leaves Redis as empty as it was, soon after
// its time; large bodies stay for those who may be reading them.
func TestUniquePagesLeaveNothing(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for i := range 500 {
		key := page(fmt.Sprint("small/", i))
		w := write(key, answer("one", short))
		w.Keep = short
		ask := want(key.Primary)
		ask.TTL = 5 * time.Second
		b.must(b.Commit(ctx, *b.taken(key, ask).Lease, w))
		w.Entry = answer(strings.Repeat("x", 2*inlineSize), short)
		w.Key = page(fmt.Sprint("large/", i%10))
		if got := b.taken(w.Key, ask); got.Lease != nil {
			b.must(b.Commit(ctx, *got.Lease, w))
		}
	}
	var left []string
	eventually(t, "all but the segments is gone", func() bool {
		left = b.raw.Keys(ctx, "*").Val()
		return !slices.ContainsFunc(left, func(key string) bool { return !strings.Contains(key, ":seg:") && !strings.HasSuffix(key, ":bell") })
	})
	for _, key := range left {
		if ttl := b.raw.PTTL(ctx, key).Val(); strings.Contains(key, ":seg:") && (ttl < 0 || ttl > readers+short) {
			t.Errorf("%s stays %v", key, ttl)
		}
	}
}

// TestUnreadableEntry: a head that the script takes for fresh and the replica cannot read would otherwise be an entry
// that nobody may use and nobody may replace.
func TestUnreadableEntry(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	n := b.of(page("x"))
	for what, spoil := range map[string]func(){
		"a bit fell over": func() { b.must(b.raw.SetRange(ctx, n.head, 70, "\xff").Err()) },
		"the body's bit":  func() { b.must(b.raw.SetRange(ctx, n.head, b.raw.StrLen(ctx, n.head).Val()-tailSize-25, "\xff").Err()) },
		"the plan's bit":  func() { b.must(b.raw.SetRange(ctx, n.head, b.raw.StrLen(ctx, n.head).Val()-10, "\xff").Err()) },
		"cut short": func() {
			b.must(b.raw.Set(ctx, n.head, b.raw.GetRange(ctx, n.head, 0, -9).Val(), long).Err())
		},
		"another page's": func() { b.must(b.raw.Copy(ctx, b.of(page("y")).head, n.head, 0, true).Err()) },
	} {
		b.must(b.raw.FlushDB(ctx).Err())
		b.seed(page("y"), "other", long)
		b.seed(page("x"), "one", long)
		spoil()
		if got := b.taken(page("x"), look()); got.Entry != nil || got.Lease != nil {
			t.Errorf("%s: looked at %+v", what, got)
		}
		l := b.lease(page("x"), "t2")
		if got := b.taken(page("x"), want("t3")); got.Entry != nil || got.HeldBy == nil {
			t.Errorf("%s: taken = %+v, want the holder", what, got)
		}
		b.must(b.Commit(ctx, l, write(page("x"), answer("two", long))))
		b.holds(page("x"), "two")
	}
}

func TestRedisForgets(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	t.Run("everything: the holder may still commit", func(t *testing.T) {
		l := b.lease(page("a"), "t1")
		b.must(b.raw.FlushDB(ctx).Err())
		b.must(b.Commit(ctx, l, write(page("a"), answer("one", long))))
		b.holds(page("a"), "one")
	})
	t.Run("everything, and another took it: he may", func(t *testing.T) {
		l := b.lease(page("b"), "t1")
		b.must(b.raw.FlushDB(ctx).Err())
		next := b.lease(page("b"), "t2")
		b.fails(b.Commit(ctx, l, write(page("b"), answer("one", long))), store.ErrLost)
		b.must(b.Commit(ctx, next, write(page("b"), answer("two", long))))
		b.fails(b.Commit(ctx, l, write(page("b"), answer("one", long))), store.ErrLost)
		b.holds(page("b"), "two")
	})
	t.Run("the lease: renewing takes it again", func(t *testing.T) {
		w := want("t1")
		w.Class = policy.EarlyWaits
		l := *b.taken(page("c"), w).Lease
		b.must(b.raw.Del(ctx, b.of(page("c")).lease).Err())
		if class, err := b.Renew(ctx, l, long); err != nil || class != policy.EarlyWaits {
			t.Errorf("renew: %d, %v", class, err)
		}
		if got := b.taken(page("c"), want("t2")); got.HeldBy == nil || got.HeldBy.Token != "t1" || got.HeldBy.Taken != l.Taken {
			t.Errorf("taken = %+v", got)
		}
	})
	t.Run("the lease, after a purge: it is gone", func(t *testing.T) {
		l := b.lease(page("d"), "t1")
		_, err := b.Purge(ctx, policy.Selector{Page: page("d").Primary}, store.Soft)
		b.must(err)
		b.must(b.raw.Del(ctx, b.of(page("d")).lease).Err())
		unaware := store.Lease{Key: l.Key, Token: l.Token, Taken: l.Taken}
		_, err = b.Renew(ctx, unaware, long)
		b.fails(err, store.ErrLost)
		b.fails(b.Commit(ctx, unaware, write(page("d"), answer("one", long))), store.ErrLost)
	})
	t.Run("the scripts", func(t *testing.T) {
		b.must(b.raw.ScriptFlush(ctx).Err())
		b.seed(page("e"), "one", long)
		b.holds(page("e"), "one")
	})
}

// TestTakenTwice: the first reply was lost to its caller, not to this replica, and both are told of a loss.
func TestTakenTwice(t *testing.T) {
	b := newBench(t)
	first, again := b.lease(page("x"), "t1"), b.lease(page("x"), "t1")
	_, err := b.Purge(t.Context(), policy.Selector{Page: page("x").Primary}, store.Hard)
	b.must(err)
	for _, l := range []store.Lease{first, again} {
		select {
		case <-l.Lost:
		case <-time.After(long):
			t.Fatal("a holder was not told")
		}
	}
}

// TestUnansweredTake: the reply was lost, so the replica fills by the token it sent, and the commit decides.
func TestUnansweredTake(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	l := b.lease(page("x"), "t1")
	unaware := store.Lease{Key: l.Key, Token: "t1"}
	b.must(b.Commit(ctx, unaware, write(page("x"), answer("one", long))))
	if e := b.taken(page("x"), look()).Entry; e == nil || e.Leased != l.Taken {
		t.Errorf("entry = %+v, want one leased at %d", e, l.Taken)
	}
	// And when the take never arrived:
	b.fails(b.Commit(ctx, store.Lease{Key: page("y"), Token: "t2"}, write(page("y"), answer("one", long))), store.ErrLost)
	if b.taken(page("y"), look()).Entry != nil {
		t.Error("something was written without a lease")
	}
}

// TestOlderLeaseUndoesNothing: what was asked for later stays, however the older lease comes to be there still.
func TestOlderLeaseUndoesNothing(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	v := policy.Key{Primary: page("x").Primary, Variant: "v"}
	older, newer := b.lease(page("x"), "t1"), b.lease(v, "t2")
	b.must(b.Commit(ctx, newer, write(v, answer("two", -time.Second))))
	b.fails(b.Commit(ctx, older, write(v, answer("one", long))), store.ErrLost)
	b.holds(v, "two")
	if out, err := b.Await(ctx, older); err != nil || out.End != store.Lapsed {
		t.Errorf("who waited for the older one learned %+v, %v", out, err)
	}

	older = b.lease(v, "t3")
	b.must(b.raw.Del(ctx, b.of(v).lease).Err())
	b.must(b.Commit(ctx, b.lease(v, "t4"), write(v, answer("four", long))))
	b.must(b.raw.Del(ctx, b.of(v).lease).Err())
	b.fails(b.Commit(ctx, older, write(v, answer("three", long))), store.ErrLost)
	b.holds(v, "four")
}

// TestClockSetBack: leases stay in order, whatever Redis' clock does: here what lies there is from the future.
func TestClockSetBack(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	for what, put := range map[string]func(n names) error{
		"an ended lease": func(n names) error {
			return b.raw.Set(ctx, n.lease, fmt.Sprintf("E1|%d|%s|t0", ahead, filled()), long).Err()
		},
		"a page's note": func(n names) error { return b.raw.Set(ctx, n.page, fmt.Sprintf("N2|0|0|%d|0|0|0", ahead), long).Err() },
		"all pages'": func(n names) error {
			return b.raw.HSet(ctx, n.notes, "all", fmt.Sprintf("N2|0|%d|0|0|0|0", ahead)).Err()
		},
		"another's": func(n names) error {
			_, err := b.pipe(ctx, []call{b.noteStep(n, noteOf(policy.Selector{Tag: "other"}, store.Soft), dating{at: ahead}, nil)})
			return err
		},
	} {
		x := page(what) // of its own, as Redis is told its purges again when it was flushed
		b.must(b.raw.FlushDB(ctx).Err())
		b.must(put(b.of(x)))
		l := b.lease(x, "t1")
		if l.Taken <= ahead {
			t.Errorf("%s of %d: taken at %d", what, ahead, l.Taken)
		}
		b.must(b.Commit(ctx, l, write(x, answer("one", -time.Second))))
		if next := b.lease(x, "t2"); next.Taken <= l.Taken {
			t.Errorf("%s: taken at %d after %d", what, next.Taken, l.Taken)
		}
		p, err := b.Purge(ctx, policy.Selector{Page: x.Primary}, store.Hard)
		b.must(err)
		if e := b.taken(x, look()).Entry; e != nil || p.Estimate != 1 {
			t.Errorf("%s: purged %+v, and there is %+v", what, p, e)
		}
	}
}

// TestClockBehindAndNotes: a purge is later than all that was leased before it, on whatever page, also when Redis' clock is
// behind what it was, as after a failover to a host that is some minutes slow. Here the last lease is from the future.
func TestClockBehindAndNotes(t *testing.T) {
	for name, sel := range map[string]policy.Selector{
		"tag": {Tag: "red"}, "host": {Host: "example.com"}, "prefix": {Prefix: page("x").Place()}, "all": {All: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ctx := t.Context()
			ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
			b.must(b.raw.Set(ctx, b.of(page("x")).lease, fmt.Sprintf("E1|%d|%s|t0", ahead, filled()), long).Err())
			running := b.lease(page("xy"), "t1")
			l := b.lease(page("x"), "t2")
			e := answer("one", long)
			e.Tags = []string{"red"}
			b.must(b.Commit(ctx, l, write(page("x"), e)))
			p, err := b.Purge(ctx, sel, store.Hard)
			b.must(err)
			if p.At < l.Taken {
				t.Errorf("the purge is of %d, what was leased at %d", p.At, l.Taken)
			}
			if e := b.taken(page("x"), look()).Entry; e != nil {
				t.Error("what was purged is there")
			}
			b.fails(b.Commit(ctx, running, write(page("xy"), e)), store.ErrLost)
			if next := b.lease(page("y"), "t3"); next.Taken <= p.At {
				t.Errorf("the next is taken at %d, after a purge of %d", next.Taken, p.At)
			}
		})
	}
}

// TestInvalidatedCopyStandsInForNothing: a remembered failure spares the upstream only where the copy may be served.
func TestInvalidatedCopyStandsInForNothing(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	sel := policy.Selector{Page: page("x").Primary}
	fail := func(token string, mode store.Mode) store.Taken {
		_, err := b.Purge(ctx, sel, mode)
		b.must(err)
		b.must(b.Release(ctx, b.lease(page("x"), token), store.Outcome{End: store.Failed, Remember: long}))
		return b.taken(page("x"), want(token+"'s next"))
	}
	b.seed(page("x"), "one", long)
	got := fail("t1", store.Soft)
	if got.Failed == nil || got.Lease != nil || got.Failed.Remember <= 0 || got.Failed.Remember > long {
		t.Errorf("soft: taken = %+v, want the failure", got)
	}
	b.must(b.raw.Del(ctx, b.of(page("x")).fail).Err())
	if got := fail("t2", store.MustValidate); got.Failed != nil || got.Lease == nil {
		t.Errorf("must validate: taken = %+v, want the lease", got)
	}
}

// TestFullRedis: refused writes are not an outage. What is stored is answered, the lease's refusal is the error, and
// what must get through does.
func TestFullRedis(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("stale"), "one", -time.Second)
	b.seed(page("fresh"), "one", long)
	b.seed(page("good"), strings.Repeat("x", mib), -time.Second)
	running, refresh := b.lease(page("running"), "t1"), b.lease(page("good"), "t2")
	b.must(b.raw.ConfigSet(ctx, "maxmemory", "1mb").Err())

	got, err := b.Take(ctx, page("stale"), want("t3"))
	b.fails(err, store.ErrReadOnly)
	if got.Entry == nil || got.Lease != nil {
		t.Errorf("taken = %+v, want the entry", got)
	}
	b.holds(page("fresh"), "one")
	_, err = b.Take(ctx, page("new"), want("t4"))
	b.fails(err, store.ErrReadOnly)
	b.fails(b.Commit(ctx, running, write(page("running"), answer("one", long))), store.ErrReadOnly)
	b.fails(b.Commit(ctx, refresh, write(page("good"), answer(strings.Repeat("y", 2*mib), long))), store.ErrReadOnly)
	b.must(b.Release(ctx, running, store.Outcome{End: store.Lapsed}))
	if out, err := b.Await(ctx, running); err != nil || out.End != store.Lapsed {
		t.Errorf("a released lease: %+v, %v", out, err)
	}
	if p, err := b.Purge(ctx, policy.Selector{Page: page("fresh").Primary}, store.Hard); err != nil || p.Estimate != 1 {
		t.Errorf("purge: %+v, %v", p, err)
	}
	if e := b.taken(page("fresh"), look()).Entry; e != nil {
		t.Error("the purged page is still there")
	}
	if !b.breaker.closed() {
		t.Error("the breaker took a refusal for an outage")
	}
	b.must(b.raw.ConfigSet(ctx, "maxmemory", "0").Err())
	b.holds(page("good"), strings.Repeat("x", mib))
	b.seed(page("new"), "one", long)
}

func TestReadOnlyRedis(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("x"), "one", -time.Second)
	l := b.lease(page("y"), "t1")
	b.must(b.raw.ReplicaOf(ctx, "127.0.0.1", "1").Err()) // of a master that does not exist
	got, err := b.Take(ctx, page("x"), want("t2"))
	b.fails(err, store.ErrReadOnly)
	if got.Entry == nil {
		t.Error("the entry is not answered")
	}
	b.holds(page("x"), "one")
	b.fails(b.Commit(ctx, l, write(page("y"), answer("one", long))), store.ErrReadOnly)
	_, err = b.Purge(ctx, policy.Selector{Page: page("x").Primary}, store.Hard)
	b.fails(err, store.ErrReadOnly)
	b.fails(b.Release(ctx, l, store.Outcome{End: store.Lapsed}), store.ErrReadOnly)
	if !b.breaker.closed() {
		t.Error("the breaker took a refusal for an outage")
	}
}

func TestWrongPassword(t *testing.T) {
	b := newBench(t)
	b.must(b.raw.ConfigSet(t.Context(), "requirepass", "right").Err())
	c := b.srv.config("weir")
	c.Password = "wrong"
	s, err := Open(c)
	b.must(err)
	defer func() { _ = s.Close() }()
	if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("check: %v", err)
	}
	_, err = s.Take(t.Context(), page("x"), want("t1"))
	b.fails(err, store.ErrUnavailable)
	c.Password = "right"
	right := b.srv.open(t, c)
	b.must(right.Check(t.Context()))
}

// TestPurgeReachesTheReplica: a purge that a change of master could undo is not done.
func TestPurgeReachesTheReplica(t *testing.T) {
	b := newBench(t, "--port", freePort(t), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
	ctx := t.Context()
	port := b.raw.ConfigGet(ctx, "port").Val()["port"]
	replica := startServer(t, "--replicaof", "127.0.0.1 "+port)
	there := replica.client()
	defer func() { _ = there.Close() }()
	// Before it is online nothing is waited for, and after that it takes a moment until it is sent anything.
	eventually(t, "the replica follows", func() bool {
		online := strings.Contains(b.raw.Info(ctx, "replication").Val(), "state=online")
		_, err := b.Purge(ctx, policy.Selector{Page: page("tried").Primary}, store.Hard)
		return online && err == nil
	})
	_, err := b.Purge(ctx, policy.Selector{Page: page("x").Primary}, store.Hard)
	b.must(err)
	if there.Exists(ctx, b.of(page("x")).page).Val() != 1 {
		t.Error("the purge has returned, and the replica does not have the note")
	}
	b.replies = 50 * time.Millisecond
	replica.pause()
	_, err = b.Purge(ctx, policy.Selector{Page: page("y").Primary}, store.Hard)
	b.fails(err, store.ErrUnavailable)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestConfigNamesItsKeys(t *testing.T) {
	good := Config{Mode: "single", Addresses: []string{"127.0.0.1:6379"}, Prefix: "weir", Timeout: time.Second}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, spoil := range map[string]func(c *Config){
		"mode":            func(c *Config) { c.Mode = "ring" },
		"addresses":       func(c *Config) { c.Addresses = append(c.Addresses, "127.0.0.1:6380") },
		"none given":      func(c *Config) { c.Mode, c.Addresses = "cluster", nil },
		"host:port":       func(c *Config) { c.Addresses[0] = "localhost" },
		"db":              func(c *Config) { c.DB = -1 },
		"only database 0": func(c *Config) { c.Mode, c.DB = "cluster", 1 },
		"sentinel_master": func(c *Config) { c.Mode = "sentinel" },
		"only mode":       func(c *Config) { c.SentinelMaster = "m" },
		"prefix":          func(c *Config) { c.Prefix = "a{b}" },
		"timeout":         func(c *Config) { c.Timeout = 0 },
		"tls: cert":       func(c *Config) { c.TLS.Cert = "a" },
	} {
		c := good
		c.Addresses = slices.Clone(good.Addresses)
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	good.TLS = TLS{Enabled: true, CA: "nowhere.pem"}
	if _, err := Open(good); err == nil || !strings.Contains(err.Error(), "tls.ca") {
		t.Errorf("tls.ca: %v", err)
	}
}
