package policy

import (
	"testing"
	"time"
)

// The pause doubles from a second to a minute, and ends no sooner than Retry-After says.
func TestPause(t *testing.T) {
	for _, c := range []struct{ retry, last, want time.Duration }{
		{0, 0, time.Second}, {0, time.Second, 2 * time.Second}, {0, 2 * time.Second, 4 * time.Second},
		{0, 16 * time.Second, 32 * time.Second}, {0, 32 * time.Second, time.Minute}, {0, time.Minute, time.Minute},
		{0, 5 * time.Minute, time.Minute}, // that was a Retry-After
		{7 * time.Second, 0, 7 * time.Second}, {7 * time.Second, 8 * time.Second, 16 * time.Second},
		{time.Millisecond, 0, time.Second}, {5 * time.Minute, time.Minute, 5 * time.Minute}, {365 * 24 * time.Hour, 0, time.Hour},
	} {
		if got := Pause(Fault{RetryAfter: c.retry}, c.last); got != c.want {
			t.Errorf("Retry-After %v after a pause of %v: %v, want %v", c.retry, c.last, got, c.want)
		}
	}
	var pause, all time.Duration
	for range 7 {
		pause = Pause(Fault{}, pause)
		all += pause
	}
	if all != 123*time.Second { // 1+2+4+8+16+32+60
		t.Errorf("seven pauses are %v", all)
	}
}
