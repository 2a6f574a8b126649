package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// world is what one scenario has set up.
type world struct {
	binary   string            // of the product
	dir      string            // for its files
	sections map[string]string // of the scenario's archive

	upstream *upstream
	redis    *redis
	replicas map[string]*replica
	answers  map[string]*answer
	past     []*replica // those whose name another process has by now
}

func newWorld(binary, dir string) (*world, error) {
	u, err := newUpstream()
	return &world{binary: binary, dir: dir, upstream: u, sections: map[string]string{},
		replicas: map[string]*replica{}, answers: map[string]*answer{}}, err
}

// close leaves no process behind, and tells what only shows at the end.
func (w *world) close() error {
	var errs []error
	for _, a := range w.answers {
		a.leave()
	}
	for _, r := range w.everyReplica() {
		errs = append(errs, r.close())
	}
	if w.redis != nil {
		w.redis.close()
	}
	w.upstream.close()
	return errors.Join(errs...)
}

func (w *world) everyReplica() []*replica {
	all := slices.Clone(w.past)
	for _, r := range w.replicas {
		all = append(all, r)
	}
	return all
}

// account is what one needs to read when a scenario has failed.
func (w *world) account() string {
	var b strings.Builder
	for _, r := range w.everyReplica() {
		fmt.Fprintf(&b, "--- replica %s\n%s", r.name, r.log())
	}
	for name, a := range w.answers {
		fmt.Fprintf(&b, "--- client %s\n%s\n", name, a)
	}
	w.upstream.mu.Lock()
	defer w.upstream.mu.Unlock()
	fmt.Fprintf(&b, "--- upstream was asked\n%s\n", strings.Join(w.upstream.log, "\n"))
	return b.String()
}

// start makes a process of ours and waits until it listens.
func (w *world) start(name string) error {
	r, err := w.process(name)
	if err != nil {
		return err
	}
	if before := w.replicas[name]; before != nil {
		w.past = append(w.past, before)
	}
	w.replicas[name] = r
	return r.await()
}

// process is a new one of ours, under a name that another may still have.
func (w *world) process(name string) (*replica, error) {
	if w.redis != nil {
		if _, err := w.redis.line(name); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(w.dir, name+".generated.yaml")
	if err := os.WriteFile(file, []byte(w.config(name)), 0o600); err != nil {
		return nil, err
	}
	return launch(name, w.binary, "serve", "--config", file)
}

// config is what a replica is told: what every scenario needs, the archive's section for all, its section for this one.
func (w *world) config(name string) string {
	text := `
listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
drain: { lame_duck: 0s, timeout: 10s }
peers: { listen: "127.0.0.1:0" }
upstreams: [{ name: upstream, url: "$UPSTREAM" }]
routes: [{ name: all, match: { path: /* }, upstream: upstream }]
`
	if w.redis != nil {
		text = overlay(text, `store: { kind: redis, redis: { addresses: [$REDIS] } }`)
	}
	for _, section := range []string{"config.yaml", name + ".yaml"} {
		text = overlay(text, w.sections[section])
	}
	return os.Expand(text, func(variable string) string {
		switch {
		case variable == "UPSTREAM":
			return "http://" + w.upstream.address
		case variable == "REDIS" && w.redis != nil:
			return w.redis.lines[name].address()
		}
		return "$" + variable
	})
}

// address is where a client finds a replica, or the upstream itself.
func (w *world) address(name string) (string, error) {
	if name == "upstream" {
		return w.upstream.address, nil
	}
	r, err := w.replica(name)
	if err != nil {
		return "", err
	}
	return r.listen, nil
}

func (w *world) replica(name string) (*replica, error) {
	r := w.replicas[name]
	if r == nil {
		return nil, permanent{fmt.Errorf("there is no replica %s: start it by `replica %[1]s`", name)}
	}
	return r, nil
}

// clients are the answers under a name: one, or for c* every c1, c2….
func (w *world) clients(name string) (map[string]*answer, error) {
	prefix, many := strings.CutSuffix(name, "*")
	found := map[string]*answer{}
	for each, a := range w.answers {
		if each == name || many && strings.HasPrefix(each, prefix) {
			found[each] = a
		}
	}
	if len(found) == 0 {
		return nil, permanent{fmt.Errorf("there is no client %s", name)}
	}
	return found, nil
}
