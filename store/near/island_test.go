package near

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// R17: with the far store away this replica serves what it has, fills and collapses alone; what it filled is marked,
// capped, and gone when the far store is back.
func TestIsland(t *testing.T) {
	try(t, func(b *bench) {
		ctx := context.Background()
		b.fill(b.Store, page("before"), "one")
		b.f.breaks()
		b.f.away = store.ErrUnavailable
		got := b.take(page("before"), want("t1"))
		if b.text(got.Entry) != "one" || got.Lease != nil || !errors.Is(got.Alone, store.ErrUnavailable) {
			b.Errorf("what was here: %+v", got)
		}

		got = b.take(page("x"), want("t2"))
		if got.Lease == nil || got.Entry != nil {
			b.Fatalf("taken = %+v, want the lease", got)
		}
		if other := b.take(page("x"), want("t3")); other.HeldBy == nil || other.HeldBy.Token != "t2" {
			b.Errorf("the next: %+v", other)
		}
		if _, err := b.Renew(ctx, *got.Lease, time.Minute); err != nil {
			b.Errorf("renew: %v", err)
		}
		b.commit(b.Store, *got.Lease, page("x"), "alone")
		e := b.take(page("x"), want("t4")).Entry
		if b.text(e) != "alone" || !e.Unverified {
			b.Fatalf("what was filled alone: %+v", e)
		}
		now := time.Now()
		if fresh, grace := e.FreshUntil.Sub(now), e.RefreshUntil.Sub(e.FreshUntil); fresh != awayTTL || grace != time.Minute {
			b.Errorf("fresh for %v and %v of grace, want %v and a minute", fresh, grace, awayTTL)
		}
		b.peeks(page("x"), "")

		time.Sleep(time.Second)
		b.f.away = nil
		b.f.obey(store.Event{Kind: store.Healed})
		b.peeks(page("x"), "")
		b.peeks(page("before"), "")
		if got := b.take(page("x"), want("t5")); got.Entry != nil || got.Lease == nil || got.Alone != nil {
			b.Errorf("back: %+v, want the far store's lease", got)
		}
		if got := b.text(b.take(page("before"), look()).Entry); got != "one" {
			b.Errorf("back: %q", got)
		}
		b.peeks(page("before"), "one")
	})
}

// A copy that was not checked since the line was last whole may have been purged before: it is no good alone either.
func TestUncheckedCopiesAreNoIsland(t *testing.T) {
	try(t, func(b *bench) {
		b.fill(b.Store, page("x"), "one")
		b.fill(b.Store, page("checked"), "one")
		time.Sleep(time.Second)
		b.f.breaks(true)
		time.Sleep(time.Second)
		b.take(page("checked"), look())
		b.f.away = store.ErrUnavailable
		if got := b.take(page("x"), look()); got.Entry != nil {
			b.Errorf("%q is answered", b.text(got.Entry))
		}
		if got := b.take(page("checked"), look()); got.Entry == nil {
			b.Error("what was checked is not answered")
		}
	})
}

// The line may be whole while verbs fail: what was brought then is never peeked at, and what the far store has counts as soon
// as it answers.
func TestUnverifiedIsNotPeeked(t *testing.T) {
	try(t, func(b *bench) {
		old := b.fill(b.f.Store, page("x"), "shared")
		time.Sleep(time.Second)
		b.f.away = store.ErrUnavailable
		got := b.take(page("x"), want("t1"))
		b.commit(b.Store, *got.Lease, page("x"), "alone")
		b.peeks(page("x"), "")
		if e := b.take(page("x"), look()).Entry; b.text(e) != "alone" || e.Leased <= old.Taken {
			b.Fatalf("alone: %+v", e)
		}
		b.f.away = nil
		if got := b.text(b.take(page("x"), look()).Entry); got != "shared" {
			b.Errorf("taken %q", got)
		}
		b.peeks(page("x"), "shared")
	})
}

// A far store that takes no writes answers what it had before. That is no later than what was brought here meanwhile, which
// counts until it is overtaken by what the far store has, or until that takes writes again.
func TestFilledWhileTheFarStoreIsFull(t *testing.T) {
	try(t, func(b *bench) {
		b.fill(b.f.Store, page("x"), "old")
		time.Sleep(11 * time.Minute) // over its lifetime, within its windows
		b.f.full = true
		got := b.take(page("x"), want("t2"))
		if b.text(got.Entry) != "old" || got.Lease == nil || !errors.Is(got.Alone, store.ErrReadOnly) {
			b.Fatalf("taken = %+v", got)
		}
		b.commit(b.Store, *got.Lease, page("x"), "brought")
		for range 2 {
			if got := b.take(page("x"), want("t3")); b.text(got.Entry) != "brought" || got.Lease != nil {
				b.Errorf("taken %q, lease %v; want what was filled here", b.text(got.Entry), got.Lease)
			}
		}
		time.Sleep(time.Second)
		b.fill(b.f.Store, page("x"), "later") // by another replica, before it was full again
		if got := b.take(page("x"), want("t4")); b.text(got.Entry) != "later" {
			b.Errorf("taken %q, though the far store has a later one", b.text(got.Entry))
		}
	})
}

// The far store went away in mid-fill: those who come meanwhile are served what it brought.
func TestCommitWhileItGoesAway(t *testing.T) {
	try(t, func(b *bench) {
		ctx := context.Background()
		l := b.take(page("x"), want("t1")).Lease
		lost := b.take(page("y"), want("t2")).Lease
		b.purge(policy.Selector{Page: page("y").Primary}, store.Hard)
		b.f.away = store.ErrUnavailable
		for _, l := range []*store.Lease{l, lost} {
			if err := b.Commit(ctx, *l, write(l.Key, "brought")); !errors.Is(err, store.ErrUnavailable) {
				b.Errorf("commit: %v, want the truth", err)
			}
		}
		e := b.take(page("x"), want("t3")).Entry
		if b.text(e) != "brought" || !e.Unverified {
			b.Errorf("taken %+v", e)
		}
		b.peeks(page("x"), "")
		if e := b.take(page("y"), want("t4")).Entry; e != nil {
			b.Errorf("a fill that was purged brought %q", b.text(e))
		}
	})
}

// R14: the take arrived and its answer was lost. The fill's token is the lease's, so its commit is for all.
func TestUnansweredTake(t *testing.T) {
	try(t, func(b *bench) {
		ctx := context.Background()
		b.f.lost = true
		got := b.take(page("x"), want("t1"))
		if got.Lease == nil || got.Alone == nil {
			b.Fatalf("taken = %+v", got)
		}
		b.commit(b.Store, *got.Lease, page("x"), "one")
		if got, _ := b.f.Store.Take(ctx, page("x"), look()); b.text(got.Entry) != "one" {
			b.Errorf("in the far store lies %q", b.text(got.Entry))
		}
		// And where it did not arrive, the far store, which is back, decides.
		b.f.away = store.ErrUnavailable
		got = b.take(page("y"), want("t2"))
		b.f.away = nil
		if err := b.Commit(ctx, *got.Lease, write(page("y"), "one")); !errors.Is(err, store.ErrLost) {
			b.Errorf("commit: %v", err)
		}
		if got := b.take(page("y"), look()); got.Entry != nil || got.HeldBy != nil {
			b.Errorf("taken = %+v", got)
		}
	})
}

// A purge that the far store does not take fails, and is obeyed here all the same.
func TestPurgeAlone(t *testing.T) {
	try(t, func(b *bench) {
		ctx := context.Background()
		var heard []store.Event
		watching := make(chan struct{})
		go func() {
			_ = b.Watch(b.Context(), func(e store.Event) {
				heard = append(heard, e)
				if e.Kind == store.Healed {
					close(watching)
				}
			})
		}()
		<-watching
		b.fill(b.Store, page("x"), "one")
		heard = nil
		b.f.away = store.ErrUnavailable
		running := b.take(page("y"), want("t1")).Lease
		sel := policy.Selector{Host: "example.com"}
		if _, err := b.Store.Purge(ctx, sel, store.Hard); !errors.Is(err, store.ErrUnavailable) {
			b.Errorf("purge: %v", err)
		}
		if got := b.take(page("x"), look()); got.Entry != nil {
			b.Errorf("%q is answered", b.text(got.Entry))
		}
		b.peeks(page("x"), "")
		if err := b.Commit(ctx, *running, write(page("y"), "late")); !errors.Is(err, store.ErrLost) {
			b.Errorf("commit: %v", err)
		}
		if len(heard) != 1 || heard[0].Kind != store.PurgedNote || heard[0].Selector != sel {
			b.Errorf("heard %+v", heard)
		}
	})
}

// How fills end is remembered alone as well (R22, R23).
func TestFailuresAlone(t *testing.T) {
	try(t, func(b *bench) {
		ctx := context.Background()
		b.fill(b.Store, page("x"), "one")
		b.f.away = store.ErrUnavailable
		w := want("t1")
		w.At = time.Now().Add(time.Hour)
		l := b.take(page("x"), w).Lease
		done := make(chan store.Outcome)
		go func() {
			out, err := b.Await(ctx, *l)
			if err != nil {
				b.Error(err)
			}
			done <- out
		}()
		time.Sleep(time.Second)
		if n := b.Waiting(); n != 1 {
			b.Errorf("%d wait", n)
		}
		failed := store.Outcome{End: store.Failed, Fault: policy.Fault{Kind: policy.Refused}, Remember: time.Minute}
		if err := b.Release(ctx, *l, failed); err != nil {
			b.Error(err)
		}
		if out := <-done; out != failed {
			b.Errorf("the waiter learned %+v", out)
		}
		if got := b.take(page("x"), w); got.Failed == nil || got.Lease != nil {
			b.Errorf("taken = %+v", got)
		}
		if n := len(b.island.leases); n != 0 {
			b.Errorf("%d leases are left", n)
		}
	})
}
