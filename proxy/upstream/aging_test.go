package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Requests that follow each other share a connection until it is old; a body that comes over the old one meanwhile comes
// whole.
func TestConnectionsAge(t *testing.T) {
	var mu sync.Mutex
	var from []string // a request's connection
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from = append(from, r.RemoteAddr)
		mu.Unlock()
		io.WriteString(w, "first ")
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			<-release
		}
		io.WriteString(w, "last")
	}))
	defer s.Close()
	a := &aging{made: func() *http.Transport { return transport(config(s.URL), nil) }, age: time.Hour}
	get := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := a.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	end := func(res *http.Response) {
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "first last" {
			t.Errorf("%q, %v", body, err)
		}
	}
	end(get("/"))
	end(get("/"))
	slow := get("/slow")
	a.age = 0
	end(get("/"))
	end(get("/"))
	close(release)
	end(slow)
	a.CloseIdleConnections()
	old := from[0]
	if from[1] != old || from[2] != old || slices.Contains(from[3:], old) || from[3] == from[4] {
		t.Errorf("by connection: %v; want the first three by one, and each of the others by its own", from)
	}
}
