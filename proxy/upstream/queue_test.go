package upstream

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// line is a queue before one slot, which the test holds.
type line struct {
	*Upstream
	t     *testing.T
	first *Slot
	came  chan string
}

func newLine(t *testing.T, queue int) *line {
	c := config("http://upstream.test")
	c.MaxConcurrent, c.Queue, c.QueueTimeout = 1, queue, time.Minute
	u, err := With(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Upstream: u, t: t, came: make(chan string, 100)}
	if l.first, err = u.Enter(t.Context(), At(policy.WarmWaits)); err != nil {
		t.Fatal(err)
	}
	return l
}

// join queues, and tells when it has had its turn, or why it had none.
func (l *line) join(name string, class policy.Class) *Place {
	p := At(class)
	go func() {
		s, err := l.Enter(l.t.Context(), p)
		switch {
		case errors.Is(err, ErrBusy):
			l.came <- name + " gave up"
		case err != nil:
			l.came <- fmt.Sprint(name, " ", err)
		default:
			l.came <- name
			s.Leave()
		}
	}()
	synctest.Wait()
	return p
}

// end lets all have their turns.
func (l *line) end() (order []string) {
	l.first.Leave()
	synctest.Wait()
	close(l.came)
	for name := range l.came {
		order = append(order, name)
	}
	if s := l.Stats(); s.Running != 0 || s.Queued != 0 {
		l.t.Errorf("left: %+v", s)
	}
	return order
}

// R26: the best class goes first, and who came first of a class. An early refresh does not queue at all.
func TestQueueGoesByClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 10)
		for i, class := range []policy.Class{policy.WarmWaits, policy.StaleWaits, policy.ClientWaits, policy.ErrorWaits, policy.ClientWaits, policy.EarlyWaits} {
			l.join(fmt.Sprint(i), class)
		}
		if got := l.end(); !slices.Equal(got, []string{"5 gave up", "2", "4", "3", "1", "0"}) {
			t.Error(got)
		}
	})
}

// Who is joined by somebody better goes as that one would, had it come then; nobody is ever moved back.
func TestQueueIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 10)
		warm, refresh := l.join("warm", policy.WarmWaits), l.join("refresh", policy.StaleWaits)
		l.join("client", policy.ErrorWaits)
		warm.Raise(policy.ClientWaits)
		warm.Raise(policy.StaleWaits)
		refresh.Raise(policy.WarmWaits)
		if got := l.end(); !slices.Equal(got, []string{"warm", "client", "refresh"}) {
			t.Error(got)
		}
	})
}

// A full queue has room for a client as long as somebody in it is less waited for: the last of the worst gives way.
func TestFullQueueGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 3)
		l.join("warm", policy.WarmWaits)
		l.join("later", policy.WarmWaits)
		l.join("refresh", policy.StaleWaits)
		l.join("third", policy.WarmWaits)
		l.join("client", policy.ClientWaits)
		l.join("second", policy.ClientWaits)
		l.join("stale", policy.StaleWaits)
		if got := l.end(); !slices.Equal(got, []string{"third gave up", "later gave up", "warm gave up", "stale gave up", "client", "second", "refresh"}) {
			t.Error(got)
		}
	})
}
