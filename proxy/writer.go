package proxy

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"weir/proxy/fill"
)

const (
	// writePatience is how long one write to a client may take. A client that reads slower than a piece in this time
	// is cut off; it holds no upstream slot meanwhile, but it does hold memory.
	writePatience = 30 * time.Second
	// readPatience is how long a client may pause within its request's body.
	readPatience = 30 * time.Second
	// lastPatience is how long what is left of a body that nobody wants is read, so that the answer can be.
	lastPatience = 5 * time.Second
	piece        = 64 << 10
)

// writer is the client's side of an exchange: it counts, and it bounds how long a slow client may hold things up.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	report  *Report
	wrote   bool     // the final head is out: what follows can only be body, or an abort
	last    bool     // the connection ends with this answer
	body    *patient // the request's; nil: it has none
}

// Unwrap lets http.ResponseController reach Flush and Hijack.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if w.wrote {
			return
		}
		w.wrote = true
		w.report.Status = status
		w.report.FirstByte = time.Since(w.report.Time)
		if h := w.Header(); len(h["Content-Type"]) == 0 {
			h["Content-Type"] = nil // net/http would guess one that the upstream did not send
		}
		if w.last {
			w.Header().Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (n int, err error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	for len(p) > 0 && err == nil {
		var m int
		// Not supported by a recorder in a test: then there is no slow client either.
		_ = w.control.SetWriteDeadline(time.Now().Add(writePatience))
		m, err = w.ResponseWriter.Write(p[:min(len(p), piece)])
		n, p = n+m, p[m:]
	}
	w.report.Bytes += int64(n)
	return n, err
}

// interim hands on a 1xx answer; its fields do not stay for the final one.
func (w *writer) interim(i fill.Interim) {
	h := w.Header()
	kept := h.Clone()
	for name, values := range i.Header {
		h[name] = values
	}
	w.ResponseWriter.WriteHeader(i.Code)
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}

// settle bounds what net/http does after the handler: it writes what it has buffered, and reads what is left of the
// request's body. Both deadlines are moved again when something is next written, or the next request awaited.
func (w *writer) settle() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writePatience))
	if w.body != nil && !w.body.end() {
		_ = w.control.SetReadDeadline(time.Now().Add(lastPatience))
	}
}

// refused is what was wrong with the request's body; nil: nothing yet. It is not the upstream's fault.
func (w *writer) refused() error {
	if w.body == nil {
		return nil
	}
	if fault := w.body.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// patient is a request's body whose sender may pause for readPatience at most. The deadline is taken off at its end:
// net/http reads in the background from then on, and would take it for a client that has left.
//
// http.Transport may still read when the upstream has answered, and the handler has; but net/http reads the next
// request from the same connection then, and two at once make it panic. So the exchange ends the body, which ends such
// a read and keeps others from beginning.
type patient struct {
	io.ReadCloser
	control *http.ResponseController
	reading sync.Mutex
	over    atomic.Bool // the exchange has ended it
	whole   atomic.Bool // it came to its end
	fault   atomic.Pointer[error]
}

func (p *patient) Read(b []byte) (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	_ = p.control.SetReadDeadline(time.Now().Add(readPatience))
	if p.over.Load() { // asked after the deadline was set, which end moves after it has said so
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := p.ReadCloser.Read(b)
	switch {
	case err == io.EOF:
		p.whole.Store(true)
		_ = p.control.SetReadDeadline(time.Time{})
	case err != nil && !p.over.Load():
		p.fault.Store(&err)
	}
	return n, err
}

// end returns when nobody reads any more; whole: there is nothing left to read.
func (p *patient) end() (whole bool) {
	p.over.Store(true)
	if !p.reading.TryLock() {
		if p.control.SetReadDeadline(time.Now()) != nil {
			return p.whole.Load() // a recorder in a test: there is no connection to be read by two
		}
		p.reading.Lock()
	}
	defer p.reading.Unlock()
	return p.whole.Load()
}
