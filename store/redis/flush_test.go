package redis

import (
	"fmt"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/near"
)

// What lies in Redis may be gone all at once, or be what it was some time ago. The line is whole all the while, so that the copies
// here have obeyed every purge; what they may not have is a purge that they were never told of.

// nobody asserts that no replica answers a page without asking.
func (r *replicas) nobody(key policy.Key, when string) {
	r.Helper()
	for name, s := range map[string]*near.Store{"a": r.a, "b": r.b} {
		if got := r.peeks(s, key); got != "" {
			r.Errorf("%s: %s answers %q", when, name, got)
		}
	}
}

// TestFlushedRedisAndCopies: a flush is no purge, and loses none. Copies stay until the first ring tells, by a number that fell,
// that Redis has forgotten something: from then on each is checked before it is answered.
func TestFlushedRedisAndCopies(t *testing.T) {
	r := newReplicas(t)
	purged, kept := page("purged"), page("kept")
	for _, key := range []policy.Key{purged, kept} {
		r.fill(key, "one")
		r.copied(key, "one")
	}
	_, err := r.a.Purge(t.Context(), policy.Selector{Page: purged.Primary}, store.Hard)
	r.must(err)
	r.must(r.raw.FlushDB(t.Context()).Err())
	r.nobody(purged, "flushed after its purge")
	if r.peeks(r.a, kept) != "one" || r.peeks(r.b, kept) != "one" {
		t.Error("what nobody purged is not answered any more: a flush is an hour of misses")
	}

	// The number of this ring is 1 again. The purge is obeyed all the same, before it returns; then all is checked.
	tagged := page("tagged")
	r.fill(tagged, "one")
	r.copied(tagged, "one")
	p, err := r.a.Purge(t.Context(), policy.Selector{Tag: "red"}, store.Hard)
	r.must(err)
	if p.Replicas != 2 {
		t.Errorf("%d replicas rang back", p.Replicas)
	}
	r.nobody(tagged, "purged after the flush")
	r.nobody(kept, "purged after the flush, by the tag that it has")
}

// TestNumberThatFell: another page's ring is enough for no copy to be believed, and Redis' word counts: what it does not have
// goes here, too.
func TestNumberThatFell(t *testing.T) {
	r := newReplicas(t)
	key := page("x")
	r.fill(key, "one")
	r.copied(key, "one")
	purge := func() {
		_, err := r.a.Purge(t.Context(), policy.Selector{Page: page("other").Primary}, store.Hard)
		r.must(err)
	}
	purge()
	if r.peeks(r.a, key) != "one" || r.peeks(r.b, key) != "one" {
		t.Fatal("a ring whose number is the next is no reason to doubt")
	}
	r.must(r.raw.FlushDB(t.Context()).Err())
	purge()
	r.nobody(key, "when the number has fallen")
	for name, s := range map[string]*near.Store{"a": r.a, "b": r.b} {
		if got, err := s.Take(t.Context(), key, look()); err != nil || got.Entry != nil {
			t.Errorf("%s: taken %+v, %v", name, got, err)
		}
	}
	r.nobody(key, "when it has been asked for")
}

// TestOldSnapshot: Redis comes back with what it had before purges of every kind. A replica that heard of them believes none of it,
// from the first answer on: it may come before the line is back and Redis has been told again (R11).
func TestOldSnapshot(t *testing.T) {
	r := newReplicas(t)
	ctx := t.Context()
	purges := map[policy.Key]policy.Selector{}
	for mode := range store.MustValidate + 1 {
		one, many := page(fmt.Sprint("page-", mode)), page(fmt.Sprint("prefix-", mode))
		purges[one], purges[many] = policy.Selector{Page: one.Primary}, policy.Selector{Prefix: many.Place()}
	}
	for key := range purges {
		r.fill(key, "old "+key.Primary)
		r.copied(key, "old "+key.Primary)
	}
	r.fill(page("kept"), "kept")
	r.must(r.raw.Save(ctx).Err())
	for mode := range store.MustValidate + 1 {
		for _, kind := range []string{"page-", "prefix-"} {
			_, err := r.a.Purge(ctx, purges[page(fmt.Sprint(kind, mode))], mode)
			r.must(err)
		}
	}
	r.srv.kill()
	r.srv.start()
	for name, s := range map[string]*near.Store{"a": r.a, "b": r.b} {
		for key := range purges {
			for _, w := range []store.Want{look(), want(name + key.Primary)} {
				got, err := s.Take(ctx, key, w)
				if err != nil || got.Entry != nil && got.Alone == nil && got.Entry.FreshUntil.After(w.At) {
					t.Errorf("%s: what was purged, %s, is fresh again: %+v, %v", name, key.Primary, got.Entry, err)
				}
				if w.TTL > 0 && got.Lease == nil && got.HeldBy == nil {
					t.Errorf("%s: nobody may fetch %s anew", name, key.Primary)
				}
			}
			r.nobody(key, "back")
		}
		eventually(t, "Redis is asked again", func() bool {
			got, err := s.Take(ctx, page("kept"), look())
			return err == nil && got.Alone == nil && got.Entry != nil
		})
	}
}

// TestForgottenPurgeIsRung: what is told again is news to a replica that was deaf when the purge came, and has asked Redis since that
// forgot it. Of several who tell, the first rings.
func TestForgottenPurgeIsRung(t *testing.T) {
	r := newReplicas(t)
	ctx := t.Context()
	c, deaf, hole := r.third(250 * time.Millisecond)
	r.replies = 50 * time.Millisecond
	for mode := range store.MustValidate + 1 {
		key := page(fmt.Sprint(mode))
		for _, sel := range []policy.Selector{{Page: key.Primary}, {Tag: "red"}} {
			r.fill(key, "old")
			snapshot := r.raw.Dump(ctx, r.of(key).head).Val()
			hole.swallows.Store(true)
			_, err := r.a.Purge(ctx, sel, mode)
			r.must(err)
			eventually(t, "it notices", func() bool { return !deaf.bell.hears() })
			hole.heal()
			eventually(t, "it hears again", deaf.bell.hears)
			r.must(r.raw.FlushDB(ctx).Err())
			r.must(r.raw.RestoreReplace(ctx, r.of(key).head, long, snapshot).Err())
			eventually(t, "it is answered by a Redis that forgot", func() bool {
				_, _ = c.Take(ctx, key, look())
				return r.peeks(c, key) == "old"
			})
			r.must(r.replay(ctx))
			eventually(t, "it obeys what is told again", func() bool { return r.peeks(c, key) == "" })
			r.must(r.other.replay(ctx))
			rung := r.raw.Get(ctx, r.of(key).bell).Val()
			r.must(r.replay(ctx))
			r.must(r.other.replay(ctx))
			if again := r.raw.Get(ctx, r.of(key).bell).Val(); again != rung {
				t.Errorf("%+v, mode %d: what is known is rung, number %s after %s", sel, mode, again, rung)
			}
		}
	}
}
