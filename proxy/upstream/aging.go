package upstream

import (
	"net/http"
	"sync"
	"time"
)

// maxAge is how long connections are chosen for requests: a connection that is always busy would never learn that its
// server has moved (R29).
const maxAge = time.Minute

// aging is a transport that begins afresh now and then: names are looked up again, connections made anew. What is under
// way on the old ones ends there, and they are idle from then on.
type aging struct {
	made func() *http.Transport
	age  time.Duration

	mu    sync.Mutex
	now   *http.Transport
	since time.Time
}

func (a *aging) RoundTrip(req *http.Request) (*http.Response, error) {
	return a.current().RoundTrip(req)
}

func (a *aging) current() *http.Transport {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil || time.Since(a.since) >= a.age {
		if a.now != nil {
			// What is in use now has idleConnections from its end.
			go a.now.CloseIdleConnections()
		}
		a.now, a.since = a.made(), time.Now()
	}
	return a.now
}

// CloseIdleConnections is http.Transport's.
func (a *aging) CloseIdleConnections() { a.current().CloseIdleConnections() }
