package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// suiteUpstream answers the requests of running trials by their definitions.
type suiteUpstream struct {
	server

	mu      sync.Mutex
	running map[string]*hearing
}

// hearing is what the upstream knows of one running trial.
type hearing struct {
	id    string
	steps []step

	mu   sync.Mutex
	seen []sighting
	sent map[int]fields // by the step's number: the answer's own headers as they were last sent
}

// sighting is one request that reached the upstream, and what of its answer must reach the client.
type sighting struct {
	number int // which step, by its Req-Num
	method string
	header fields
	due    fields
}

func newSuiteUpstream() (*suiteUpstream, error) {
	u := &suiteUpstream{running: map[string]*hearing{}}
	u.answer = u.reply
	return u, u.up()
}

func (u *suiteUpstream) hear(id string, steps []step) *hearing {
	h := &hearing{id: id, steps: steps, sent: map[int]fields{}}
	u.mu.Lock()
	u.running[id] = h
	u.mu.Unlock()
	return h
}

func (u *suiteUpstream) reply(v *visit) error {
	id, _, _ := strings.Cut(strings.TrimPrefix(v.URL.Path, "/test/"), "/")
	u.mu.Lock()
	h := u.running[id]
	u.mu.Unlock()
	number, _ := strconv.Atoi(v.Header.Get("Req-Num"))
	if h == nil || number < 1 || number > len(h.steps) {
		_, err := io.WriteString(v.conn, "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")
		return err
	}
	if _, err := io.Copy(io.Discard, v.Body); err != nil {
		return err
	}
	s := h.steps[number-1]
	select {
	case <-time.After(time.Duration(s.Pause * float64(time.Second))):
	case <-u.gone():
	}
	r := h.decide(v, number)
	if s.Disconnect {
		return errHangUp
	}
	for _, i := range s.Interim {
		fmt.Fprintf(v.conn, "HTTP/1.1 %d %s\r\n%s\r\n", i.code, http.StatusText(i.code), s.resolve(i.header, time.Now()).lines())
	}
	return r.write(v.conn, v.Method)
}

// ruling is the answer to one request.
type ruling struct {
	status phrase
	added  fields // by the suite's rules
	own    fields // by the definition
	body   string
}

// decide makes the answer and notes the request, which counts even if no answer follows.
func (h *hearing) decide(v *visit, number int) ruling {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, s := time.Now(), h.steps[number-1]
	r := ruling{status: h.status(v, number), own: s.resolve(s.Reply, now), body: s.body(h.id)}
	var due fields
	for i, e := range s.Reply {
		if s.MagicLocations && (strings.EqualFold(e.name, "Location") || strings.EqualFold(e.name, "Content-Location")) {
			r.own[i].value = strings.TrimSuffix(v.URL.Path+"/"+r.own[i].value, "/")
		}
		if !e.unchecked() {
			due = append(due, r.own[i])
		}
	}
	h.sent[number] = r.own
	h.seen = append(h.seen, sighting{number, v.Method, fieldsOf(v.Header), due})
	var numbers []string
	for _, seen := range h.seen {
		numbers = append(numbers, strconv.Itoa(seen.number))
	}
	r.added = fields{
		{"Server-Base-Url", v.URL.Path},
		{"Server-Request-Count", strconv.Itoa(len(h.seen))},
		{"Client-Request-Count", strconv.Itoa(number)},
		{"Request-Numbers", strings.Join(numbers, " ")},
		{"Server-Now", strconv.FormatInt(now.UnixMilli(), 10)},
	}
	if _, given := r.own.get("Content-Type"); !given {
		r.added = append(r.added, field{"Content-Type", "text/plain"})
	}
	return r
}

// status is the scripted one, but a step that expects validation gets 304 for the right validator and 999 for none.
func (h *hearing) status(v *visit, number int) phrase {
	s := h.steps[number-1]
	if strings.HasSuffix(s.WantType, "validated") && number > 1 {
		before, asked := h.sent[number-1], h.steps[number-2]
		if before == nil {
			before = asked.resolve(asked.Reply, time.Now())
		}
		for _, pair := range [][2]string{{"ETag", "If-None-Match"}, {"Last-Modified", "If-Modified-Since"}} {
			if mine, given := before.get(pair[0]); given && v.Header.Get(pair[1]) == mine {
				return phrase{http.StatusNotModified, "Not Modified"}
			}
		}
		return phrase{999, "304 Not Generated"}
	}
	if s.Status != nil {
		return *s.Status
	}
	return phrase{http.StatusOK, "OK"}
}

// write sends as much of the body as a Content-Length in the definition says, since a surplus would be taken for the
// next answer. A definition that frames its message itself ends the connection.
func (r ruling) write(conn io.Writer, method string) error {
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\n%s%s", r.status.code, r.status.text, r.added.lines(), r.own.lines())
	length, framed := r.own.get("Content-Length")
	if n, err := strconv.Atoi(length); err == nil && n < len(r.body) {
		r.body = r.body[:n]
	}
	if _, coded := r.own.get("Transfer-Encoding"); coded {
		framed = true
	}
	if r.status.code == http.StatusNoContent || r.status.code == http.StatusNotModified {
		r.body = ""
	} else if !framed {
		head += "Content-Length: " + strconv.Itoa(len(r.body)) + "\r\n"
	}
	if method == http.MethodHead {
		r.body = ""
	}
	_, err := io.WriteString(conn, head+"\r\n"+r.body)
	if err == nil && framed {
		err = errHangUp
	}
	return err
}
