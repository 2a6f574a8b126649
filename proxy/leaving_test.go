package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
	"weir/store/memory"
)

type unwatched struct{}

func (unwatched) Exchange(Report)  {}
func (unwatched) Fill(fill.Report) {}

// behindServer is a handler behind a real server of net/http, for clients of one protocol.
func behindServer(t *testing.T, up http.Handler, version func(*http.Protocols)) (client *http.Client, url string) {
	t.Helper()
	origin := httptest.NewServer(up)
	t.Cleanup(origin.Close)
	p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{{Name: "all", Upstream: "api"}}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := upstream.New(upstream.Config{
		Name: "api", URL: origin.URL, ConnectTimeout: time.Second, ResponseTimeout: 10 * time.Second,
		IdleTimeout: 10 * time.Second, FillTimeout: time.Minute, MaxConcurrent: 64, MaxStreams: 64, Queue: 1000, QueueTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	h := New(Options{
		Policy: p, Store: memory.New(memory.Config{MaxSize: 1 << 20}), Upstreams: map[string]*upstream.Upstream{"api": u},
		Observer: unwatched{}, Config: Config{Spool: 16 << 20, MaxWaiting: 1000, MaxBody: 1 << 20},
	})
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols, s.Config.ErrorLog = new(http.Protocols), nil
	version(s.Config.Protocols)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if err := h.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if g := h.Gauges(); g.Exchanges != 0 || g.FillsRunning != 0 || g.SpoolBytes != 0 {
			t.Errorf("left: %+v", g)
		}
	})
	transport := &http.Transport{Protocols: s.Config.Protocols, MaxIdleConnsPerHost: 10}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, s.URL
}

// Clients that leave at any moment leave nobody behind that writes to them, over either protocol: the race detector
// looks, and who stays gets every byte.
func TestLeavingAtAnyMoment(t *testing.T) {
	page := strings.Repeat("0123456789", 20_000)
	for name, version := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			client, url := behindServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/kept" {
					w.Header().Set("Cache-Control", "no-store")
				}
				for part := range strings.SplitAfterSeq(page, "9") {
					if _, err := io.WriteString(w, part); err != nil {
						return
					}
				}
			}), version)
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					leaves := i%4 > 0
					if leaves {
						time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
					}
					path := []string{"/kept", "/not/", "/kept", "/not/"}[i%4]
					if i%4 == 1 {
						path += fmt.Sprint(i)
					}
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
					res, err := client.Do(req)
					if err != nil {
						if !leaves {
							t.Error(err)
						}
						return
					}
					defer res.Body.Close()
					got, err := io.ReadAll(res.Body)
					if err == nil && string(got) != page || err != nil && !leaves {
						t.Errorf("%d bytes, %v", len(got), err)
					}
				})
			}
			all.Wait()
		})
	}
}
