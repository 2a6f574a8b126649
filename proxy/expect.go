package proxy

import (
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
)

// expects reports whether the client asks if its body is wanted before it sends it (RFC 9110 §10.1.1).
func expects(r *http.Request) bool {
	return r.ProtoAtLeast(1, 1) && strings.Contains(strings.ToLower(r.Header.Get("Expect")), "100-continue")
}

// carryOn hands on the upstream's 100 to a client that waits for it, before its body is read for the upstream: net/http
// says 100 by itself to whose body is read first, and such a client would be told twice, or in the wrong order.
func (w *writer) carryOn() {
	if w.http1 && !w.body.begun.Load() {
		w.ResponseWriter.WriteHeader(http.StatusContinue)
	}
}

// expecting asks on behalf of a client that waits for 100.
type expecting struct {
	http.RoundTripper
	client *writer
}

func (e expecting) RoundTrip(r *http.Request) (*http.Response, error) {
	var mu sync.Mutex
	over := false // then the client's side is the handler's again
	trace := &httptrace.ClientTrace{Got100Continue: func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			e.client.carryOn()
		}
	}}
	res, err := e.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	mu.Lock()
	defer mu.Unlock()
	over = true
	return res, err
}
