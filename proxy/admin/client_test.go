package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/store"
)

// serve runs an admin port and gives a client of it.
func serve(t *testing.T, h http.Handler) Client {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Client{Address: s.Listener.Addr().String()}
}

func TestClientPurges(t *testing.T) {
	h := &house{purged: store.Purged{Estimate: 3, Replicas: 2}}
	c := serve(t, New(h.options(local)))
	got, err := c.Purge(t.Context(), Order{URL: "https://example.com/a", Soft: true})
	if err != nil || got != h.purged || h.asked[0] != "soft https://example.com/a" {
		t.Errorf("%+v, %v, asked %q", got, err, h.asked)
	}
	h.purged.Estimate = -1
	if got, err := c.Purge(t.Context(), Order{Route: "all"}); err != nil || got != h.purged || h.asked[1] != "hard route all" {
		t.Errorf("%+v, %v, asked %q", got, err, h.asked)
	}
	if _, err := c.Purge(t.Context(), Order{Host: "example.com", Tag: "a"}); err == nil || len(h.asked) != 2 {
		t.Errorf("%v, asked %q: an order names one thing", err, h.asked)
	}
}

func TestClientSendsItsToken(t *testing.T) {
	h := &house{}
	c := serve(t, New(h.options(Config{Listen: ":8081", Token: "s3cret"})))
	if _, err := c.Purge(t.Context(), Order{URL: "https://example.com/"}); err == nil || !strings.Contains(err.Error(), "WEIR_ADMIN_TOKEN") {
		t.Errorf("without the token: %v", err)
	}
	c.Token = "s3cret"
	if _, err := c.Purge(t.Context(), Order{URL: "https://example.com/"}); err != nil {
		t.Error(err)
	}
}

func TestClientAsksWhetherReady(t *testing.T) {
	h := &house{}
	c := serve(t, New(h.options(local)))
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	h.draining = true
	if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("draining: %v", err)
	}
}

// Each failure says what to look at.
func TestClientFails(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close() // nobody listens there any more
	text := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.Write([]byte(body))
		})
	}
	for _, c := range []struct {
		name   string
		client Client
		want   string
	}{
		{"nobody listens", Client{Address: free.Addr().String()}, "is weir running"},
		{"no address", Client{Address: "nowhere"}, "no address"},
		{"a URL", Client{Address: "http://127.0.0.1:8081"}, "no address"},
		{"another server", serve(t, text(404, "not found")), "not weir's admin port"},
		{"another server that is glad", serve(t, text(200, "<html>")), "not weir's admin port"},
		{"another server's JSON", serve(t, text(500, `{"error":"x"}`)), "not weir's admin port"},
		{"a redirect", serve(t, http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect)), "not weir's admin port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.client.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(t, text(200, "{}")).Ready(gone); err == nil {
		t.Error("a cancelled question was answered")
	}
}

func TestDialled(t *testing.T) {
	for address, want := range map[string]string{
		":8081": "127.0.0.1:8081", "0.0.0.0:8081": "127.0.0.1:8081", "[::]:8081": "127.0.0.1:8081",
		"127.0.0.1:8081": "127.0.0.1:8081", "[::1]:8081": "[::1]:8081", "weir.internal:8081": "weir.internal:8081",
	} {
		if got, err := dialled(address); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", address, got, err, want)
		}
	}
}
