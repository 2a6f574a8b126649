package config

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/policy"
)

// checker asks each room what it thinks of its part, and finds the line of what it says.
type checker struct {
	set   places
	wrong Problems
}

// check finds what is wrong with a Config that is to serve.
func (c *Config) check(set places) Problems {
	k := &checker{set: set}
	if k.stated(c); c.isIdle() {
		k.complain("", "no upstreams and no routes; to start, name one: weir serve --upstream http://127.0.0.1:9000")
	}
	return k.wrong
}

func (c *Config) isIdle() bool { return len(c.Upstreams) == 0 && len(c.Routes) == 0 }

// stated is about what is there, and minds nothing that is not.
func (k *checker) stated(c *Config) {
	k.listener("listen", c.Listen)
	if c.Peers.Listen != "off" {
		k.listener("peers.listen", c.Peers.Listen)
	}
	if c.Peers.Advertise != "" {
		k.listener("peers.advertise", c.Peers.Advertise)
	}
	k.room("admin", reflect.TypeOf(c.Admin), c.Admin.Validate())
	if c.Drain.LameDuck > c.Drain.Timeout {
		k.complain("drain.lame_duck", "is part of drain.timeout (%s) and cannot be longer", formatDuration(c.Drain.Timeout))
	}
	if c.Store.Kind != "memory" && c.Store.Kind != "redis" {
		k.complain("store.kind", "%q is neither memory nor redis", c.Store.Kind)
	}
	k.room("store", reflect.TypeOf(c.Store), c.MemoryStore().Validate())
	k.room("store.redis", reflect.TypeOf(c.Store.Redis), c.Store.Redis.Validate())
	k.room("telemetry", reflect.TypeOf(c.Telemetry), c.Telemetry.Validate())
	if !c.isIdle() {
		k.upstreams(c)
		k.routes(c)
	}
}

func (k *checker) complain(key, format string, args ...any) {
	p := k.set.find(key)
	p.Key, p.Text = key, fmt.Sprintf(format, args...)
	if !slices.Contains(k.wrong, p) { // several routes inherit one slip
		k.wrong = append(k.wrong, p)
	}
}

func (k *checker) listener(key, address string) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		k.complain(key, "%q is no address to listen on: write :8080 or 127.0.0.1:8080", address)
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		k.complain(key, "%q is no port: write a number up to 65535", port)
	}
}

// prefix is how upstream says which entry it means.
var prefix = regexp.MustCompile(`^upstream "[^"]*": `)

// room files what a room's Validate or New found: each fault begins with its key.
func (k *checker) room(path string, t reflect.Type, err error) {
	for _, fault := range each(err) {
		text := prefix.ReplaceAllString(fault.Error(), "")
		key, rest := leadingKey(text, t)
		k.complain(join(path, key), "%s", rest)
	}
}

func each(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// leadingKey cuts the key off a fault's text; "" when it begins with none of t's.
func leadingKey(text string, t reflect.Type) (key, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("._[]", r))
	})
	if end <= 0 {
		return "", text
	}
	first, _, _ := strings.Cut(text[:end], ".")
	first, _, _ = strings.Cut(first, "[")
	if _, ok := fieldOf(t, first); !ok {
		return "", text
	}
	return text[:end], strings.TrimLeft(text[end:], ": ")
}

func (k *checker) upstreams(c *Config) {
	if len(c.Upstreams) == 0 {
		k.complain("upstreams", "routes need one: write - {name: api, url: \"http://127.0.0.1:9000\"}")
	}
	first := map[string]int{}
	for i, u := range c.Upstreams {
		at := fmt.Sprintf("upstreams[%d]", i)
		if u.Name == "" {
			k.complain(at+".name", "is missing: routes call an upstream by its name")
		}
		k.once(at+".name", u.Name, first)
		k.room(at, reflect.TypeOf(u), u.Validate())
	}
}

// once: a name is the only one of its kind; first has the lines of those before it.
func (k *checker) once(key, name string, first map[string]int) {
	if line, twice := first[name]; twice {
		k.complain(key, "%q is the one of line %d: names must differ", name, line)
	} else if name != "" {
		first[name] = k.set.find(key).Line
	}
}

// routes asks policy, which knows a whole route: what it left out stands there as it was inherited.
func (k *checker) routes(c *Config) {
	if len(c.Routes) == 0 {
		k.complain("routes", "none: write - {name: all, upstream: %s}", c.Upstreams[0].Name)
		return
	}
	rules, err := policy.New(c.Policy())
	for _, fault := range each(err) {
		p := policy.Problem{}
		if !errors.As(fault, &p) {
			k.complain("routes", "%s", fault)
			continue
		}
		k.complain(k.keyOf(p), "%s", p.Text)
	}
	k.patience(c)
	k.warm(c, rules)
}

// warm asks each job what it thinks of itself and, where the routes are right, whether they serve its pages.
func (k *checker) warm(c *Config, rules *policy.Policy) {
	first := map[string]int{}
	for i, j := range c.Warm {
		at := fmt.Sprintf("warm[%d]", i)
		k.once(at+".name", j.Name, first)
		k.room(at, reflect.TypeOf(j), j.Validate())
		if rules != nil {
			k.room(at, reflect.TypeOf(j), j.Served(rules))
		}
	}
}

// keyOf is where what is wrong with a route is to be mended.
func (k *checker) keyOf(p policy.Problem) string {
	key := fmt.Sprintf("routes[%d].%s", p.Route, p.Key)
	_, own := k.set[key]
	_, inherited := k.set[p.Key]
	if !own && inherited && strings.HasPrefix(p.Key, "cache.") {
		return p.Key // in the top-level cache
	}
	return key
}

// patience: a stale answer that is due when the upstream has been given up already never comes.
func (k *checker) patience(c *Config) {
	for i, r := range c.Routes {
		soft := r.Cache.SoftTimeout
		for _, u := range c.Upstreams {
			if u.Name == r.Upstream && soft > 0 && soft >= u.ResponseTimeout {
				k.complain(k.keyOf(policy.Problem{Route: i, Key: "cache.soft_timeout"}),
					"%s is no shorter than response_timeout (%s) of upstream %q: write less", formatDuration(soft), formatDuration(u.ResponseTimeout), u.Name)
			}
		}
	}
}
