package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ask is one request, written as it stands.
type ask struct {
	method, target string
	header         fields
	body           string
	framing        string          // of the body: "" by length when there is one, "length", "chunked"
	hold           <-chan struct{} // waits here with half of the body sent
}

// answer is what came back, as far as it has come. Read it under its lock, or when done is closed.
type answer struct {
	conn    net.Conn
	started time.Time
	done    chan struct{} // closed when nothing more will come
	proceed chan struct{} // closed when the other side said 100, or answered at once

	mu        sync.Mutex
	status    int // 0: none came
	header    fields
	interim   []string // "103 Link: …" for each line of each interim answer; "100" when it has none
	trailer   fields
	body      []byte
	firstByte time.Duration // of the final answer
	total     time.Duration
	err       error // why the end was not a clean one
}

// send writes the request on a connection of its own and returns at once. The connection is not kept: what one
// client leaves on it must never be another's.
func send(address string, a ask) *answer {
	w := &answer{started: time.Now(), done: make(chan struct{}), proceed: make(chan struct{})}
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		w.finish(err)
		return w
	}
	w.conn = conn
	go w.write(a)
	go w.read(a.method)
	return w
}

// leave closes the connection, as a client does that no longer wants its answer.
func (w *answer) leave() {
	if w.conn != nil {
		w.conn.Close()
	}
}

func (w *answer) wait(limit time.Duration) error {
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case <-w.done:
		return nil
	case <-patience.C:
		return fmt.Errorf("no whole answer within %v; so far: %s", limit, w)
	}
}

func (w *answer) write(a ask) {
	head := a.method + " " + a.target + " HTTP/1.1\r\n" + a.header.lines()
	switch {
	case a.framing == "chunked":
		head += "Transfer-Encoding: chunked\r\n"
	case a.body != "" || a.framing == "length":
		head += "Content-Length: " + strconv.Itoa(len(a.body)) + "\r\n"
	}
	if _, err := io.WriteString(w.conn, head+"\r\n"); err != nil {
		return // the reader sees why
	}
	if _, waits := a.header.get("Expect"); waits {
		<-w.proceed
	}
	half := len(a.body) / 2
	io.WriteString(w.conn, framed(a.framing, a.body[:half]))
	if a.hold != nil {
		select {
		case <-a.hold:
		case <-w.done:
		}
	}
	io.WriteString(w.conn, framed(a.framing, a.body[half:]))
	if a.framing == "chunked" {
		io.WriteString(w.conn, "0\r\n\r\n")
	}
}

func framed(framing, part string) string {
	if framing != "chunked" || part == "" {
		return part
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
}

func (w *answer) read(method string) {
	in := bufio.NewReader(w.conn)
	for {
		_, err := in.Peek(1)
		arrived := time.Since(w.started)
		if err != nil {
			w.finish(err)
			return
		}
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			w.finish(err)
			return
		}
		if res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols {
			w.between(res)
			continue
		}
		w.mu.Lock()
		w.status, w.header, w.firstByte = res.StatusCode, fieldsOf(res.Header), arrived
		w.mu.Unlock()
		body := io.Reader(res.Body)
		if res.StatusCode == http.StatusSwitchingProtocols {
			body = in
		}
		err = w.take(body)
		w.mu.Lock()
		w.trailer = fieldsOf(res.Trailer)
		w.mu.Unlock()
		w.finish(err)
		return
	}
}

// between notes an interim answer (RFC 9110 §15.2).
func (w *answer) between(res *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	code := strconv.Itoa(res.StatusCode)
	if len(res.Header) == 0 {
		w.interim = append(w.interim, code)
	}
	for _, line := range fieldsOf(res.Header) {
		w.interim = append(w.interim, code+" "+line.name+": "+line.value)
	}
	if res.StatusCode == http.StatusContinue {
		w.letBodyGo()
	}
}

func (w *answer) letBodyGo() {
	select {
	case <-w.proceed:
	default:
		close(w.proceed)
	}
}

func (w *answer) take(body io.Reader) error {
	buffer := make([]byte, 16<<10)
	for {
		n, err := body.Read(buffer)
		w.mu.Lock()
		w.body = append(w.body, buffer[:n]...)
		w.mu.Unlock()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *answer) finish(err error) {
	w.mu.Lock()
	w.err, w.total = err, time.Since(w.started)
	w.letBodyGo()
	w.mu.Unlock()
	w.leave()
	close(w.done)
}

// see reads one thing that a check can name: a header, or body, size, interim, trailer:Name.
func (w *answer) see(name string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case name == "body":
		return string(w.body), true
	case name == "size":
		return strconv.Itoa(len(w.body)), true
	case name == "interim":
		return strings.Join(w.interim, "\n"), len(w.interim) > 0
	case strings.HasPrefix(name, "trailer:"):
		return w.trailer.get(strings.TrimPrefix(name, "trailer:"))
	}
	return w.header.get(name)
}

func (w *answer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		return fmt.Sprintf("no answer (%v)", w.err)
	}
	body := string(w.body)
	if len(body) > 200 {
		body = fmt.Sprintf("%s… (%d bytes)", body[:200], len(body))
	}
	end := "under way"
	select {
	case <-w.done:
		end = "clean end"
		if w.err != nil {
			end = "cut: " + w.err.Error()
		}
	default:
	}
	return fmt.Sprintf("%d\n%s\n%s\n(%s)", w.status, w.header.lines(), body, end)
}

// whole is the answer once it has come to a clean end.
func (w *answer) whole(limit time.Duration) error {
	if err := w.wait(limit); err != nil {
		return err
	}
	return w.err
}
