package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
)

// open makes a Telemetry that ends with the test.
func open(t testing.TB, c Config, w io.Writer) *Telemetry {
	t.Helper()
	if c.Log.Level == "" {
		c.Log.Level, c.Log.Format = "info", "json"
	}
	tel, err := New(c, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel
}

func page(t testing.TB, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("metrics answered %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// has checks that the page has each of the lines, to the letter.
func has(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+page, "\n"+l+"\n") {
			name, _, _ := strings.Cut(l, "{")
			name, _, _ = strings.Cut(name, " ")
			t.Errorf("no line %s\nthere is:\n%s", l, matching(page, name))
		}
	}
}

func matching(page, prefix string) string {
	var found []string
	for l := range strings.Lines(page) {
		if strings.HasPrefix(l, prefix) {
			found = append(found, l)
		}
	}
	return strings.Join(found, "")
}

func TestExchangesAreCounted(t *testing.T) {
	tel := open(t, Config{Metrics: true}, io.Discard)
	hit := proxy.Report{Route: "catalogue", Action: policy.Serve, Reason: policy.Fresh, Bytes: 100,
		FirstByte: time.Millisecond, Duration: 2 * time.Millisecond}
	tel.Exchange(hit)
	tel.Exchange(hit)
	tel.Exchange(proxy.Report{Route: "catalogue", Action: policy.Fetch, Reason: policy.URIMiss, Bytes: 7,
		FirstByte: 2 * time.Second, Duration: 3 * time.Second, StoreFault: "take"})
	tel.Exchange(proxy.Report{Action: policy.Refuse, Reason: policy.NoRoute})

	has(t, page(t, tel.Metrics()),
		`weir_exchanges_total{action="serve",reason="fresh",route="catalogue"} 2`,
		`weir_exchanges_total{action="fetch",reason="uri-miss",route="catalogue"} 1`,
		`weir_exchanges_total{action="refuse",reason="no-route",route=""} 1`,
		`weir_responses_bytes_total{action="serve",route="catalogue"} 200`,
		`weir_responses_bytes_total{action="fetch",route="catalogue"} 7`,
		// 2 ms lies above 1 ms and within 2.5 ms; 3 s within 5 s.
		`weir_exchange_seconds_bucket{action="serve",route="catalogue",le="0.001"} 0`,
		`weir_exchange_seconds_bucket{action="serve",route="catalogue",le="0.0025"} 2`,
		`weir_exchange_seconds_sum{action="serve",route="catalogue"} 0.004`,
		`weir_exchange_seconds_bucket{action="fetch",route="catalogue",le="2.5"} 0`,
		`weir_exchange_seconds_bucket{action="fetch",route="catalogue",le="5"} 1`,
		`weir_first_byte_seconds_count{action="serve",route="catalogue"} 2`,
		`weir_first_byte_seconds_sum{action="fetch",route="catalogue"} 2`,
		`weir_store_errors_total{verb="take"} 1`,
	)
	// No byte was written: a first byte after 0 s would be a lie.
	if n := matching(page(t, tel.Metrics()), `weir_first_byte_seconds_count{action="refuse"`); n != "" {
		t.Errorf("a first byte that never was: %s", n)
	}
}

func TestFillsAreCounted(t *testing.T) {
	tel := open(t, Config{Metrics: true}, io.Discard)
	tel.Fill(fill.Report{Why: fill.Miss, End: fill.Stored, Total: 250 * time.Millisecond})
	tel.Fill(fill.Report{Why: fill.Miss, End: fill.Unstored, Reason: policy.NoStore, Total: 250 * time.Millisecond})
	tel.Fill(fill.Report{Why: fill.Refresh, End: fill.Failed, Reason: policy.UpstreamRefused, StoreFault: "release"})

	has(t, page(t, tel.Metrics()),
		`weir_fills_total{end="stored",reason="none",why="miss"} 1`,
		`weir_fills_total{end="unstored",reason="no-store",why="miss"} 1`,
		`weir_fills_total{end="failed",reason="upstream-refused",why="refresh"} 1`,
		`weir_fill_seconds_sum{why="miss"} 0.5`,
		`weir_fill_seconds_count{why="refresh"} 1`,
		`weir_store_errors_total{verb="release"} 1`,
	)
}

func TestSourcesAreRead(t *testing.T) {
	tel := open(t, Config{Metrics: true}, io.Discard)
	if p := page(t, tel.Metrics()); strings.Contains(p, "weir_waiting_local") {
		t.Error("a gauge that nobody reads has a value")
	}
	asked := uint64(0)
	tel.Watch(Sources{
		Gauges: func() proxy.Gauges {
			return proxy.Gauges{WaitingLocal: 1, WaitingRemote: 2, FillsRunning: 3, RefreshDropped: 4, SpoolBytes: 5, Exchanges: 6}
		},
		Upstreams: func() map[string]upstream.Stats {
			asked++
			return map[string]upstream.Stats{
				"api":  {Requests: asked, Repeated: 7, Failures: 8, Running: 9, Queued: 10, Streams: 11, Health: "sick", Spared: 15},
				"idle": {Health: "well"},
				"dead": {Health: "down"},
			}
		},
		Store: func() Kept { return Kept{Entries: 12, Bytes: 13, Pinned: 15, Evictions: 14} },
		Near:  func() Copies { return Copies{Hits: 31, Misses: 32, Replaced: 33, Purges: 34, Silences: 35} },
		Warm: func() []Job {
			return []Job{{Name: "hot", Leads: true, Pages: 16, Failing: 17, Fetched: 18, Failures: 19}}
		},
	})
	page(t, tel.Metrics())
	has(t, page(t, tel.Metrics()),
		`weir_waiting_local 1`, `weir_waiting_remote 2`, `weir_fills_running 3`, `weir_refresh_dropped_total 4`,
		`weir_spool_bytes 5`, `weir_exchanges_running 6`,
		`weir_upstream_requests_total{upstream="api"} 2`, `weir_upstream_failures_total{upstream="api"} 8`, `weir_upstream_repeated_total{upstream="api"} 7`,
		`weir_upstream_running{upstream="api"} 9`, `weir_upstream_queued{upstream="api"} 10`, `weir_upstream_streams{upstream="api"} 11`,
		`weir_upstream_requests_total{upstream="idle"} 0`, `weir_upstream_spared_total{upstream="api"} 15`,
		`weir_upstream_sick{upstream="idle"} 0`, `weir_upstream_sick{upstream="api"} 1`, `weir_upstream_sick{upstream="dead"} 2`,
		`weir_store_entries 12`, `weir_store_bytes 13`, `weir_store_evictions_total 14`, `weir_store_pinned_bytes 15`,
		`weir_near_hits_total 31`, `weir_near_misses_total 32`, `weir_near_replaced_total 33`, `weir_near_purges_total 34`, `weir_near_silences_total 35`,
		`weir_log_dropped_total 0`,
		`weir_warm_leads{job="hot"} 1`, `weir_warm_pages{job="hot"} 16`, `weir_warm_failing{job="hot"} 17`,
		`weir_warm_fetched_total{job="hot"} 18`, `weir_warm_failures_total{job="hot"} 19`,
	)
}

func TestPageHasRuntimeAndNoScope(t *testing.T) {
	tel := open(t, Config{Metrics: true}, io.Discard)
	tel.Exchange(proxy.Report{})
	p := page(t, tel.Metrics())
	for _, want := range []string{"go_goroutines ", "process_start_time_seconds "} {
		if matching(p, want) == "" {
			t.Errorf("no %s", want)
		}
	}
	for _, unwanted := range []string{"otel_scope", "target_info", "otel_metric_overflow"} {
		if strings.Contains(p, unwanted) {
			t.Errorf("there is %s", unwanted)
		}
	}
}

func TestMetricsOff(t *testing.T) {
	tel := open(t, Config{}, io.Discard)
	tel.Exchange(proxy.Report{StoreFault: "take"})
	tel.Fill(fill.Report{})
	tel.Watch(Sources{})
	if h := tel.Metrics(); h != nil {
		t.Errorf("metrics are off and there is a page: %v", h)
	}
}

// Two replicas in one process do not count for each other.
func TestTelemetriesAreApart(t *testing.T) {
	a, b := open(t, Config{Metrics: true}, io.Discard), open(t, Config{Metrics: true}, io.Discard)
	a.Exchange(proxy.Report{Route: "a"})
	if strings.Contains(page(t, b.Metrics()), `route="a"`) {
		t.Error("b shows what a counted")
	}
}

// What a client can choose makes no series.
func TestClientsMakeNoSeries(t *testing.T) {
	tel := open(t, Config{Metrics: true}, io.Discard)
	report := func(i int) proxy.Report {
		s := fmt.Sprintf("hostile-%d\n\"}", i)
		return proxy.Report{Client: s, Method: s, Scheme: s, Host: s, Path: s, Proto: s, Route: "all", Status: i,
			Action: policy.Serve, Reason: policy.Fresh, FirstByte: time.Millisecond, Err: fmt.Errorf("%s", s)}
	}
	tel.Exchange(report(0))
	series := strings.Count(matching(page(t, tel.Metrics()), "weir_"), "\n")
	for i := range 5000 {
		tel.Exchange(report(i))
	}
	p := page(t, tel.Metrics())
	if n := strings.Count(matching(p, "weir_"), "\n"); n != series {
		t.Errorf("%d series after one exchange, %d after 5001", series, n)
	}
	if strings.Contains(p, "hostile") {
		t.Error("what a client sent is on the page")
	}
}

// An enormous file cannot fill the memory: beyond the bound one series takes what is left, and nothing is lost.
func TestSeriesAreBounded(t *testing.T) {
	const limit = 50
	m, err := newMetrics(slog.New(slog.DiscardHandler), limit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range limit + 1000 {
		m.exchange(proxy.Report{Route: fmt.Sprint(i), Action: policy.Serve, Reason: policy.Fresh})
	}
	counted := matching(page(t, m.page), "weir_exchanges_total{")
	if n := strings.Count(counted, "\n"); n != limit {
		t.Errorf("%d series, want %d", n, limit)
	}
	has(t, counted, `weir_exchanges_total{otel_metric_overflow="true"} 1001`) // it counts among the 50
	if n := len(*m.ways.made.Load()); n != limit {
		t.Errorf("%d combinations remembered, want %d", n, limit)
	}
}

func TestHitAllocatesNothing(t *testing.T) {
	hit := proxy.Report{Route: "catalogue", Action: policy.Serve, Reason: policy.Fresh, Bytes: 100, Method: "GET",
		Host: "example.com", Path: "/catalogue/1", Client: "192.0.2.1", Status: 200, Hit: true,
		FirstByte: time.Millisecond, Duration: 2 * time.Millisecond, States: []string{"receive", "lookup", "deliver"}}
	quiet := open(t, Config{Metrics: true}, io.Discard)
	if n := testing.AllocsPerRun(1000, func() { quiet.Exchange(hit) }); n > 0 {
		t.Errorf("counting a hit costs %v allocations, want none", n)
	}
	loud := open(t, Config{Metrics: true, Log: Log{Level: "info", Format: "json", Access: true}}, io.Discard)
	if n := testing.AllocsPerRun(1000, func() { loud.Exchange(hit) }); n > 12 {
		// Three without the race detector, under which sync.Pool forgets on purpose.
		t.Errorf("counting and logging a hit costs %v allocations, want 12 at most", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	tel := open(t, Config{Metrics: true, Log: Log{Level: "debug", Format: "json", Access: true}}, io.Discard)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				tel.Exchange(proxy.Report{Route: fmt.Sprint(j % 20), Reason: policy.Reason(i % 3)})
				tel.Fill(fill.Report{Why: fill.Miss})
				if j%50 == 0 {
					tel.Watch(Sources{Gauges: func() proxy.Gauges { return proxy.Gauges{} }})
					page(t, tel.Metrics())
				}
			}
		})
	}
	wg.Wait()
	has(t, page(t, tel.Metrics()), `weir_fills_total{end="",reason="none",why="miss"} 1600`)
}

func BenchmarkExchange(b *testing.B) {
	hit := proxy.Report{Route: "catalogue", Action: policy.Serve, Reason: policy.Fresh, Bytes: 100,
		FirstByte: time.Millisecond, Duration: 2 * time.Millisecond}
	for _, access := range []bool{false, true} {
		b.Run(fmt.Sprintf("access=%v", access), func(b *testing.B) {
			tel := open(b, Config{Metrics: true, Log: Log{Level: "info", Format: "json", Access: access}}, io.Discard)
			b.ReportAllocs()
			for b.Loop() {
				tel.Exchange(hit)
			}
		})
	}
}
