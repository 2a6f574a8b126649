package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"rsc.io/script"
)

// verb is one word of the scenario language. README.md has the page for those who write scenarios.
type verb struct {
	args, summary string
	least         int // arguments that it needs
	run           func(args []string) error
}

func (w *world) verbs() map[string]script.Cmd {
	commands := map[string]script.Cmd{}
	for name, v := range map[string]verb{
		"replica":  {"name...", "start processes of ours; two or more share a Redis", 1, w.startReplicas},
		"stop":     {"replica", "SIGTERM", 1, w.signal(syscall.SIGTERM)},
		"kill":     {"replica", "SIGKILL", 1, w.signal(syscall.SIGKILL)},
		"pause":    {"replica", "SIGSTOP", 1, w.signal(syscall.SIGSTOP)},
		"continue": {"replica", "SIGCONT", 1, w.signal(syscall.SIGCONT)},
		"upstream": {"path status word... | down | up", "script the next answer of a path", 1, w.scriptUpstream},
		"client":   {"name[*n] replica[,replica] method path word...", "send a request and go on", 4, w.ask},
		"send":     {"client text", "send more on a client's connection", 2, w.sendMore},
		"leave":    {"client", "close a client's connection", 1, w.leave},
		"release":  {"gate", "let everybody through a gate", 1, w.release},
		"settle":   {"", "until no replica fetches anything any more", 0, w.settle},
		"purge":    {"replica path|tag=…|prefix=…|host=…|route=…|all [soft]", "purge through the admin port", 2, w.purge},
		"warm":     {"replica job", "bring a job's pages anew through the admin port, and wait until all are", 2, w.warm},
		"redis":    {"start | kill | flush | mark | (cut | pause | blackhole | heal) [replica...]", "the Redis, and the lines to it", 1, w.doRedis},
		"expect":   {"what...", "wait for an answer and check it, or check a count now", 2, w.expect},
		"until":    {"[limit] what...", "the same, tried until it holds", 2, w.until},
	} {
		commands[name] = script.Command(script.CmdUsage{Summary: v.summary, Args: v.args},
			func(_ *script.State, args ...string) (script.WaitFunc, error) {
				if len(args) < v.least {
					return nil, script.ErrUsage
				}
				return nil, v.run(args)
			})
	}
	return commands
}

func (w *world) startReplicas(names []string) error {
	if len(names) > 1 && w.redis == nil {
		if err := w.doRedis([]string{"start"}); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := w.start(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) signal(s os.Signal) func([]string) error {
	return func(args []string) error {
		r, err := w.replica(args[0])
		if err != nil {
			return err
		}
		if err := r.signal(s); err != nil || s != syscall.SIGKILL {
			return err
		}
		_, err = r.exit()
		return err
	}
}

func (w *world) scriptUpstream(args []string) error {
	switch {
	case args[0] == "down":
		w.upstream.down()
		return nil
	case args[0] == "up":
		return w.upstream.up()
	case len(args) < 2:
		return script.ErrUsage
	}
	status, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	r, err := parseReply(status, args[2:])
	if err == nil {
		w.upstream.script(args[0], r)
	}
	return err
}

func parseReply(status int, words []string) (reply, error) {
	r := reply{status: status}
	for _, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		trailer, isTrailer := strings.CutPrefix(name, "trailer:")
		switch {
		case word == "chunked" || word == "close":
			r.framing = word
		case !assigned:
			return r, fmt.Errorf("%q: write Name=value, chunked or close", word)
		case name == "body":
			r.body = value
		case name == "size":
			n, err := strconv.Atoi(value)
			if err != nil {
				return r, err
			}
			r.body = filler(n)
		case name == "hold":
			r.hold = value
		case name == "holdbody":
			r.holdBody = value
		case name == "early":
			r.interim = append(r.interim, value)
		case name == "fault":
			if faults()[value] == "" {
				return r, fmt.Errorf("no fault is called %q", value)
			}
			r.fault = value
		case isTrailer:
			r.trailer = append(r.trailer, field{trailer, value})
		default:
			r.header = append(r.header, field{name, value})
		}
	}
	return r, nil
}

// filler is a body of n bytes in which no stretch of a block's length repeats, so that misplaced bytes show.
func filler(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(strconv.Itoa(i) + " ")
	}
	return b.String()[:n]
}

func (w *world) ask(args []string) error {
	name, replicas := args[0], strings.Split(args[1], ",")
	a, err := w.parseAsk(args[2], args[3], args[4:])
	if err != nil {
		return err
	}
	name, times, many := strings.Cut(name, "*")
	if !many {
		return w.askOnce(name, replicas[0], a)
	}
	n, err := strconv.Atoi(times)
	for i := 0; i < n && err == nil; i++ {
		err = w.askOnce(fmt.Sprint(name, i+1), replicas[i%len(replicas)], a)
	}
	return err
}

func (w *world) askOnce(name, replica string, a ask) error {
	if w.replicas[name] != nil || name == "upstream" || name == "redis" {
		return fmt.Errorf("%q cannot be the name of a client", name)
	}
	address, err := w.address(replica)
	if err == nil {
		w.answers[name] = send(address, a)
	}
	return err
}

func (w *world) parseAsk(method, target string, words []string) (ask, error) {
	a := ask{method: method, target: target}
	for _, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		switch {
		case word == "chunked":
			a.framing = word
		case !assigned:
			return a, fmt.Errorf("%q: write Name=value or chunked", word)
		case name == "body":
			a.body = value
		case name == "size":
			n, err := strconv.Atoi(value)
			if err != nil {
				return a, err
			}
			a.body = filler(n)
		case name == "pad":
			n, err := strconv.Atoi(value)
			if err != nil {
				return a, err
			}
			a.header = append(a.header, field{"X-Pad", strings.Repeat("x", n)})
		case name == "hold":
			w.upstream.mu.Lock()
			a.hold = w.upstream.gate(value)
			w.upstream.mu.Unlock()
		default:
			a.header = append(a.header, field{name, value})
		}
	}
	if _, there := a.header.get("Host"); !there { // the same on every replica, or they would share no key
		a.header = append(fields{{"Host", "weir.test"}}, a.header...)
	}
	return a, nil
}

func (w *world) sendMore(args []string) error {
	return w.each(args[0], func(a *answer) error {
		_, err := a.conn.Write([]byte(args[1]))
		return err
	})
}

func (w *world) leave(args []string) error {
	return w.each(args[0], func(a *answer) error { a.leave(); return nil })
}

// each does something with every answer under a name, and names the one that it fails for.
func (w *world) each(name string, do func(*answer) error) error {
	found, err := w.clients(name)
	if err != nil {
		return err
	}
	for each, a := range found {
		if err := do(a); err != nil {
			return fmt.Errorf("client %s: %w", each, err)
		}
	}
	return nil
}

func (w *world) release(args []string) error {
	w.upstream.release(args[0])
	return nil
}

// settle: a client can have its last byte before the answer is kept.
func (w *world) settle([]string) error {
	return poll(pollLimit, func() error {
		for _, r := range w.replicas {
			select {
			case <-r.gone:
				continue
			default:
			}
			if err := w.lookReplica(r, []string{"fills_running", "0"}); err != nil {
				return err
			}
		}
		return nil
	})
}

// purge is done when every replica that Redis reaches confirms it: on busy cores one may need longer than a purge waits
// for it.
func (w *world) purge(args []string) error {
	r, err := w.replica(args[0])
	if err != nil {
		return err
	}
	kind, value, named := strings.Cut(args[1], "=")
	order := map[string]any{"url": "http://weir.test" + args[1]}
	switch {
	case args[1] == "all":
		order = map[string]any{"all": true}
	case named && slices.Contains([]string{"tag", "prefix", "host", "route"}, kind):
		order = map[string]any{kind: value}
	}
	if len(args) > 2 {
		order[args[2]] = true
	}
	return poll(pollLimit, func() error {
		text, err := r.tell("/api/purge", order)
		if err != nil {
			return permanent{err}
		}
		var receipt struct{ Replicas int }
		if err := json.Unmarshal([]byte(text), &receipt); err != nil {
			return permanent{err}
		}
		if reached := w.reached(); w.redis != nil && receipt.Replicas < reached {
			return fmt.Errorf("%d of %d replicas confirm the purge", receipt.Replicas, reached)
		}
		return nil
	})
}

// warm fails with the first page that does.
func (w *world) warm(args []string) error {
	r, err := w.replica(args[0])
	if err != nil {
		return err
	}
	text, err := r.tell("/api/warm", map[string]any{"job": args[1]})
	for line := range strings.Lines(text) {
		var page struct{ URL, End, Why string }
		if err == nil {
			err = json.Unmarshal([]byte(line), &page)
		}
		if err == nil && page.End == "failed" {
			err = fmt.Errorf("%s: %s", page.URL, page.Why)
		}
	}
	return err
}

// reached counts the replicas that live and have a whole line to Redis.
func (w *world) reached() (n int) {
	for name, r := range w.replicas {
		select {
		case <-r.gone:
		default:
			if w.redis != nil && w.redis.lines[name].is(whole) {
				n++
			}
		}
	}
	return n
}

func (w *world) doRedis(args []string) (err error) {
	if w.redis == nil {
		if args[0] != "start" {
			return errors.New("there is no Redis yet: `redis start`")
		}
		w.redis, err = newRedis(w.dir)
		return err
	}
	switch args[0] {
	case "start":
		return w.redis.start()
	case "kill":
		return w.redis.kill()
	case "flush":
		return w.redis.say("FLUSHALL")
	case "cut":
		return w.redis.set(cut, args[1:])
	case "pause":
		return w.redis.set(paused, args[1:])
	case "blackhole":
		return w.redis.set(blackhole, args[1:])
	case "heal":
		return w.redis.set(whole, args[1:])
	case "mark":
		w.redis.mark()
	default:
		return script.ErrUsage
	}
	return nil
}
