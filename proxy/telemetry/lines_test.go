package telemetry

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/proxy"
)

// gate is a log that nobody reads until it opens.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

// A stuck log holds up nobody: what fits waits for it, the rest is dropped and counted.
func TestStuckLogHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gate{open: make(chan struct{})}
		tel, err := New(Config{Log: Log{Level: "info", Format: "json", Access: true}}, out)
		if err != nil {
			t.Fatal(err)
		}
		tel.Exchange(proxy.Report{Time: arrival, Path: "/first"})
		synctest.Wait() // the first line is stuck in the writer
		long := strings.Repeat("x", longest)
		const reports = 2 * maxLines / longest
		for range reports {
			tel.Exchange(proxy.Report{Time: arrival, Path: long})
		}
		dropped := tel.lines.Dropped()
		if dropped < reports/2 || dropped >= reports {
			t.Errorf("%d of %d lines were dropped; they are twice what has room", dropped, reports)
		}

		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tel.Shutdown(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown of a stuck log: %v, want its deadline", err)
		}
		close(out.open)
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if n := int64(strings.Count(out.String(), "\n")); n != 1+reports-dropped {
			t.Errorf("%d lines written, want the first and %d", n, reports-dropped)
		}
		if !strings.HasPrefix(out.String(), "{") || !strings.Contains(out.String()[:300], "/first") {
			t.Errorf("the oldest line is not first: %.300s", out.String())
		}
	})
}

// A report that comes after the end is no fault, and waits for nothing.
func TestReportAfterShutdown(t *testing.T) {
	var out bytes.Buffer
	tel, err := New(Config{Metrics: true, Log: Log{Level: "info", Format: "json", Access: true}}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	tel.Exchange(miss())
	if out.Len() > 0 || tel.lines.Dropped() != 1 {
		t.Errorf("written %q, dropped %d; want nothing and 1", out.String(), tel.lines.Dropped())
	}
}
