package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
	"weir/store/memory"
	"weir/store/storetest"
)

func open(t *testing.T) storetest.Store {
	s := memory.New(memory.Config{MaxSize: 1 << 20})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Without rules it is a store like any.
func TestContractWithoutFaults(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
		s := memory.New(memory.Config{MaxSize: 64 << 20})
		t.Cleanup(func() { _ = s.Close() })
		return storetest.Faulty(t, s), storetest.Faulty(t, s)
	}, synctest.Test)
}

var (
	key  = policy.Key{Primary: "p"}
	all  = policy.Selector{All: true}
	want = store.Want{Token: "t", TTL: time.Minute, At: time.Unix(1<<33, 0)}
)

func entry() store.Write { return store.Write{Key: key, Entry: &store.Entry{}, Keep: time.Hour} }

// TestFaults has every single fault happen: what the caller is told is what the rule says.
func TestFaults(t *testing.T) {
	words := map[string]error{"lost": store.ErrLost, "readonly": store.ErrReadOnly, "unavailable": store.ErrUnavailable, "hang": context.DeadlineExceeded}
	ends := map[string]store.End{"filled": store.Filled, "failed": store.Failed, "lapsed": store.Lapsed}
	rules := storetest.Faults()
	for _, rule := range []string{"peek: miss", "take: unavailable", "commit #1: lost", "commit: done then unavailable", "await #1: lapsed"} {
		if !slices.Contains(rules, rule) {
			t.Errorf("%q is missing", rule)
		}
	}
	for _, rule := range rules {
		synctest.Test(t, func(t *testing.T) {
			plain := open(t)
			held, err := plain.Take(t.Context(), key, want)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			left, right, _ := strings.Cut(rule, ": ")
			verb, word := strings.Fields(left)[0], right[strings.LastIndex(right, " ")+1:]
			s := storetest.Faulty(t, plain, rule)
			if verb == "take" && word == "readonly" {
				return // below
			}
			out, err := call(ctx, s, verb, *held.Lease)
			if end, ok := ends[word]; ok {
				if err != nil || out.End != end {
					t.Errorf("%s: %+v, %v", rule, out, err)
				}
			} else if wanted := words[word]; !errors.Is(err, wanted) {
				t.Errorf("%s: %v, want %v", rule, err, wanted)
			}
		})
	}
}

// call calls a verb, any that has a lease on a lease that is held.
func call(ctx context.Context, s storetest.Store, verb string, l store.Lease) (out store.Outcome, err error) {
	switch verb {
	case "peek":
		s.Peek(key)
	case "take":
		var got store.Taken
		if got, err = s.Take(ctx, key, want); err != nil && got != (store.Taken{}) {
			err = errors.New("an answer beside the error")
		}
	case "renew":
		_, err = s.Renew(ctx, l, time.Minute)
	case "commit":
		err = s.Commit(ctx, l, entry())
	case "release":
		err = s.Release(ctx, l, store.Outcome{End: store.Lapsed})
	case "await":
		return s.Await(ctx, l)
	case "purge":
		_, err = s.Purge(ctx, all, store.Hard)
	case "watch":
		err = s.Watch(ctx, func(store.Event) {})
	case "check":
		err = s.Check(ctx)
	}
	return out, err
}

func TestWhichCall(t *testing.T) {
	s := storetest.Faulty(t, open(t), "check #2: unavailable", "check every 3: 1ns then unavailable", "purge: unavailable")
	for n := range 9 {
		err := s.Check(t.Context())
		if fails := n+1 == 2 || (n+1)%3 == 0; fails != (err != nil) {
			t.Errorf("call %d: %v", n+1, err)
		}
	}
}

func TestPeekMisses(t *testing.T) {
	s := open(t)
	seed(t, s)
	if _, ok := s.Peek(key); !ok {
		t.Fatal("nothing to peek at")
	}
	if _, ok := storetest.Faulty(t, s, "peek: miss").Peek(key); ok {
		t.Error("it was seen")
	}
}

func seed(t *testing.T, s storetest.Store) {
	t.Helper()
	got, err := s.Take(t.Context(), key, want)
	if err == nil {
		err = s.Commit(t.Context(), *got.Lease, entry())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A reply that was lost is a deed that was done.
func TestReplyLost(t *testing.T) {
	s := storetest.Faulty(t, open(t), "take #1: done then unavailable", "commit #1: done then unavailable")
	if got, err := s.Take(t.Context(), key, want); !errors.Is(err, store.ErrUnavailable) || got != (store.Taken{}) {
		t.Errorf("taken = %+v, %v", got, err)
	}
	got, err := s.Take(t.Context(), key, want)
	if err != nil || got.Lease == nil {
		t.Fatalf("again by the same token: %+v, %v", got, err)
	}
	if err := s.Commit(t.Context(), *got.Lease, entry()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	if _, ok := s.Peek(key); !ok {
		t.Error("it was not written")
	}
	if err := s.Commit(t.Context(), *got.Lease, entry()); err != nil {
		t.Errorf("commit again: %v", err)
	}
}

func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Faulty(t, open(t), "await: 50ms then lapsed", "check: 1s")
		begin := time.Now()
		if out, err := s.Await(t.Context(), store.Lease{Key: key, Token: "t"}); err != nil || out.End != store.Lapsed || time.Since(begin) != 50*time.Millisecond {
			t.Errorf("%+v, %v after %v", out, err, time.Since(begin))
		}
		begin = time.Now()
		if err := s.Check(t.Context()); err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begin = time.Now()
		if err := s.Check(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 10*time.Millisecond {
			t.Errorf("%v after %v, want the context's end", err, time.Since(begin))
		}
	})
}

// A store that refuses writes answers what it has, and refuses where it would have to write.
func TestTakeReadOnly(t *testing.T) {
	plain := open(t)
	s := storetest.Faulty(t, plain, "take: readonly")
	if got, err := s.Take(t.Context(), key, want); !errors.Is(err, store.ErrReadOnly) || got != (store.Taken{}) {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	if _, err := s.Take(t.Context(), key, store.Want{}); err != nil {
		t.Errorf("a look: %v", err)
	}
	seed(t, plain)
	if got, err := s.Take(t.Context(), key, want); !errors.Is(err, store.ErrReadOnly) || got.Entry == nil || got.Lease != nil {
		t.Errorf("of something stale: %+v, %v", got, err)
	}
	if _, err := plain.Take(t.Context(), key, want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Take(t.Context(), key, store.Want{Token: "t2", TTL: time.Minute}); err != nil || got.HeldBy == nil {
		t.Errorf("of something held: %+v, %v", got, err)
	}
}
