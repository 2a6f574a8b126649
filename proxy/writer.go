package proxy

import (
	"io"
	"net/http"
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
	wrote   bool  // the final head is out: what follows can only be body, or an abort
	last    bool  // the connection ends with this answer
	unread  bool  // the request's body has not come to its end
	refused error // what was wrong with it; not the upstream's fault
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
	if w.unread {
		_ = w.control.SetReadDeadline(time.Now().Add(lastPatience))
	}
}

// patient is a request's body whose sender may pause for readPatience at most. The deadline is taken off at the end:
// net/http reads in the background from then on, and would take it for a client that has left.
type patient struct {
	io.ReadCloser
	w *writer
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.w.control.SetReadDeadline(time.Now().Add(readPatience))
	n, err := p.ReadCloser.Read(b)
	if err != nil {
		p.w.unread = false
		if err != io.EOF {
			p.w.refused = err
		}
		_ = p.w.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
