package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// judge runs trials of the public suite through whatever listens at its addresses.
type judge struct {
	addresses []string
	upstream  *suiteUpstream
	pause     time.Duration // what pause_after waits
}

// verdict is how a trial ended.
type verdict struct {
	Kind    string
	Outcome outcome
	Why     string // of a failure
}

type outcome string

const (
	pass    outcome = "pass"
	fail    outcome = "fail"
	setup   outcome = "setup"   // what it builds on did not work
	depends outcome = "depends" // a trial that it depends on did not pass
)

// unmet is a check that failed.
type unmet struct {
	outcome outcome
	why     string
}

func (u unmet) Error() string { return u.why }

// together is how many trials run at once. Most of the time they pause; but more than an upstream's slots and its queue
// hold would be refused.
const together = 200

// run tries all of them.
func (j *judge) run(trials []trial) map[string]verdict {
	verdicts := make(map[string]verdict, len(trials))
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, together)
	for _, t := range trials {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			v := verdict{Kind: t.Kind, Outcome: pass}
			if err := j.try(t); err != nil {
				v.Outcome, v.Why = fail, err.Error()
				if u := (unmet{}); errors.As(err, &u) {
					v.Outcome = u.outcome
				}
			}
			mu.Lock()
			verdicts[t.ID] = v
			mu.Unlock()
		})
	}
	running.Wait()
	for _, t := range trials {
		if other := broken(t, trials, verdicts); other != "" && verdicts[t.ID].Outcome == pass {
			verdicts[t.ID] = verdict{t.Kind, depends, "depends on " + other}
		}
	}
	return verdicts
}

// broken is the first trial that this one depends on, also by way of others, and that did not pass; "": none.
func broken(t trial, trials []trial, verdicts map[string]verdict) string {
	for _, id := range t.DependsOn {
		i := slices.IndexFunc(trials, func(o trial) bool { return o.ID == id })
		if i < 0 {
			continue
		}
		if verdicts[id].Outcome != pass {
			return id
		}
		if other := broken(trials[i], trials, verdicts); other != "" {
			return other
		}
	}
	return ""
}

func (j *judge) try(t trial) error {
	h := j.upstream.hear(uuid(), t.Steps)
	var answers []*answer
	for i, s := range t.Steps {
		a, err := j.ask(h, t.ID, answers)
		if err != nil {
			return fmt.Errorf("request %d: %w", i+1, err)
		}
		answers = append(answers, a)
		if err := s.checkAnswer(h.id, i+1, a); err != nil {
			return err
		}
		if s.PauseAfter {
			<-time.After(j.pause)
		}
	}
	return h.checkSeen(answers)
}

// uuid is as long as the suite's ids: some definitions give the length of a body that is the id.
func uuid() string {
	b := make([]byte, 16)
	rand.Read(b)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ask sends the next step's request and waits for the whole answer. No answer at all is an error.
func (j *judge) ask(h *hearing, id string, before []*answer) (*answer, error) {
	s := h.steps[len(before)]
	now := time.Now()
	if s.MagicIMS && len(before) > 0 {
		now = before[len(before)-1].moment("Server-Now", now)
	}
	a := ask{method: http.MethodGet, target: s.path(h.id)}
	if s.Method != "" {
		a.method = s.Method
	}
	if s.Body != nil {
		a.body = *s.Body
	}
	if a.method == http.MethodPost || a.method == http.MethodPut {
		a.framing = "length"
	}
	a.header = fields{{"Host", "weir.test"}, {"Pragma", "foo"}, {"Cache-Control", "nothing-to-see-here"}}
	a.header = append(a.header, s.resolve(s.Header, now)...)
	a.header = append(a.header, field{"Test-ID", id}, field{"Req-Num", strconv.Itoa(len(before) + 1)})
	got, err := j.fetch(a, len(before))
	for hops := 0; err == nil && hops < 5 && s.Redirect != "manual" && slices.Contains([]int{301, 302, 303, 307, 308}, got.status); hops++ {
		location, there := got.see("Location")
		if !there || !strings.HasPrefix(location, "/") {
			break
		}
		a.target = location
		got, err = j.fetch(a, len(before))
	}
	return got, err
}

// fetch asks the replica whose turn it is: a trial goes round all of them.
func (j *judge) fetch(a ask, turn int) (*answer, error) {
	got := send(j.addresses[turn%len(j.addresses)], a)
	if err := got.whole(30 * time.Second); err != nil {
		return nil, err
	}
	return got, nil
}

// moment reads a header of milliseconds.
func (w *answer) moment(name string, otherwise time.Time) time.Time {
	value, _ := w.see(name)
	if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.UnixMilli(ms)
	}
	return otherwise
}

// test makes a failure of the named member: of the set-up, when the definition says so.
func (s step) test(member, format string, args ...any) error {
	u := unmet{fail, fmt.Sprintf(format, args...)}
	if s.Setup || slices.Contains(s.SetupTests, member) {
		u.outcome = setup
	}
	return u
}

// checkAnswer is everything that the client can see of the answer to request n.
func (s step) checkAnswer(id string, n int, a *answer) error {
	numbers, _ := a.see("Request-Numbers")
	seen := strings.Fields(numbers)
	if slices.Sort(seen); len(slices.Compact(slices.Clone(seen))) != len(seen) {
		return s.test("response_headers", "request %d was retried: %s", n, numbers)
	}
	for _, check := range []func() error{
		func() error { return s.checkType(n, a) },
		func() error { return s.checkStatus(n, a) },
		func() error { return s.checkHeader(n, a) },
		func() error { return s.checkInterim(n, a) },
		func() error { return s.checkBody(id, n, a) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s step) checkType(n int, a *answer) error {
	text, there := a.see("Server-Request-Count")
	count, _ := strconv.Atoi(text)
	switch {
	case s.WantType == "cached" && !(there && count < n) && !(a.status == http.StatusNotModified && !there):
		return s.test("expected_type", "answer %d does not come from the cache", n)
	case s.WantType == "not_cached" && count != n:
		return s.test("expected_type", "answer %d comes from the cache", n)
	}
	return nil
}

func (s step) checkStatus(n int, a *answer) error {
	member, want := "response_status", http.StatusOK
	switch {
	case s.WantStatus.given && s.WantStatus.value == nil:
		return nil
	case s.WantStatus.given:
		member, want = "expected_status", *s.WantStatus.value
	case s.Status != nil:
		want = s.Status.code
	}
	if a.status != want {
		return s.test(member, "answer %d has status %d, not %d", n, a.status, want)
	}
	return nil
}

func (s step) checkHeader(n int, a *answer) error {
	base := a.moment("Server-Now", time.Now())
	for _, e := range s.WantHeader {
		got, there := a.see(e.name)
		ok := there
		switch {
		case e.value == nil:
		case *e.value == "=":
			other, _ := a.see(fmt.Sprint(e.third))
			ok = there && got == other
		case *e.value == ">":
			number, err := strconv.ParseFloat(got, 64)
			least, isNumber := e.third.(float64)
			ok = err == nil && isNumber && number > least
		default:
			ok = there && got == s.at(e, base)
		}
		if !ok {
			return s.test("expected_response_headers", "answer %d has %s: %q, not %s", n, e.name, got, e)
		}
	}
	for _, e := range s.WantHeaderMissing {
		got, there := a.see(e.name)
		if there && (e.value == nil || strings.Contains(got, *e.value)) {
			return s.test("expected_response_headers_missing", "answer %d has %s: %q", n, e.name, got)
		}
	}
	return nil
}

// String is how a wanted header reads in a message.
func (e entry) String() string {
	if e.value == nil {
		return "any"
	}
	if e.third != nil {
		return fmt.Sprintf("%s %v", *e.value, e.third)
	}
	return strconv.Quote(*e.value)
}

func (s step) checkInterim(n int, a *answer) error {
	got, _ := a.see("interim")
	lines := strings.Split(got, "\n")
	for _, i := range s.WantInterim {
		want := []string{strconv.Itoa(i.code)}
		if len(i.header) > 0 {
			want = nil
		}
		for _, e := range i.header {
			want = append(want, fmt.Sprintf("%d %s: %s", i.code, http.CanonicalHeaderKey(e.name), *e.value))
		}
		for _, line := range want {
			if !slices.Contains(lines, line) {
				return s.test("expected_interim_responses", "before answer %d %q did not come; %q did", n, line, got)
			}
		}
	}
	return nil
}

func (s step) checkBody(id string, n int, a *answer) error {
	member, want := "response_body", s.body(id)
	switch {
	case s.CheckBody.value != nil && !*s.CheckBody.value:
		return nil
	case s.WantText.given && s.WantText.value == nil:
		return nil
	case s.WantText.given:
		member, want = "expected_response_text", string(*s.WantText.value)
	case s.Method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		return nil
	}
	if got, _ := a.see("body"); got != want {
		return s.test(member, "answer %d has the body %q, not %q", n, got, want)
	}
	return nil
}

// checkSeen is everything that the upstream saw. A request expected to be cached is not seen there, the others are in
// order.
func (h *hearing) checkSeen(answers []*answer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := 0
	for i, s := range h.steps {
		if s.WantType == "cached" {
			continue
		}
		for next < len(h.seen) && h.seen[next].number <= i && h.steps[h.seen[next].number-1].WantType == "cached" {
			next++ // a refresh behind a cached answer
		}
		var seen *sighting
		if next < len(h.seen) {
			seen = &h.seen[next]
		}
		next++
		if err := s.checkSighting(i+1, seen); err != nil {
			return err
		}
		if seen == nil || seen.number != i+1 {
			continue // this answer did not come from there
		}
		for _, due := range seen.due {
			want, _ := seen.due.get(due.name)
			if got, _ := answers[i].see(due.name); got != strings.TrimSpace(want) {
				return s.test("response_headers", "answer %d has %s: %q, and the upstream sent %q", i+1, due.name, got, want)
			}
		}
	}
	return nil
}

// checkSighting judges the request that the upstream saw as number n; nil: none.
func (s step) checkSighting(n int, seen *sighting) error {
	validator := map[string]string{"etag_validated": "If-None-Match", "lm_validated": "If-Modified-Since"}[s.WantType]
	if seen == nil {
		if s.WantType != "" || s.WantRequest != nil || s.WantRequestMissing != nil || s.WantMethod != "" {
			return s.test("expected_type", "request %d did not reach the upstream", n)
		}
		return nil
	}
	if s.WantType == "not_cached" && seen.number != n {
		return s.test("expected_type", "request %d did not reach the upstream, %d did", n, seen.number)
	}
	if _, there := seen.header.get(validator); validator != "" && !there {
		return s.test("expected_type", "request %d reached the upstream without %s", n, validator)
	}
	for _, e := range s.WantRequest {
		got, there := seen.header.get(e.name)
		if !there || e.value != nil && got != *e.value {
			return s.test("expected_request_headers", "request %d reached the upstream with %s: %q, not %s", n, e.name, got, e)
		}
	}
	for _, e := range s.WantRequestMissing {
		got, there := seen.header.get(e.name)
		if there && (e.value == nil || got == *e.value) {
			return s.test("expected_request_headers_missing", "request %d reached the upstream with %s: %q", n, e.name, got)
		}
	}
	if s.WantMethod != "" && seen.method != s.WantMethod {
		return s.test("expected_method", "request %d reached the upstream as %s, not %s", n, seen.method, s.WantMethod)
	}
	return nil
}
