package telemetry

import "go.opentelemetry.io/otel/metric"

// forge makes instruments and gathers what went wrong. The exporter adds the prefix and, by unit and kind, the suffixes.
type forge struct {
	meter  metric.Meter
	made   []metric.Observable // those a callback is to observe
	faults []error
}

func (f *forge) counter(name, help string, o ...metric.Int64CounterOption) metric.Int64Counter {
	i, err := f.meter.Int64Counter(name, append(o, metric.WithDescription(help))...)
	f.note(err)
	return i
}

func (f *forge) histogram(name, help string) metric.Float64Histogram {
	i, err := f.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"), seconds)
	f.note(err)
	return i
}

func (f *forge) gauge(name, help string, o ...metric.Int64ObservableGaugeOption) metric.Int64ObservableGauge {
	i, err := f.meter.Int64ObservableGauge(name, append(o, metric.WithDescription(help))...)
	f.note(err)
	f.made = append(f.made, i)
	return i
}

func (f *forge) total(name, help string) metric.Int64ObservableCounter {
	i, err := f.meter.Int64ObservableCounter(name, metric.WithDescription(help))
	f.note(err)
	f.made = append(f.made, i)
	return i
}

func (f *forge) note(err error) {
	if err != nil {
		f.faults = append(f.faults, err)
	}
}
