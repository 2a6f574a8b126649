package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/fill"
)

// seconds are the histograms' bounds: from a hit (a fraction of a millisecond) to the slowest upstream worth waiting for.
var seconds = metric.WithExplicitBucketBoundaries(
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)

// maxSeries bounds the label combinations of one instrument. Labels are closed lists, so only an enormous file can reach it.
const maxSeries = 4096

// metrics counts what reports say. Its provider and registry are its own: two replicas fit in one process.
type metrics struct {
	provider *sdk.MeterProvider
	page     http.Handler

	exchanges, responses, fills, storeErrors metric.Int64Counter
	duration, firstByte, fillTime            metric.Float64Histogram

	ways  *memo[way, labels]
	ends  *memo[end, labels]
	verbs *memo[string, []metric.AddOption]
}

// way is how an exchange went, as far as labels tell; end is the same of a fill.
type way struct {
	route  string
	action policy.Action
	reason policy.Reason
}

type end struct {
	why    fill.Why
	end    fill.End
	reason policy.Reason
}

// labels are ready-made options: options made at the call would cost four allocations a time.
type labels struct {
	count []metric.AddOption    // all labels
	sum   []metric.AddOption    // all but the reason
	time  []metric.RecordOption // the same
}

// newMetrics bounds each instrument to limit series; the SDK folds what is beyond into one with otel_metric_overflow="true".
func newMetrics(log *slog.Logger, limit int) (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithNamespace("weir"),
		exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	m := &metrics{
		provider: sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithCardinalityLimit(limit),
			sdk.WithExemplarFilter(exemplar.AlwaysOffFilter)),
		page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelError),
			ErrorHandling: promhttp.ContinueOnError,
		}),
		ways:  newMemo(limit, way.labels),
		ends:  newMemo(limit, end.labels),
		verbs: newMemo(limit, verbLabel),
	}
	return m, m.open(m.provider.Meter("weir"))
}

// open makes the instruments.
func (m *metrics) open(meter metric.Meter) error {
	f := &forge{meter: meter}
	m.exchanges = f.counter("exchanges", "Exchanges answered.")
	m.duration = f.histogram("exchange", "From a request's arrival to the end of its answer.")
	m.firstByte = f.histogram("first_byte", "From a request's arrival to the first byte of its answer.")
	m.responses = f.counter("responses", "Body bytes sent to clients.", metric.WithUnit("By"))
	m.fills = f.counter("fills", "Fills ended: upstream fetches on behalf of all who wait.")
	m.fillTime = f.histogram("fill", "A fill, from its start to its end.")
	m.storeErrors = f.counter("store_errors", "Store operations that failed.")
	return errors.Join(f.faults...)
}

func (m *metrics) exchange(r proxy.Report) {
	l := m.ways.of(way{r.Route, r.Action, r.Reason})
	ctx := context.Background()
	m.exchanges.Add(ctx, 1, l.count...)
	m.responses.Add(ctx, r.Bytes, l.sum...)
	m.duration.Record(ctx, r.Duration.Seconds(), l.time...)
	if r.FirstByte > 0 {
		m.firstByte.Record(ctx, r.FirstByte.Seconds(), l.time...)
	}
	m.storeError(r.StoreFault)
}

func (m *metrics) fill(r fill.Report) {
	l := m.ends.of(end{r.Why, r.End, r.Reason})
	ctx := context.Background()
	m.fills.Add(ctx, 1, l.count...)
	m.fillTime.Record(ctx, r.Total.Seconds(), l.time...)
	m.storeError(r.StoreFault)
}

func (m *metrics) storeError(verb string) {
	if verb != "" {
		m.storeErrors.Add(context.Background(), 1, m.verbs.of(verb)...)
	}
}

func (w way) labels() labels {
	route, action := attribute.String("route", w.route), attribute.String("action", w.action.String())
	some := metric.WithAttributeSet(attribute.NewSet(route, action))
	all := metric.WithAttributeSet(attribute.NewSet(route, action, attribute.String("reason", w.reason.String())))
	return labels{
		count: []metric.AddOption{all},
		sum:   []metric.AddOption{some},
		time:  []metric.RecordOption{some},
	}
}

func (e end) labels() labels {
	why := attribute.String("why", string(e.why))
	return labels{
		count: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(why,
			attribute.String("end", string(e.end)), attribute.String("reason", e.reason.String())))},
		time: []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(why))},
	}
}

func verbLabel(verb string) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("verb", verb)))}
}
