package proxy

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// A client who has stopped to read holds up its writer; severed, that ends at once, and so does every later write.
func TestSevered(t *testing.T) {
	writing, ended := make(chan *writer), make(chan error)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := &writer{ResponseWriter: w, control: http.NewResponseController(w), report: &Report{}, http1: true}
		writing <- out
		for {
			if _, err := out.Write(make([]byte, piece)); err != nil {
				ended <- err
				return
			}
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	(<-writing).sever()
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// deadlines is a connection's side that only notes the last deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.last = at; return nil }

// It may be severed between two writes: the next one's own deadline does not give it more time.
func TestSeveredBetweenWrites(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	out := &writer{ResponseWriter: d, control: http.NewResponseController(d), report: &Report{}, http1: true}
	_, _ = out.Write([]byte("x"))
	if !d.last.After(time.Now()) {
		t.Errorf("a write has until %v", d.last)
	}
	out.sever()
	_, _ = out.Write([]byte("x"))
	if !d.last.Before(time.Now()) {
		t.Errorf("a write has until %v though it is severed", d.last)
	}
}
