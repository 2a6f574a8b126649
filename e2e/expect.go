package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rsc.io/script"
)

const (
	pollLimit   = 5 * time.Second
	answerLimit = 30 * time.Second // longer than a lease that must run out first
)

func (w *world) until(args []string) error {
	limit, err := time.ParseDuration(args[0])
	if err != nil {
		limit = pollLimit
	} else {
		args = args[1:]
	}
	return poll(limit, func() error { return w.look(args) })
}

// expect differs from one look only in that it waits for clients to have their whole answers.
func (w *world) expect(args []string) error {
	names := args[:1]
	if args[0] == "same" || args[0] == "different" {
		names = args[1:]
	}
	for _, name := range names {
		if _, err := w.clients(name); err != nil {
			continue
		}
		if err := w.each(name, func(a *answer) error { return a.wait(answerLimit) }); err != nil {
			return err
		}
	}
	return w.look(args)
}

// look checks things as they are now.
func (w *world) look(args []string) error {
	if len(args) < 2 {
		return permanent{script.ErrUsage}
	}
	switch {
	case args[0] == "upstream":
		return w.lookUpstream(args[1:])
	case args[0] == "redis":
		return w.lookRedis(args[1:])
	case args[0] == "same" || args[0] == "different":
		return w.compare(args[0], args[1:])
	case w.replicas[args[0]] != nil && args[1] == "asking":
		return w.lookAsking(args[0], args[2:])
	case w.replicas[args[0]] != nil:
		return w.lookReplica(w.replicas[args[0]], args[1:])
	}
	return w.each(args[0], func(a *answer) error { return lookAnswer(a, args[1], args[2:]) })
}

// lookAnswer wants an answer to be whole, or with the word cut to have ended before its time. Status - is no answer.
func lookAnswer(a *answer, status string, checks []string) error {
	cut := slices.Contains(checks, "cut")
	checks = slices.DeleteFunc(slices.Clone(checks), func(c string) bool { return c == "cut" })
	a.mu.Lock()
	got, broken := a.status, a.err
	a.mu.Unlock()
	err := hold(checks, a.see)
	switch {
	case status == "-" && got == 0 && broken != nil:
		return nil
	case strconv.Itoa(got) != status:
		err = fmt.Errorf("status %d, not %s", got, status)
	case broken != nil && !cut:
		err = fmt.Errorf("it was cut: %w", broken)
	case broken == nil && cut:
		err = errors.New("it was not cut")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, a)
	}
	return nil
}

func (w *world) lookUpstream(args []string) error {
	if len(args) < 2 {
		return permanent{script.ErrUsage}
	}
	w.upstream.mu.Lock()
	defer w.upstream.mu.Unlock()
	p := w.upstream.page(args[0])
	if err := count(float64(p.asked), args[1]); err != nil {
		return fmt.Errorf("requests for %s: %w", args[0], err)
	}
	return hold(args[2:], p.see)
}

func (w *world) lookRedis(args []string) error {
	if w.redis == nil || len(args) != 2 {
		return permanent{script.ErrUsage}
	}
	switch args[0] {
	case "asked":
		if err := count(float64(w.redis.asked()), args[1]); err != nil {
			return fmt.Errorf("commands for Redis: %w", err)
		}
		return nil
	case "lacks":
	default:
		return permanent{script.ErrUsage}
	}
	if w.redis.has(args[1]) {
		return permanent{fmt.Errorf("a replica has sent %q to Redis", args[1])}
	}
	return nil
}

// lookReplica: its log, its exit code, an answer of its admin port, or a counter.
func (w *world) lookReplica(r *replica, args []string) error {
	see := func(string) (string, bool) { return r.log(), true }
	switch {
	case len(args) == 1 && strings.HasPrefix(args[0], "log"):
		return hold(args, see)
	case len(args) != 2:
		return permanent{script.ErrUsage}
	case args[0] == "exit":
		code, err := r.exit()
		if err != nil {
			return err
		}
		return count(float64(code), args[1])
	case strings.HasPrefix(args[0], "/"):
		res, err := http.Get("http://" + r.admin + args[0])
		if err != nil {
			return err
		}
		res.Body.Close()
		return count(float64(res.StatusCode), args[1])
	}
	n, err := r.counter(args[0])
	if err != nil {
		return err
	}
	if err := count(n, args[1]); err != nil {
		return fmt.Errorf("%s on %s: %w", args[0], r.name, err)
	}
	return nil
}

// lookAsking sends a request of its own each time that it looks, and judges the answer to it.
func (w *world) lookAsking(replica string, args []string) error {
	if len(args) < 3 {
		return permanent{script.ErrUsage}
	}
	a, err := w.parseAsk(args[0], args[1], nil)
	if err != nil {
		return err
	}
	got := send(w.replicas[replica].listen, a)
	if err := got.wait(answerLimit); err != nil {
		return err
	}
	return lookAnswer(got, args[2], args[3:])
}

// compare wants all bodies to be the same, or no two.
func (w *world) compare(how string, names []string) error {
	seen, all := map[string]string{}, 0
	for _, name := range names {
		found, err := w.clients(name)
		if err != nil {
			return err
		}
		for each, a := range found {
			body, _ := a.see("body")
			if other, there := seen[body]; there && how == "different" {
				return fmt.Errorf("%s and %s have the same body: %q", other, each, body)
			}
			seen[body] = each
			all++
		}
	}
	if how == "same" && len(seen) > 1 {
		return fmt.Errorf("%d answers have %d different bodies", all, len(seen))
	}
	return nil
}

// sight reads one thing by the name that a check gives it, and tells whether it is there.
type sight func(name string) (string, bool)

// hold tells which of the checks does not hold. A check is one word:
//
//	Name         it is there            !Name         it is not
//	Name=value   it is exactly that     Name!=value   it is not that
//	Name~regexp  it matches             Name!~regexp  it does not
func hold(checks []string, see sight) error {
	for _, check := range checks {
		name, want := parseCheck(check)
		negated := strings.Contains(name, "!")
		name = strings.Trim(name, "!")
		value, there := see(name)
		ok := there
		switch {
		case strings.HasPrefix(want, "="):
			ok = there && value == want[1:]
		case strings.HasPrefix(want, "~"):
			pattern, err := regexp.Compile(want[1:])
			if err != nil {
				return permanent{fmt.Errorf("%s: %w", check, err)}
			}
			ok = there && pattern.MatchString(value)
		}
		if ok == negated {
			return fmt.Errorf("%s does not hold: it is %q", check, value)
		}
	}
	return nil
}

func parseCheck(check string) (name, want string) {
	if at := strings.IndexAny(check, "=~"); at >= 0 {
		return check[:at], check[at:]
	}
	return check, ""
}

// count compares with N, >=N or <=N.
func count(got float64, want string) error {
	number := strings.TrimLeft(want, "<>=")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return permanent{fmt.Errorf("%q is no number: write N, >=N or <=N", want)}
	}
	ok := got == n
	switch strings.TrimSuffix(want, number) {
	case ">=":
		ok = got >= n
	case "<=":
		ok = got <= n
	}
	if !ok {
		return fmt.Errorf("it is %v, not %s", got, want)
	}
	return nil
}
