package telemetry

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	"weir/proxy"
	"weir/proxy/fill"
)

// Telemetry is told what happened and prints it. It is safe for concurrent use.
type Telemetry struct {
	log     *slog.Logger // writes at once
	level   *slog.LevelVar
	access  bool
	lines   *lines
	printer slog.Handler // writes to lines; its Handle asks for no level
	metrics *metrics     // nil: off
	sources atomic.Pointer[Sources]
}

var _ proxy.Observer = (*Telemetry)(nil)

// New makes a Telemetry that logs to w. Shutdown ends it.
func New(c Config, w io.Writer) (*Telemetry, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w = &shared{out: w}
	t := &Telemetry{access: c.Log.Access, level: new(slog.LevelVar)}
	t.log = slog.New(newHandler(c.Log.Format, w, t.level))
	t.sources.Store(&Sources{})
	if c.Metrics {
		m, err := newMetrics(t.log, maxSeries)
		if err != nil {
			return nil, err
		}
		t.metrics = m
		if err := m.watch(t.watched, func() int64 { return t.lines.Dropped() }); err != nil {
			return nil, err
		}
	}
	t.lines = newLines(w)
	t.printer = newHandler(c.Log.Format, t.lines, t.level)
	return t, t.SetLevel(c.Log.Level)
}

func newHandler(format string, w io.Writer, l slog.Leveler) slog.Handler {
	o := &slog.HandlerOptions{Level: l}
	if format == "text" {
		return slog.NewTextHandler(w, o)
	}
	return slog.NewJSONHandler(w, o)
}

// Watch names what the metrics page asks at every reading. It comes after New because the handler that is asked
// is built with this Telemetry as its observer.
func (t *Telemetry) Watch(s Sources) { t.sources.Store(&s) }

func (t *Telemetry) watched() Sources { return *t.sources.Load() }

// Exchange implements proxy.Observer.
func (t *Telemetry) Exchange(r proxy.Report) {
	if t.metrics != nil {
		t.metrics.exchange(r)
	}
	if t.access {
		print(t.printer, exchangeLine(r))
	}
}

// Fill implements proxy.Observer. A fill is logged at level debug: the exchanges it answered have lines of their own.
func (t *Telemetry) Fill(r fill.Report) {
	if t.metrics != nil {
		t.metrics.fill(r)
	}
	if t.level.Level() <= slog.LevelDebug {
		print(t.printer, fillLine(r))
	}
}

// Metrics is the page for Prometheus; nil when metrics are off.
func (t *Telemetry) Metrics() http.Handler {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.page
}

// Logger is for everything that is no exchange. It writes before it returns, so that the last words of a dying process are not lost.
func (t *Telemetry) Logger() *slog.Logger { return t.log }

// SetLevel changes the level from here on: debug, info, warn or error. Lines of exchanges have none.
func (t *Telemetry) SetLevel(word string) error {
	l, err := level(word)
	if err == nil {
		t.level.Set(l)
	}
	return err
}

// Shutdown writes the lines that wait, until ctx ends. Exchanges reported later are counted and not logged.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	err := t.lines.Close(ctx)
	if t.metrics != nil {
		err = errors.Join(err, t.metrics.provider.Shutdown(ctx))
	}
	return err
}
