package e2e

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// field is one header line as it goes over the wire: its case, place and repetition are part of what is tested.
type field struct{ name, value string }

type fields []field

// get joins the lines of a name as a recipient may (RFC 9110 §5.3), and tells whether there is any.
func (f fields) get(name string) (string, bool) {
	var values []string
	for _, line := range f {
		if strings.EqualFold(line.name, name) {
			values = append(values, line.value)
		}
	}
	return strings.Join(values, ", "), values != nil
}

func (f fields) lines() string {
	var b strings.Builder
	for _, line := range f {
		b.WriteString(line.name + ": " + line.value + "\r\n")
	}
	return b.String()
}

func fieldsOf(h http.Header) fields {
	var f fields
	for name, values := range h {
		for _, value := range values {
			f = append(f, field{name, value})
		}
	}
	return f
}

// visit is one request that a server sees, with the connection it came on.
type visit struct {
	*http.Request
	conn net.Conn
	in   *bufio.Reader
	over func() // ends its being counted as under way; may be called again
}

// reset makes the connection end as if the other machine had crashed.
func (v *visit) reset() {
	v.conn.(*net.TCPConn).SetLinger(0)
}

// server answers HTTP/1.1 on a loopback port. What it writes is written by hand, because net/http's server would
// tidy, refuse or complete much of what a test wants to send.
type server struct {
	answer func(*visit) error // an error ends the connection

	mu       sync.Mutex
	address  string // stays the same while the server is down
	listener net.Listener
	conns    map[net.Conn]bool
	closing  chan struct{} // closed when it goes down
	running  sync.WaitGroup
}

var errHangUp = errors.New("hang up")

// up starts to listen, on the port it had before if it had one. That port can be lost for a moment to somebody's
// outgoing connection, hence the patience.
func (s *server) up() error {
	if s.address == "" {
		s.address = "127.0.0.1:0"
	}
	err := poll(5*time.Second, func() error {
		l, err := net.Listen("tcp", s.address)
		if err == nil {
			s.mu.Lock()
			s.listener, s.address, s.conns = l, l.Addr().String(), map[net.Conn]bool{}
			s.closing = make(chan struct{})
			s.mu.Unlock()
		} else if !errors.Is(err, syscall.EADDRINUSE) {
			return permanent{err}
		}
		return err
	})
	if err != nil {
		return err
	}
	s.running.Add(1)
	go s.accept(s.listener)
	return nil
}

// down refuses new connections and cuts those there are.
func (s *server) down() {
	s.mu.Lock()
	if s.conns != nil {
		s.listener.Close()
		close(s.closing)
	}
	for conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.running.Wait()
}

func (s *server) gone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *server) accept(l net.Listener) {
	defer s.running.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.conns == nil { // accepted while going down
			conn.Close()
		} else {
			s.conns[conn] = true
			s.running.Add(1)
			go s.serve(conn)
		}
		s.mu.Unlock()
	}
}

func (s *server) serve(conn net.Conn) {
	defer s.running.Done()
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if err := s.answer(&visit{Request: r, conn: conn, in: in}); err != nil || r.Close {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
	}
}

// permanent marks an error that polling cannot mend.
type permanent struct{ error }

// poll tries until check holds, and returns the last refusal when the time is up.
func poll(limit time.Duration, check func() error) error {
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if p := (permanent{}); errors.As(err, &p) {
			return p.error
		}
		select {
		case <-deadline:
			return err
		case <-tick.C:
		}
	}
}
