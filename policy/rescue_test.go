package policy

import (
	"testing"
	"time"
)

// The pause doubles from a second to a minute, ends no sooner than Retry-After says, and the dice only lengthen it.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		times int
		retry time.Duration
		dice  float64
		want  time.Duration
	}{
		{0, 0, 0, time.Second}, {1, 0, 0, time.Second}, {2, 0, 0, 2 * time.Second}, {3, 0, 0, 4 * time.Second},
		{6, 0, 0, 32 * time.Second}, {7, 0, 0, time.Minute}, {8, 0, 0, time.Minute}, {1 << 30, 0, 0, time.Minute},
		{1, 0, 0.5, 1125 * time.Millisecond}, {7, 0, 0.8, 72 * time.Second},
		{1, 7 * time.Second, 0, 7 * time.Second}, {5, 7 * time.Second, 0, 16 * time.Second}, {1, 8 * time.Second, 0.5, 9 * time.Second},
		{1, 5 * time.Minute, 0, 5 * time.Minute}, {1, 365 * 24 * time.Hour, 0, time.Hour},
	} {
		if got := Pause(Fault{RetryAfter: c.retry}, c.times, c.dice); got != c.want {
			t.Errorf("failed %d times, Retry-After %v, dice %v: %v, want %v", c.times, c.retry, c.dice, got, c.want)
		}
	}
}
