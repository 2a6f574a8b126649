package redis

import (
	"reflect"
	"testing"
	"time"

	"weir/policy"
)

func TestClockLearns(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) int64 { return now.Add(d).UnixMicro() }
	for _, c := range []struct {
		what    string
		trip    time.Duration
		samples []time.Duration // store time less local time, as each reply shows it
		want    time.Duration
	}{
		{"clocks in step", time.Millisecond, []time.Duration{time.Millisecond, -4 * time.Millisecond}, 0},
		{"an hour ahead", time.Millisecond, []time.Duration{time.Hour}, time.Hour},
		{"once learned it stays, however samples tremble", time.Millisecond,
			[]time.Duration{time.Hour, time.Hour + 5*time.Millisecond, time.Hour - 5*time.Millisecond}, time.Hour},
		{"set back", time.Millisecond, []time.Duration{time.Hour, -time.Hour}, -time.Hour},
		{"a slow reply proves little", time.Second, []time.Duration{500 * time.Millisecond}, 0},
		{"but it proves something", time.Second, []time.Duration{600 * time.Millisecond}, 600 * time.Millisecond},
	} {
		var k clock
		for _, s := range c.samples {
			k.learn(now.Add(-c.trip/2), now.Add(c.trip/2), at(s))
		}
		// Microseconds are what Redis tells.
		if got := k.difference(); (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestClockMovesAllTimes: through the store and back, every moment is the same, and none that is nil becomes one.
func TestClockMovesAllTimes(t *testing.T) {
	k := clock{offset: time.Hour}
	now := time.Now().Round(0)
	s := policy.Stored{
		Response: policy.Response{Asked: now, Arrived: now.Add(1)}, FreshUntil: now.Add(2), RefreshUntil: now.Add(3),
		Marked: [2]time.Time{now.Add(4), {}}, Leased: 7,
		Variants: []policy.Variant{{Arrived: now.Add(5)}, {}},
	}
	there := k.toStore(s)
	if got := there.FreshUntil.Sub(s.FreshUntil); got != time.Hour {
		t.Errorf("moved by %v", got)
	}
	if !there.RescueUntil.IsZero() || !there.Marked[1].IsZero() || !there.Variants[1].Arrived.IsZero() || there.Leased != 7 {
		t.Errorf("in the store: %+v", there)
	}
	if !s.Variants[0].Arrived.Equal(now.Add(5)) {
		t.Error("the entry itself was written to")
	}
	if back := k.toLocal(there); !reflect.DeepEqual(back, s) {
		t.Errorf("came back as %+v, went as %+v", back, s)
	}
	if got := k.micros(now) - now.UnixMicro(); got != time.Hour.Microseconds() {
		t.Errorf("micros moved by %d", got)
	}
	if k.micros(time.Time{}) != 0 {
		t.Error("no moment became one")
	}
}
