package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"weir/policy"
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
	http1   bool     // the connection carries one request at a time
	old     bool     // it is older than HTTP/1.1
	last    bool     // it ends with this answer
	expects bool     // it is asked whether its body is wanted (RFC 9110 §10.1.1)
	body    *patient // the request's; nil: it has none
	severed atomic.Bool
}

// Unwrap lets http.ResponseController reach Flush.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.hint(status)
		return
	}
	if w.wrote {
		return
	}
	w.wrote = true
	w.report.Status = status
	w.report.FirstByte = time.Since(w.report.Time)
	if h := w.Header(); len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // net/http would guess one that the upstream did not send
	}
	// A request that is answered before its body has come is the last one (RFC 9112 §9.6): net/http panics when it finds
	// the body's end behind the handler's.
	if w.http1 && (w.last || w.unread()) {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// hint hands on a 1xx answer, as far as this client knows any (RFC 9110 §15.2), without what is for one connection
// (§7.6.1). A 100 that it waits for has been handed on: see carryOn.
func (w *writer) hint(status int) {
	if w.old || status == http.StatusContinue && w.expects {
		return
	}
	policy.StripHop(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (n int, err error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	for len(p) > 0 && err == nil {
		var m int
		w.within(func() { m, err = w.ResponseWriter.Write(p[:min(len(p), piece)]) })
		n, p = n+m, p[m:]
	}
	w.report.Bytes += int64(n)
	return n, err
}

// FlushError is what http.ResponseController calls for Flush.
func (w *writer) FlushError() (err error) {
	w.within(func() { err = w.control.Flush() })
	return err
}

// within bounds how long a client takes what it is sent. The deadline is taken off again: in HTTP/2 it is a timer, and
// ends a stream on which nothing is waiting to be sent.
func (w *writer) within(send func()) {
	// Not supported by a recorder in a test: then there is no slow client either.
	_ = w.control.SetWriteDeadline(time.Now().Add(writePatience))
	if w.severed.Load() {
		_ = w.control.SetWriteDeadline(time.Unix(1, 0)) // long ago
	}
	send()
	if !w.http1 {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
}

// sever ends what is being written, and whatever would be: memory does not wait for a client who is too slow. It may be
// called while another goroutine writes.
func (w *writer) sever() {
	w.severed.Store(true)
	_ = w.control.SetWriteDeadline(time.Unix(1, 0)) // long ago
}

// Hijack hands over the connection with what its client has sent already: httputil.ReverseProxy reads from the
// connection itself, and what net/http had read behind the head would be lost.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, ahead, err := w.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &hijacked{conn, ahead.Reader}, ahead, nil
}

// hijacked is a connection of which some has been read ahead. Only that much is read there: what net/http reads from
// tells it that the client has left when but its side has ended.
type hijacked struct {
	net.Conn
	ahead *bufio.Reader
}

func (h *hijacked) Read(p []byte) (int, error) {
	if n := h.ahead.Buffered(); n > 0 {
		return h.ahead.Read(p[:min(len(p), n)])
	}
	return h.Conn.Read(p)
}

// CloseWrite ends our side only.
func (h *hijacked) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return h.Close()
}

// interim hands on a 1xx answer; its fields do not stay for the final one.
func (w *writer) interim(i fill.Interim) {
	h := w.Header()
	kept := h.Clone()
	for name, values := range i.Header {
		h[name] = values
	}
	w.WriteHeader(i.Code)
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}

// settle bounds what net/http does after the handler: it writes what it has buffered, and reads what is left of the
// request's body. Both deadlines are moved again when something is next written, or the next request awaited.
func (w *writer) settle() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writePatience))
	if w.unread() && w.refused() == nil {
		_ = w.control.SetReadDeadline(time.Now().Add(lastPatience))
	}
}

// cut ends the connection by a reset where its plain end would be the body's: HTTP/1.0 knows no chunks, and what has no
// length is whole for it when the connection closes without an error (RFC 9112 §8).
func (w *writer) cut() {
	if !w.old || !w.wrote {
		return
	}
	conn, _, err := w.control.Hijack()
	if err != nil {
		return // it is another's already, or a recorder in a test
	}
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	conn.Close()
}

func (w *writer) unread() bool { return w.body != nil && !w.body.whole.Load() }

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
// net/http reads in the background from then on, and would take it for a client that has left. http.Transport may still
// read it when the upstream has answered, and so have we.
type patient struct {
	io.ReadCloser
	control *http.ResponseController
	begun   atomic.Bool // somebody has asked for it
	whole   atomic.Bool // it came to its end
	fault   atomic.Pointer[error]
}

func (p *patient) Read(b []byte) (int, error) {
	p.begun.Store(true)
	_ = p.control.SetReadDeadline(time.Now().Add(readPatience))
	n, err := p.ReadCloser.Read(b)
	switch {
	case err == io.EOF:
		p.whole.Store(true)
		_ = p.control.SetReadDeadline(time.Time{})
	case err != nil:
		p.fault.Store(&err)
	default:
		_ = p.control.SetReadDeadline(time.Time{}) // until it is read again, it is not the client who is waited for
	}
	return n, err
}
