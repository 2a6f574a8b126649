package near

import (
	"context"
	"testing"

	"weir/policy"
	"weir/store/memory"
)

func filled(t testing.TB, key policy.Key) *Store {
	f := memory.New(memory.Config{MaxSize: 1 << 20})
	s := New(f, memory.Near(memory.Config{MaxSize: 1 << 20}, f), awayTTL)
	t.Cleanup(func() { _ = s.Close() })
	got, err := s.Take(context.Background(), key, want("t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(context.Background(), *got.Lease, write(key, "one")); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHitsAllocateNothing(t *testing.T) {
	key := page("x")
	s := filled(t, key)
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := s.Peek(key); !ok {
			t.Fatal("gone")
		}
	}); n != 0 {
		t.Errorf("a peek allocates %v times", n)
	}
}

func BenchmarkPeek(b *testing.B) {
	key := page("x")
	s := filled(b, key)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := s.Peek(key); !ok {
				b.Fatal("gone")
			}
		}
	})
}
