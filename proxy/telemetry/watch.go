package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"weir/proxy"
	"weir/proxy/upstream"
)

// Sources are asked at every reading of the metrics. A nil one is passed over.
type Sources struct {
	Gauges    func() proxy.Gauges
	Upstreams func() map[string]upstream.Stats
	Store     func() Kept   // in memory
	Near      func() Copies // in front of Redis
	Warm      func() []Job
}

// Kept is what lies in memory.
type Kept struct{ Entries, Bytes, Pinned, Evictions int64 }

// Copies is how those of what lies in Redis do.
type Copies struct{ Hits, Misses, Replaced, Purges, Silences int64 }

// Job is what is told of a job that keeps pages warm.
type Job struct {
	Name                              string
	Leads                             bool // this replica does it
	Pages, Failing, Fetched, Failures int64
}

// watch makes the instruments that are read rather than written. sources is asked anew each time: what it names may not exist yet.
func (m *metrics) watch(sources func() Sources, dropped func() int64) error {
	f := &forge{meter: m.provider.Meter("weir")}
	gauges, upstreams, store, near, warm := f.gauges(), f.upstreams(), f.store(), f.near(), f.warm()
	lost := f.total("log_dropped", "Log lines dropped because nobody read fast enough.")
	if err := errors.Join(f.faults...); err != nil {
		return err
	}
	_, err := f.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := sources()
		if s.Gauges != nil {
			gauges(o, s.Gauges())
		}
		if s.Upstreams != nil {
			upstreams(o, s.Upstreams())
		}
		if s.Store != nil {
			store(o, s.Store())
		}
		if s.Near != nil {
			near(o, s.Near())
		}
		if s.Warm != nil {
			warm(o, s.Warm())
		}
		o.ObserveInt64(lost, dropped())
		return nil
	}, f.made...)
	return err
}

func (f *forge) gauges() func(metric.Observer, proxy.Gauges) {
	exchanges := f.gauge("exchanges_running", "Exchanges under way.")
	local := f.gauge("waiting_local", "Exchanges waiting for a fill of this replica.")
	remote := f.gauge("waiting_remote", "Exchanges waiting for another replica's fill.")
	fills := f.gauge("fills_running", "Fills under way.")
	spool := f.gauge("spool", "Bytes of bodies under way.", metric.WithUnit("By"))
	dropped := f.total("refresh_dropped", "Refreshes not started because too many ran.")
	return func(o metric.Observer, g proxy.Gauges) {
		o.ObserveInt64(exchanges, g.Exchanges)
		o.ObserveInt64(local, g.WaitingLocal)
		o.ObserveInt64(remote, g.WaitingRemote)
		o.ObserveInt64(fills, g.FillsRunning)
		o.ObserveInt64(spool, g.SpoolBytes)
		o.ObserveInt64(dropped, g.RefreshDropped)
	}
}

func (f *forge) upstreams() func(metric.Observer, map[string]upstream.Stats) {
	requests := f.total("upstream_requests", "Requests sent to an upstream, repeats included.")
	repeated := f.total("upstream_repeated", "Requests sent again since a kept connection broke.")
	failures := f.total("upstream_failures", "Requests an upstream failed to answer.")
	running := f.gauge("upstream_running", "Slots taken.")
	queued := f.gauge("upstream_queued", "Requests waiting for a slot.")
	streams := f.gauge("upstream_streams", "Upgrades, event streams and slow uploads under way.")
	sick := f.gauge("upstream_sick", "1 while it fails on many pages, 2 while it cannot be reached at all.")
	spared := f.total("upstream_spared", "Requests that were not sent because the upstream is sick.")
	return func(o metric.Observer, all map[string]upstream.Stats) {
		for name, s := range all {
			label := metric.WithAttributeSet(attribute.NewSet(attribute.String("upstream", name)))
			o.ObserveInt64(requests, int64(s.Requests), label)
			o.ObserveInt64(repeated, int64(s.Repeated), label)
			o.ObserveInt64(failures, int64(s.Failures), label)
			o.ObserveInt64(running, s.Running, label)
			o.ObserveInt64(queued, s.Queued, label)
			o.ObserveInt64(streams, s.Streams, label)
			o.ObserveInt64(sick, illness(s.Health), label)
			o.ObserveInt64(spared, int64(s.Spared), label)
		}
	}
}

func illness(health string) int64 {
	switch health {
	case "sick":
		return 1
	case "down":
		return 2
	}
	return 0
}

func (f *forge) store() func(metric.Observer, Kept) {
	entries := f.gauge("store_entries", "Entries in memory.")
	bytes := f.gauge("store", "Bytes of entries in memory.", metric.WithUnit("By"))
	pinned := f.gauge("store_pinned", "Of those, bytes of hot pages, which make no room for others.", metric.WithUnit("By"))
	evictions := f.total("store_evictions", "Entries that had to make room.")
	return func(o metric.Observer, k Kept) {
		o.ObserveInt64(entries, k.Entries)
		o.ObserveInt64(bytes, k.Bytes)
		o.ObserveInt64(pinned, k.Pinned)
		o.ObserveInt64(evictions, k.Evictions)
	}
}

func (f *forge) near() func(metric.Observer, Copies) {
	hits := f.total("near_hits", "Look-ups that a copy in memory answered, without asking Redis.")
	misses := f.total("near_misses", "Look-ups that no copy in memory could answer.")
	replaced := f.total("near_replaced", "News that a page was fetched anew, which drops the copy of it.")
	purges := f.total("near_purges", "Purges heard of, which the copies obey.")
	silences := f.total("near_silences", "Times that news may have been missed, so that every copy had to be checked.")
	return func(o metric.Observer, c Copies) {
		o.ObserveInt64(hits, c.Hits)
		o.ObserveInt64(misses, c.Misses)
		o.ObserveInt64(replaced, c.Replaced)
		o.ObserveInt64(purges, c.Purges)
		o.ObserveInt64(silences, c.Silences)
	}
}

func (f *forge) warm() func(metric.Observer, []Job) {
	leads := f.gauge("warm_leads", "1 where this replica keeps the job's pages warm.")
	pages := f.gauge("warm_pages", "Pages that this replica keeps warm.")
	failing := f.gauge("warm_failing", "Of those, pages that failed when they were last tried.")
	fetched := f.total("warm_fetched", "Pages brought anew.")
	failures := f.total("warm_failures", "Pages that could not be brought anew.")
	return func(o metric.Observer, jobs []Job) {
		for _, j := range jobs {
			label := metric.WithAttributeSet(attribute.NewSet(attribute.String("job", j.Name)))
			led := int64(0)
			if j.Leads {
				led = 1
			}
			o.ObserveInt64(leads, led, label)
			o.ObserveInt64(pages, j.Pages, label)
			o.ObserveInt64(failing, j.Failing, label)
			o.ObserveInt64(fetched, j.Fetched, label)
			o.ObserveInt64(failures, j.Failures, label)
		}
	}
}
