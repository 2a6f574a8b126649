package memory

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/storetest"
)

// tag fills a page with an entry that has tags.
func tag(t testing.TB, s *Store, k policy.Key, tags ...string) {
	t.Helper()
	e := answer(10)
	e.Tags = tags
	if err := s.Commit(context.Background(), takes(t, s, k), store.Write{Key: k, Entry: e, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

func purge(t testing.TB, s *Store, sel policy.Selector, mode store.Mode) store.Purged {
	t.Helper()
	got, err := s.Purge(context.Background(), sel, mode)
	if err != nil || got.At == 0 {
		t.Fatalf("purged %+v, %v", got, err)
	}
	got.At = 0
	return got
}

// One note purges a hundred thousand entries, and looks at none of them; they go as they are met.
func TestPurgeOfAHundredThousand(t *testing.T) {
	const n = 100_000
	s := open(t, 1<<30)
	for i := range n {
		tag(t, s, key("%d", i), "all", fmt.Sprint(i))
	}
	tag(t, s, key("other"), "other")
	got := purge(t, s, policy.Selector{Tag: "all"}, store.Hard)
	if got != (store.Purged{Estimate: -1, Replicas: 1}) {
		t.Errorf("purged %+v", got)
	}
	if st := s.Stats(); st.Entries != n+1 {
		t.Errorf("%d entries were looked for, to be dropped", n+1-st.Entries)
	}
	for i := range n {
		if kept(s, key("%d", i)) {
			t.Fatalf("%d is still there", i)
		}
	}
	if !kept(s, key("other")) {
		t.Error("what has another tag is gone")
	}
	for i := range n / 10 { // eight are looked at for one that comes
		tag(t, s, key("new %d", i), "new")
	}
	if st := s.Stats(); st.Entries > n*7/10 {
		t.Errorf("%d entries, of which only %d are not purged", st.Entries, n/10)
	}
}

// Notes take memory too: when there are many, all is held to them, and they go.
func TestManyNotes(t *testing.T) {
	s := open(t, 64<<20)
	tag(t, s, key("first"), "0")
	tag(t, s, key("last"), fmt.Sprint(many))
	tag(t, s, key("other"), "other")
	running := takes(t, s, key("running"))
	for i := range many + 1 {
		purge(t, s, policy.Selector{Tag: fmt.Sprint(i)}, store.Hard)
	}
	if there(s, key("first")) || there(s, key("last")) || !kept(s, key("other")) {
		t.Error("all should have been held to the notes")
	}
	// What a lease that is held will bring may still be what a note is about.
	e := answer(10)
	e.Tags = []string{"7"}
	err := s.Commit(context.Background(), running, store.Write{Key: key("running"), Entry: e, Keep: time.Hour})
	if !errors.Is(err, store.ErrLost) {
		t.Errorf("a commit of what was purged: %v", err)
	}
	purge(t, s, policy.Selector{Tag: "one more"}, store.Hard)
	if n := s.notes.Len(); n != 0 {
		t.Errorf("%d notes are kept", n)
	}
}

// A hit that no note is about costs no more than before, once it was held to the note.
func TestHitsBesideNotesAllocateNothing(t *testing.T) {
	s := open(t, 1<<20)
	tag(t, s, key("x"), "a")
	tag(t, s, key("stale"), "b")
	purge(t, s, policy.Selector{Tag: "other"}, store.Hard)
	purge(t, s, policy.Selector{Prefix: "example.com/other"}, store.Hard)
	purge(t, s, policy.Selector{Tag: "b"}, store.Soft)
	if _, err := s.Take(context.Background(), key("stale"), store.Want{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []policy.Key{key("x"), key("stale")} {
		if n := testing.AllocsPerRun(100, func() { s.Peek(k) }); n != 0 {
			t.Errorf("a peek at %s allocates %v times", k.Primary, n)
		}
	}
}

// A page purge counts what it covered, and this process as the one that has obeyed.
func TestPurgeCounts(t *testing.T) {
	s := open(t, 1<<20)
	for _, v := range []string{"", "a", "b"} {
		k := key("x")
		k.Variant = v
		fill(t, s, k, 10)
	}
	fill(t, s, key("y"), 10)
	for _, one := range []struct {
		sel  policy.Selector
		want int
	}{{policy.Selector{Page: key("x").Primary}, 3}, {policy.Selector{Page: key("x").Primary}, 0}, {policy.Selector{All: true}, 1}} {
		if got := purge(t, s, one.sel, store.Hard); got != (store.Purged{Estimate: one.want, Replicas: 1}) {
			t.Errorf("%+v: %+v, want %d", one.sel, got, one.want)
		}
	}
	if st := s.Stats(); st.Entries != 0 || st.Bytes != 0 {
		t.Errorf("left: %+v", st)
	}
}

// A million of them, by hand: go test ./store/memory ./store/near ./store/redis -run PurgedIsNever -v -timeout 2h -args -purges 1000000.
var purges = flag.Int("purges", 0, "how many purges a history has")

// Fills, looks and purges by chance: nothing purged is answered.
func TestPurgedIsNeverAnswered(t *testing.T) {
	seed := rand.Uint64()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, 64<<20)
		h := storetest.History{Seed: seed, Steps: 2000, Pause: time.Millisecond, Purges: *purges}
		h.Play(t, s, s)
	})
}
