package redis

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

func noise(n int, seed byte) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

// segmentsOf lists the segments that lie under a key, in no order.
func (b *bench) segmentsOf(key policy.Key) []string {
	b.Helper()
	keys, err := b.raw.Keys(b.Context(), b.of(key).segments+":*").Result()
	b.must(err)
	return keys
}

func TestLargeBodiesLieInSegments(t *testing.T) {
	b := newBench(t)
	b.seed(page("x"), string(noise(16<<10, 1)), long)
	if got := b.segmentsOf(page("x")); len(got) != 0 {
		t.Errorf("16 KiB lie in %d segments, want them in the entry", len(got))
	}
	b.seed(page("y"), string(noise(2*mib+1, 1)), long)
	got := b.segmentsOf(page("y"))
	if len(got) != 3 {
		t.Errorf("2 MiB and a byte lie in %d segments, want 3", len(got))
	}
	for _, key := range got {
		if n := b.raw.StrLen(t.Context(), key).Val(); n > mib {
			t.Errorf("a segment of %d bytes", n)
		}
	}
	if n := b.raw.StrLen(t.Context(), b.of(page("y")).head).Val(); n > 1<<10 {
		t.Errorf("the head has %d bytes", n)
	}
}

// TestLostSegments: found before the first byte it is a miss, found later an error, and never an end that looks right.
func TestLostSegments(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	text := string(noise(3*mib, 1))
	first, third := b.of(page("x")).segments+":*:0", b.of(page("x")).segments+":*:2"
	name := func(pattern string) string { return b.raw.Keys(ctx, pattern).Val()[0] }
	for what, spoil := range map[string]func(key string){
		"evicted":   func(key string) { b.must(b.raw.Del(ctx, key).Err()) },
		"damaged":   func(key string) { b.must(b.raw.SetRange(ctx, key, 77, "\x00\x00\x00\x00").Err()) },
		"cut short": func(key string) { b.must(b.raw.Set(ctx, key, text[:9], 0).Err()) },
		"foreign":   func(key string) { b.must(b.raw.Del(ctx, key).Err()); b.must(b.raw.RPush(ctx, key, "a").Err()) },
	} {
		t.Run("the first "+what, func(t *testing.T) {
			b.must(b.raw.FlushDB(ctx).Err())
			b.seed(page("x"), text, long)
			spoil(name(first))
			if got := b.taken(page("x"), look()); got.Entry != nil {
				t.Errorf("taken = %+v, want a miss", got)
			}
			got := b.taken(page("x"), want("t2"))
			if got.Entry != nil || got.Lease == nil {
				t.Fatalf("taken = %+v, want the lease", got)
			}
			b.must(b.Commit(ctx, *got.Lease, write(page("x"), answer("two", long))))
			b.holds(page("x"), "two")
		})
		t.Run("a later one "+what, func(t *testing.T) {
			b.must(b.raw.FlushDB(ctx).Err())
			b.seed(page("x"), text, long)
			e := b.taken(page("x"), look()).Entry
			spoil(name(third))
			p := make([]byte, len(text))
			n, err := e.Body.ReadAt(ctx, p, 0)
			if n != 2*mib || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%d bytes, %v; want the first 2 MiB and an error that is no end", n, err)
			}
			if string(p[:n]) != text[:n] {
				t.Error("other bytes came back")
			}
		})
	}
}

// TestReplacedBodies: who reads on keeps what he reads, for a while; what was never committed goes at once.
func TestReplacedBodies(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	text := string(noise(3*mib, 1))
	b.seed(page("x"), text, -time.Second)
	old := b.segmentsOf(page("x"))
	reader := b.taken(page("x"), look()).Entry
	loser, winner := b.lease(page("x"), "t2"), store.Lease{}

	// The loser's lease is lost to Redis, another takes it, and both commit.
	b.must(b.raw.Del(ctx, b.of(page("x")).lease).Err())
	winner = b.lease(page("x"), "t3")
	b.fails(b.Commit(ctx, loser, write(page("x"), answer(string(noise(2*mib, 2)), long))), store.ErrLost)
	if got := b.segmentsOf(page("x")); len(got) != len(old) {
		t.Errorf("%d segments are left after a lost commit, want the good copy's %d", len(got), len(old))
	}
	b.holds(page("x"), text)
	b.must(b.Commit(ctx, winner, write(page("x"), answer(string(noise(2*mib, 3)), long))))
	b.holds(page("x"), string(noise(2*mib, 3)))
	for _, key := range old {
		if ttl := b.raw.PTTL(ctx, key).Val(); ttl <= 0 || ttl > readers {
			t.Errorf("a replaced segment stays %v, want some minutes", ttl)
		}
	}
	p := make([]byte, len(text))
	if n, err := reader.Body.ReadAt(ctx, p, 0); n != len(p) || string(p) != text {
		t.Errorf("who was reading got %d bytes, %v", n, err)
	}
	_, err := b.Purge(ctx, policy.Selector{Page: page("x").Primary}, store.Hard)
	b.must(err)
	for _, key := range b.segmentsOf(page("x")) {
		if ttl := b.raw.PTTL(ctx, key).Val(); ttl <= 0 || ttl > readers {
			t.Errorf("a purged segment stays %v, want some minutes", ttl)
		}
	}
}

// TestConfirmedBody: after a 304 the same body is committed again, and stays where it is.
func TestConfirmedBody(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	text := string(noise(3*mib, 1))
	b.seed(page("x"), text, -time.Second)
	old := b.segmentsOf(page("x"))
	e := answer("", long)
	e.Body = b.taken(page("x"), look()).Entry.Body
	w := write(page("x"), e)
	w.Keep = 24 * time.Hour
	trips := b.countTrips()
	l := b.lease(page("x"), "t2") // two round trips, as the first segment is read too
	b.must(b.Commit(ctx, l, w))
	if got := trips.n.Load(); got != 3 {
		t.Errorf("%d round trips, want 2 for the take and one for the commit", got)
	}
	got := b.segmentsOf(page("x"))
	slices.Sort(got)
	slices.Sort(old)
	if !slices.Equal(got, old) {
		t.Errorf("segments = %v, want %v", got, old)
	}
	for _, key := range got {
		if ttl := b.raw.PTTL(ctx, key).Val(); ttl < w.Keep {
			t.Errorf("a segment stays %v, and its head %v", ttl, w.Keep)
		}
	}
	b.holds(page("x"), text)

	// A lost commit of it must not take the good copy along.
	w.Entry.FreshUntil = time.Now().Add(-time.Second)
	b.must(b.Commit(ctx, b.leaseDespite(page("x"), "t3"), w))
	l = b.lease(page("x"), "t4")
	b.must(b.raw.Del(ctx, b.of(page("x")).lease).Err())
	b.lease(page("x"), "t5")
	b.fails(b.Commit(ctx, l, w), store.ErrLost)
	b.holds(page("x"), text)
}

// TestConfirmedBodyIsGone: the 304 came, and meanwhile Redis has evicted what it confirmed.
func TestConfirmedBodyIsGone(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("x"), string(noise(3*mib, 1)), -time.Second)
	e := answer("", long)
	e.Body = b.taken(page("x"), look()).Entry.Body
	l := b.lease(page("x"), "t2")
	b.must(b.raw.Del(ctx, b.raw.Keys(ctx, b.of(page("x")).segments+":*:2").Val()...).Err())
	b.must(b.Commit(ctx, l, write(page("x"), e)))
	if got := b.taken(page("x"), want("t3")); got.Entry != nil || got.Lease == nil {
		t.Errorf("taken = %+v, want a miss and the lease", got)
	}
}

// TestStagedTerms: until the commit, segments are nobody's and go soon; after it they outlive the head.
func TestStagedTerms(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	var staged time.Duration
	b.bulk.AddHook(after{name: "set", do: func() {
		for _, key := range b.segmentsOf(page("x")) {
			staged = max(staged, b.raw.PTTL(ctx, key).Val())
		}
	}})
	w := write(page("x"), answer(string(noise(2*mib, 1)), long))
	w.Keep = 24 * time.Hour
	b.must(b.Commit(ctx, b.lease(page("x"), "t1"), w))
	if staged <= 0 || staged > staging {
		t.Errorf("a staged segment stays %v", staged)
	}
	for _, key := range b.segmentsOf(page("x")) {
		if ttl := b.raw.PTTL(ctx, key).Val(); ttl <= b.raw.PTTL(ctx, b.of(page("x")).head).Val() {
			t.Errorf("a segment stays %v, less than its head", ttl)
		}
	}
}

// leaseDespite is a lease for something that is still fresh.
func (b *bench) leaseDespite(key policy.Key, token string) store.Lease {
	b.Helper()
	w := want(token)
	w.At = b.taken(key, look()).Entry.FreshUntil
	return *b.taken(key, w).Lease
}

// TestFullAfterStaging: Redis fills up between the last segment and the commit.
func TestFullAfterStaging(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	l := b.lease(page("x"), "t1")
	b.bulk.AddHook(after{name: "set", do: func() { b.must(b.raw.ConfigSet(ctx, "maxmemory", "1mb").Err()) }})
	b.fails(b.Commit(ctx, l, write(page("x"), answer(string(noise(mib, 1)), long))), store.ErrReadOnly)
	if got := b.segmentsOf(page("x")); len(got) != 0 {
		t.Errorf("%d segments are left", len(got))
	}
}

// TestEvictedWhileStaged: Redis was so full that a segment did not live to see the commit.
func TestEvictedWhileStaged(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	l := b.lease(page("x"), "t1")
	b.bulk.AddHook(after{name: "set", do: func() {
		b.must(b.raw.Del(ctx, segmentName(b.of(page("x")), generationOf("t1"))+"0").Err())
	}})
	b.must(b.Commit(ctx, l, write(page("x"), answer(string(noise(2*mib, 1)), long))))
	if got := b.segmentsOf(page("x")); len(got) != 0 {
		t.Errorf("%d segments are left", len(got))
	}
	if got := b.taken(page("x"), want("t2")); got.Entry != nil || got.Lease == nil {
		t.Errorf("taken = %+v, want a miss and the lease", got)
	}
}

// after does something each time a command has been answered.
type after struct {
	name string
	do   func()
}

func (a after) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == a.name {
			a.do()
		}
		return err
	}
}

func (a after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestSourceFails: a body that breaks off while it is staged is not stored, and leaves nothing.
func TestSourceFails(t *testing.T) {
	b := newBench(t)
	e := answer("", long)
	e.Body = broken{store.Bytes{noise(mib, 1)}}
	l := b.lease(page("x"), "t1")
	if err := b.Commit(t.Context(), l, write(page("x"), e)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("commit: %v", err)
	}
	if got := b.segmentsOf(page("x")); len(got) != 0 {
		t.Errorf("%d segments are left", len(got))
	}
	if got := b.taken(page("x"), look()); got.Entry != nil || got.HeldBy == nil {
		t.Errorf("taken = %+v, want only the lease, for its holder to release", got)
	}
}

// broken says it has twice the bytes it has.
type broken struct{ store.Bytes }

func (b broken) Size() int64          { return 2 * b.Bytes.Size() }
func (b broken) Spans() []policy.Span { return []policy.Span{{Start: 0, End: b.Size()}} }

func (b broken) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := b.Bytes.ReadAt(ctx, p, off)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// TestParts: a body with holes answers what it holds, across spans and segments, and nothing else.
func TestParts(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	whole := noise(5*mib, 1)
	for what, spans := range map[string][]policy.Span{
		"small": {{Start: 10, End: 20}, {Start: 100, End: 1000}},
		"large": {{Start: 0, End: mib / 2}, {Start: mib, End: 3*mib + 7}, {Start: 5*mib - 1, End: 5 * mib}},
	} {
		e := answer("", -time.Second)
		e.Kind, e.Body = policy.Part, holed{store.Bytes{whole}, spans}
		l := b.lease(page(what), "t1")
		b.must(b.Commit(ctx, l, write(page(what), e)))
		got := b.taken(page(what), look()).Entry
		if got == nil || got.Body.Size() != 5*mib || !reflect.DeepEqual(got.Body.Spans(), spans) {
			t.Fatalf("%s: entry = %+v", what, got)
		}
		for _, s := range spans {
			p := make([]byte, s.Len())
			if n, err := got.Body.ReadAt(ctx, p, s.Start); n != len(p) || !bytes.Equal(p, whole[s.Start:s.End]) {
				t.Errorf("%s: %v: %d bytes, %v, or others", what, s, n, err)
			}
			if s.End == 5*mib {
				continue
			}
			p = make([]byte, s.Len()+1)
			if n, err := got.Body.ReadAt(ctx, p, s.Start); int64(n) != s.Len() || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s: past %v: %d bytes, %v, want an error that is no end", what, s, n, err)
			}
		}
	}
}

type holed struct {
	store.Bytes
	spans []policy.Span
}

func (h holed) Spans() []policy.Span { return h.spans }

// TestReadersShareAFetch: a hundred readers of one entry side by side move each segment once.
func TestReadersShareAFetch(t *testing.T) {
	b := newBench(t)
	text := string(noise(2*mib, 1))
	b.seed(page("x"), text, long)
	e := b.taken(page("x"), look()).Entry
	trips := b.countTrips()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			p := make([]byte, 100)
			if n, err := e.Body.ReadAt(t.Context(), p, mib+5); n != 100 || string(p) != text[mib+5:mib+105] {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	all.Wait()
	if got := trips.n.Load(); got != 1 {
		t.Errorf("%d fetches, want 1", got)
	}
	if _, err := e.Body.ReadAt(t.Context(), make([]byte, 1), 2*mib); !errors.Is(err, io.EOF) {
		t.Errorf("past the end: %v", err)
	}
}

// FuzzPlan: the end of a value may be anybody's.
func FuzzPlan(f *testing.F) {
	small := plan{size: 3, spans: []policy.Span{{Start: 0, End: 3}}, sums: []uint32{sum([]byte("abc"))}}
	f.Add(small.append([]byte("abc")), int64(3))
	large := plan{size: 9 * mib, spans: []policy.Span{{Start: 1, End: 2*mib + 1}}, sums: []uint32{1, 2}, generation: generationOf("t")}
	f.Add(large.append(nil), int64(9*mib))
	f.Add(plan{why: policy.NoStore}.append(nil), int64(0))
	f.Fuzz(func(t *testing.T, rest []byte, size int64) {
		p, body, err := parsePlan(rest, size)
		if err != nil {
			if !errors.Is(err, store.ErrUnreadable) {
				t.Errorf("error = %v", err)
			}
			return
		}
		if again := p.append(bytes.Clone(body)); !bytes.Equal(again, rest) {
			t.Errorf("read %x, written %x", rest, again)
		}
		for i := range p.sums {
			if from, to := p.segment(i); to <= from || to-from > segmentSize {
				t.Errorf("segment %d from %d to %d", i, from, to)
			}
		}
		for _, off := range []int64{0, 1, size / 2, size - 1, size} {
			if at, room, ok := p.place(off); ok && (at < 0 || room <= 0 || at+room > p.held()) {
				t.Errorf("byte %d at %d with %d more of %d", off, at, room, p.held())
			}
		}
	})
}

func TestPlanRefusesWhatDoesNotFit(t *testing.T) {
	good := plan{size: 10, spans: []policy.Span{{Start: 0, End: 3}}, sums: []uint32{1}}
	for what, spoil := range map[string]func(p *plan){
		"a span past the end":    func(p *plan) { p.size = 2 },
		"an empty span":          func(p *plan) { p.spans[0].End = 0 },
		"spans out of order":     func(p *plan) { p.spans = append(p.spans, policy.Span{Start: 2, End: 4}) },
		"a sum too many":         func(p *plan) { p.sums = append(p.sums, 2) },
		"no sum":                 func(p *plan) { p.sums = nil },
		"more than lies there":   func(p *plan) { p.spans[0].End = 4 },
		"a body beside segments": func(p *plan) { p.generation = generationOf("t") },
	} {
		p := good
		p.spans = []policy.Span{good.spans[0]}
		spoil(&p)
		if _, _, err := parsePlan(p.append([]byte("abc")), p.size); !errors.Is(err, store.ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, body, err := parsePlan(good.append([]byte("abc")), 10); err != nil || string(body) != "abc" {
		t.Errorf("the good one: %q, %v", body, err)
	}
	if strings.Contains(segmentName(names{segments: "s"}, generationOf("a")), segmentName(names{segments: "s"}, generationOf("b"))) {
		t.Error("two leases stage under one name")
	}
}
