package fill

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

// kept is an entry of so many bytes.
func kept(size int) *store.Entry {
	return &store.Entry{Key: policy.Key{Primary: "k"}, Body: store.Bytes{nil, bytes.Repeat([]byte{'x'}, size)}}
}

// A stored body counts from when the store lets go of it, once for all who read it, until the last has left.
func TestLooseBodiesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e := NewBudget(8<<20), kept(1<<20)
		var gone atomic.Bool
		b.holds = func(*store.Entry) bool { return !gone.Load() }
		first, second := b.lend(e), b.lend(e)
		time.Sleep(2 * glance)
		if b.Used() != 0 {
			t.Errorf("%d bytes taken for what the store holds", b.Used())
		}
		gone.Store(true)
		time.Sleep(2 * glance)
		synctest.Wait()
		if b.Used() != 1<<20 {
			t.Errorf("%d bytes taken for a mebibyte that two read", b.Used())
		}
		first.Close()
		if b.Used() != 1<<20 {
			t.Errorf("%d bytes taken while one reads on", b.Used())
		}
		second.Close()
		time.Sleep(2 * glance)
		synctest.Wait()
		if b.Used() != 0 || len(b.ended) != 0 || len(b.lent) != 0 || b.watched {
			t.Errorf("left behind: %d bytes, %d bodies, %d lent, watched %v", b.Used(), len(b.ended), len(b.lent), b.watched)
		}
	})
}

// When what the store has let go of is more than there is memory for, who is behind is severed, and nobody else.
func TestLooseBodiesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(3 << 20)
		b.holds = func(*store.Entry) bool { return false }
		severed := map[string]int{}
		reader := func(name string) *Reader {
			r := b.lend(kept(2 << 20))
			r.OnCut(func() { severed[name]++ })
			r.Took(1)
			return r
		}
		slow, fast := reader("slow"), reader("fast")
		for range 10 {
			time.Sleep(time.Second)
			fast.Took(minimum)
		}
		if severed["slow"] != 1 || severed["fast"] != 0 {
			t.Errorf("severed: %v", severed)
		}
		if b.Used() != 2<<20 {
			t.Errorf("%d bytes taken for one body of 2 MiB", b.Used())
		}
		slow.Close()
		fast.Close()
		if b.Used() != 0 {
			t.Errorf("%d bytes are lost", b.Used())
		}
	})
}

// Where there is memory enough, nobody is hurried.
func TestLooseBodiesThatFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(3 << 20)
		b.holds = func(*store.Entry) bool { return false }
		r := b.lend(kept(2 << 20))
		r.OnCut(func() { t.Error("severed") })
		r.Took(1)
		time.Sleep(time.Hour)
		r.Close()
	})
}

// Who is cut off hears of it at once, also when that was before he could be told.
func TestSevered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		s, r := ended(t, b, random(1<<20))
		told := 0
		r.OnCut(func() { told++ })
		late, _ := s.Join()
		for _, r := range []*Reader{r, late} {
			if _, err := r.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for !b.take(1) {
			time.Sleep(time.Second)
		}
		late.OnCut(func() { told += 10 })
		if told != 11 {
			t.Errorf("told %d", told)
		}
		for _, r := range []*Reader{r, late} {
			if _, err := r.Next(t.Context()); !errors.Is(err, ErrTooSlow) {
				t.Errorf("%v", err)
			}
			r.Close()
		}
	})
}
