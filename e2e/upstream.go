package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// upstream is the server behind Weir, which answers as a scenario's lines say and remembers what it was asked.
type upstream struct {
	server

	mu    sync.Mutex
	pages map[string]*page
	gates map[string]chan struct{}
	log   []string
}

// page is what is known of one path (with its query).
type page struct {
	replies []reply // still to come; the last one repeats until another line follows it
	again   bool    // the one that is left has been sent already
	asked   int     // requests that arrived here
	now     int     // under way
	most    int     // that were ever under way together
	last    *http.Request
	body    string // of the last request that was read to its end
}

// reply is one scripted answer.
type reply struct {
	status   int
	header   fields
	interim  []string // whole lines of 103 answers, before the final one
	trailer  fields   // sent when chunked
	body     string   // may contain {…}: see fill
	framing  string   // "length", "chunked" or "close"
	hold     string   // the gate it waits at before its head
	holdBody string   // the gate it waits at with half of the body sent
	fault    string   // see faults

	delay  time.Duration // before the head; only load tests let time pass
	spread time.Duration // how long the body takes
}

// faults are the ways in which an upstream can go wrong with a request that it has read.
func faults() map[string]string {
	return map[string]string{
		"reset":   "the connection is reset instead of an answer",
		"stall":   "no answer ever comes",
		"short":   "half of the body comes, then the connection closes",
		"hang":    "half of the body comes, then nothing",
		"garbage": "what comes is not HTTP",
		"endless": "the body never ends",
	}
}

func newUpstream() (*upstream, error) {
	u := &upstream{pages: map[string]*page{}, gates: map[string]chan struct{}{}}
	u.answer = u.reply
	return u, u.up()
}

// close opens every gate, so that nobody is left standing there.
func (u *upstream) close() {
	u.mu.Lock()
	for name := range u.gates {
		u.open(name)
	}
	u.mu.Unlock()
	u.down()
}

func (u *upstream) script(path string, r reply) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.page(path)
	if p.again {
		p.replies, p.again = nil, false
	}
	p.replies = append(p.replies, r)
}

// page and gate are called under the lock.
func (u *upstream) page(path string) *page {
	if u.pages[path] == nil {
		u.pages[path] = &page{}
	}
	return u.pages[path]
}

func (u *upstream) gate(name string) chan struct{} {
	if u.gates[name] == nil {
		u.gates[name] = make(chan struct{})
	}
	return u.gates[name]
}

func (u *upstream) open(name string) {
	select {
	case <-u.gate(name):
	default:
		close(u.gate(name))
	}
}

func (u *upstream) release(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open(name)
}

func (u *upstream) reply(v *visit) error {
	r, n := u.arrive(v)
	defer v.over()
	if r.fault == "stall" {
		return u.stand("")
	}
	if r.hold != "" {
		if err := u.stand(r.hold); err != nil {
			return err
		}
	}
	if err := u.readBody(v); err != nil {
		return err
	}
	select {
	case <-time.After(r.delay):
	case <-u.gone():
	}
	switch {
	case r.fault == "reset":
		v.reset()
		return errHangUp
	case r.fault == "garbage":
		io.WriteString(v.conn, "220 this is no web server\r\n\r\n")
		return errHangUp
	case r.status == http.StatusSwitchingProtocols:
		return u.echo(v, r)
	}
	return u.write(v, r, n)
}

// arrive counts a request the moment its head is here, and says how to answer it.
func (u *upstream) arrive(v *visit) (r reply, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	path := v.URL.RequestURI()
	p := u.page(path)
	p.asked++
	p.now++
	p.most = max(p.most, p.now)
	p.last = v.Request
	u.log = append(u.log, fmt.Sprintf("%s %s %s %v", time.Now().Format("15:04:05.000"), v.Method, path, v.Header))
	switch len(p.replies) {
	case 0:
		r = reply{status: http.StatusNotFound, body: "nothing is scripted here"}
	case 1:
		r, p.again = p.replies[0], true
	default:
		r, p.replies = p.replies[0], p.replies[1:]
	}
	v.over = sync.OnceFunc(func() {
		u.mu.Lock()
		p.now--
		u.mu.Unlock()
	})
	return r, p.asked
}

// stand waits at a gate, or at none until the upstream goes down.
func (u *upstream) stand(gate string) error {
	var opened chan struct{}
	if gate != "" {
		u.mu.Lock()
		opened = u.gate(gate)
		u.mu.Unlock()
	}
	select {
	case <-opened:
		return nil
	case <-u.gone():
		return errHangUp
	}
}

func (u *upstream) readBody(v *visit) error {
	if v.Header.Get("Expect") != "" {
		io.WriteString(v.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	body, err := io.ReadAll(v.Body)
	u.mu.Lock()
	u.page(v.URL.RequestURI()).body = string(body)
	u.mu.Unlock()
	return err
}

func (u *upstream) write(v *visit, r reply, n int) error {
	body := u.fill(r.body, v, n)
	for _, line := range r.interim {
		fmt.Fprintf(v.conn, "HTTP/1.1 103 Early Hints\r\n%s\r\n\r\n", line)
	}
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\n", r.status, http.StatusText(r.status))
	header := slices.Clone(r.header)
	for i, line := range header {
		header[i].value = u.fill(line.value, v, n)
	}
	head += header.lines()
	for _, own := range []field{{"Date", "{now}"}, {"Content-Type", "text/plain"}} {
		if _, there := header.get(own.name); !there {
			head += own.name + ": " + u.fill(own.value, v, n) + "\r\n"
		}
	}
	bodiless := v.Method == http.MethodHead || r.status == http.StatusNoContent || r.status == http.StatusNotModified
	switch {
	case r.framing == "chunked":
		head += "Transfer-Encoding: chunked\r\n"
	case r.framing == "close":
		head += "Connection: close\r\n"
	case !bodiless || v.Method == http.MethodHead:
		if _, there := header.get("Content-Length"); !there {
			head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
		}
	}
	if bodiless {
		v.over()
	}
	if _, err := io.WriteString(v.conn, head+"\r\n"); err != nil || bodiless {
		return err
	}
	return u.writeBody(v, r, body)
}

func (u *upstream) writeBody(v *visit, r reply, body string) error {
	half := len(body) / 2
	if err := u.drip(v.conn, r, body[:half]); err != nil {
		return err
	}
	switch r.fault {
	case "short":
		return errHangUp
	case "hang":
		return u.stand("")
	case "endless":
		for {
			if _, err := io.WriteString(v.conn, framed(r.framing, body)); err != nil {
				return err
			}
		}
	}
	if r.holdBody != "" {
		if err := u.stand(r.holdBody); err != nil {
			return err
		}
	}
	rest := framed(r.framing, body[half:])
	if r.framing == "chunked" {
		rest += "0\r\n" + r.trailer.lines() + "\r\n"
	}
	v.over() // before the other side can know that it is, and asks again
	if _, err := io.WriteString(v.conn, rest); err != nil || r.framing == "close" {
		return errHangUp
	}
	return nil
}

// drip writes in forty pieces over the time that the reply has for it, or at once when it has none.
func (u *upstream) drip(conn io.Writer, r reply, part string) error {
	const pieces = 40
	for i := range pieces {
		if r.spread > 0 {
			select {
			case <-time.After(r.spread / pieces):
			case <-u.gone():
				return errHangUp
			}
		}
		if _, err := io.WriteString(conn, framed(r.framing, part[i*len(part)/pieces:(i+1)*len(part)/pieces])); err != nil {
			return err
		}
	}
	return nil
}

// echo speaks the protocol that the client asked for: everything comes back.
func (u *upstream) echo(v *visit, r reply) error {
	if _, err := io.WriteString(v.conn, "HTTP/1.1 101 Switching Protocols\r\n"+r.header.lines()+"\r\n"); err != nil {
		return err
	}
	io.Copy(v.conn, v.in)
	return errHangUp
}

var hole = regexp.MustCompile(`\{[A-Za-z-]+([+-][0-9]+[smh])?\}`)

// fill replaces what stands in braces: {n} which request of this path it is, {method}, {body} (the request's),
// {now}, {now-90s}, {now+1h} an HTTP date, and any other {Name} the request's header.
func (u *upstream) fill(text string, v *visit, n int) string {
	return hole.ReplaceAllStringFunc(text, func(text string) string {
		name := strings.Trim(text, "{}")
		switch {
		case name == "n":
			return strconv.Itoa(n)
		case name == "method":
			return v.Method
		case name == "body":
			u.mu.Lock()
			defer u.mu.Unlock()
			return u.page(v.URL.RequestURI()).body
		case strings.HasPrefix(name, "now"):
			shift, _ := time.ParseDuration(strings.TrimPrefix(name, "now"))
			return time.Now().Add(shift).UTC().Format(http.TimeFormat)
		}
		return strings.Join(v.Header.Values(name), ", ")
	})
}

// see reads one thing that a check can name of a path: now (under way), most (that ever were together), and of the
// last request method, body, Host or a header.
func (p *page) see(name string) (string, bool) {
	switch {
	case name == "now":
		return strconv.Itoa(p.now), true
	case name == "most":
		return strconv.Itoa(p.most), true
	case p.last == nil:
		return "", false
	case name == "method":
		return p.last.Method, true
	case name == "body":
		return p.body, true
	case name == "Host":
		return p.last.Host, true
	}
	return fieldsOf(p.last.Header).get(name)
}
