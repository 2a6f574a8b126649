package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"

	"weir/policy"
)

// maxHead is how long an answer's head may be.
const maxHead = 64 << 10

// framed is an HTTP/1.1 connection to an upstream. It reads the heads of answers before net/http does, since that hides
// how an answer was framed, and gives up where RFC 9112 §6.3 has a rule. Bodies go through untouched.
type framed struct {
	net.Conn
	// due: the head of an answer comes next. It is set when the connection is chosen for a request, which is when all
	// of the former answer has been read.
	due   atomic.Bool
	sent  atomic.Bool // something went out since
	part  []byte      // of a head whose end has not come
	seen  int         // bytes of it that are known not to end it
	ready []byte      // judged, and what came behind it
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// dialled wraps a dialler's connections, but those that have agreed on HTTP/2, which frames by rules of its own.
func dialled(dial dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
			return conn, nil
		}
		return &framed{Conn: conn}, nil
	}
}

// expectHead is called when the connection is chosen for a request.
func (f *framed) expectHead() {
	f.sent.Store(false)
	f.due.Store(true)
}

// Write tells whether a request can have been read by the upstream.
func (f *framed) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	if n > 0 {
		f.sent.Store(true)
	}
	return n, err
}

// Read belongs to one goroutine. Whether a head is due is asked when bytes have come, for net/http reads an idle
// connection before it is chosen.
func (f *framed) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		n, err := f.Conn.Read(p)
		if !f.due.Load() {
			return n, err
		}
		f.part = append(f.part, p[:n]...)
		f.advance()
		if err != nil || len(f.part) > maxHead {
			f.ready, f.part, f.seen = append(f.ready, f.part...), nil, 0 // net/http tells what is wrong with it
			if len(f.ready) == 0 {
				return 0, err
			}
			f.due.Store(false)
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// advance judges the heads that have come whole, interim ones included, and lets through what is behind the last. What
// cannot become a head goes through at once: net/http need not wait for its end to refuse it.
func (f *framed) advance() {
	for f.due.Load() {
		if n := min(len(f.part), len("HTTP/")); string(f.part[:n]) != "HTTP/"[:n] {
			f.due.Store(false) // nor does a later piece of it begin one
			break
		}
		end := headEnd(f.part, f.seen)
		if end < 0 {
			f.seen = max(0, len(f.part)-len("\n\r"))
			return
		}
		head := f.part[:end]
		f.part, f.seen = f.part[end:], 0
		f.due.Store(isInterim(head))
		f.ready = append(f.ready, judged(head)...)
	}
	f.ready, f.part, f.seen = append(f.ready, f.part...), nil, 0
}

// headEnd is where the first empty line from i on ends; -1: it has not come.
func headEnd(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return -1
		}
		i += n + 1
		switch {
		case bytes.HasPrefix(b[i:], []byte("\n")):
			return i + 1
		case bytes.HasPrefix(b[i:], []byte("\r\n")):
			return i + 2
		}
	}
}

// isInterim: another head follows it (RFC 9110 §15.2).
func isInterim(head []byte) bool {
	_, status, _ := bytes.Cut(head, []byte(" "))
	return bytes.HasPrefix(status, []byte("1")) && !bytes.HasPrefix(status, []byte("101"))
}

// judged is the head that net/http is given: the upstream's own, one whose body ends with the connection, or one that
// it refuses. It is without the fields that Connection names where that says close, too: net/http takes such a
// Connection away, and nobody behind it would know (RFC 9110 §7.6.1).
func judged(head []byte) []byte {
	head = tight(head)
	lower := bytes.ToLower(head)
	coded := bytes.Contains(lower, []byte("transfer-encoding"))
	if !coded && !(bytes.Contains(lower, []byte("connection")) && bytes.Contains(lower, []byte("close"))) {
		return head
	}
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	status, err := r.ReadLine()
	if err != nil {
		return head
	}
	h, err := r.ReadMIMEHeader()
	if err != nil {
		return head
	}
	changed := policy.StripNamed(http.Header(h))
	if coded {
		bare, why := unframed(status, http.Header(h))
		if why != "" {
			return refused(why)
		}
		changed = changed || bare
	}
	if !changed {
		return head
	}
	b := bytes.NewBufferString(status + "\r\n")
	_ = http.Header(h).Write(b) // a buffer takes everything
	return append(b.Bytes(), "\r\n"...)
}

// unframed takes away a Transfer-Encoding that is none, or says why the answer cannot be read.
func unframed(status string, h http.Header) (changed bool, why string) {
	lines := h["Transfer-Encoding"]
	switch {
	case lines == nil:
		return false, ""
	case strings.HasPrefix(status, "HTTP/1.0"):
		return false, "Transfer-Encoding in HTTP/1.0" // §6.1
	case h["Content-Length"] != nil:
		return false, "Transfer-Encoding and Content-Length" // §6.3: smuggled, or split
	case len(lines) == 1 && strings.EqualFold(lines[0], "chunked"):
		return false, ""
	case slices.ContainsFunc(strings.Split(strings.Join(lines, ","), ","), isCoding):
		return false, "Transfer-Encoding that was not asked for"
	}
	// What is left is no coding: identity, as older servers say, or a word that nobody has registered. As none was asked
	// for (RFC 9110 §10.1.4), there is nothing to undo, and the body ends with the connection (§6.3).
	h.Del("Transfer-Encoding")
	return true, ""
}

// tight takes away the blanks between a field's name and its colon (RFC 9112 §5.1): with them, the field would be
// another to net/http.
func tight(head []byte) []byte {
	if !bytes.Contains(head, []byte(" :")) && !bytes.Contains(head, []byte("\t:")) {
		return head
	}
	var b []byte
	for line := range bytes.Lines(head) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && len(name) > 0 && name[0] != ' ' && name[0] != '\t' {
			b = append(b, bytes.TrimRight(name, " \t")...)
			line = line[len(name):]
		}
		b = append(b, line...)
	}
	return b
}

// isCoding knows the registered transfer codings (RFC 9112 §7).
func isCoding(name string) bool {
	name, _, _ = strings.Cut(strings.ToLower(name), ";")
	switch strings.TrimPrefix(textproto.TrimString(name), "x-") {
	case "chunked", "gzip", "deflate", "compress":
		return true
	}
	return false
}

// refused is no head of an answer, and says why: net/http reports its first line as malformed.
func refused(why string) []byte { return []byte(why + "\r\n\r\n") }

// CloseWrite ends our side of an upgraded connection.
func (f *framed) CloseWrite() error {
	if c, ok := f.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
