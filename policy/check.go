package policy

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Problem is one thing wrong with a Config.
type Problem struct {
	Route int    // which of Config.Routes
	Name  string // its name
	Key   string // path of the key in the route: "cache.jitter"
	Text  string // what is wrong, and what would be right
}

func (p Problem) Error() string { return fmt.Sprintf("route %q: %s: %s", p.Name, p.Key, p.Text) }

// checker gathers the problems of one route.
type checker struct {
	route    int
	name     string
	problems []error
}

func (c *checker) add(key, format string, args ...any) {
	c.problems = append(c.problems, Problem{c.route, c.name, key, fmt.Sprintf(format, args...)})
}

func check(c Config) []error {
	var problems []error
	seen := map[string]bool{}
	for i, r := range c.Routes {
		k := checker{route: i, name: r.Name}
		switch {
		case r.Name == "":
			k.add("name", "is missing: purges and metrics call a route by its name")
		case seen[r.Name]:
			k.add("name", "another route has it: names must differ")
		}
		seen[r.Name] = true
		switch {
		case len(c.Upstreams) == 0:
			k.add("upstream", "no upstream is defined: write one under upstreams")
		case !slices.Contains(c.Upstreams, r.Upstream):
			k.add("upstream", "%q is not defined: name one of %s", r.Upstream, strings.Join(c.Upstreams, ", "))
		case strings.ContainsFunc(r.Upstream, unfitName):
			k.add("upstream", "%q: an upstream's name has no blanks and no control characters", r.Upstream)
		}
		k.match(r.Match)
		k.fields(r)
		k.key(r.Cache)
		k.times(r.Cache)
		k.early(r.Cache.EarlyRefresh)
		k.negative(r.Cache.Negative)
		k.choices(r.Cache)
		problems = append(problems, k.problems...)
	}
	return problems
}

// unfitName: keys begin with the upstream's name, and a blank ends it.
func unfitName(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func (c *checker) match(m Match) {
	host, port := splitHost(lower(strings.TrimPrefix(m.Host, "*.")))
	if m.Host != "" && m.Host != "*" && (host == "" || !fitHost(host) || strings.Trim(port, "0123456789") != "") {
		c.add("match.host", "%q is no host: write example.com, *.example.com, or either with :port", m.Host)
	}
	if path := strings.TrimSuffix(m.Path, "*"); m.Path != "" && m.Path != "*" && (!strings.HasPrefix(path, "/") || strings.ContainsAny(path, "*?#")) {
		c.add("match.path", "%q is no path: write /page, or a prefix with a star at its end, /catalogue/*", m.Path)
	}
	for _, method := range m.Methods {
		if !isToken(method) || method != strings.ToUpper(method) {
			c.add("match.methods", "%q is no method: they are in capitals, like GET", method)
		}
	}
}

func (c *checker) fields(r Route) {
	k := r.Cache
	for _, f := range []struct {
		key   string
		names []string
	}{
		{"bypass.headers", r.Bypass.Headers}, {"headers.remove", r.Headers.Remove}, {"cache.key.headers", k.Key.Headers},
		{"cache.particular", k.Particular}, {"cache.ignore.headers", k.Ignore.Headers}, {"cache.tags.header", k.Tags.Header},
	} {
		for _, name := range f.names {
			if !isToken(name) {
				c.add(f.key, "%q is no field name", name)
			}
		}
	}
	for _, line := range r.Headers.Set {
		if name, value, ok := strings.Cut(line, ":"); !ok || !isToken(name) || !fitValue(value) {
			c.add("headers.set", "%q is no field: write Name: value", line)
		}
	}
}

func (c *checker) key(k Cache) {
	c.patterns("cache.key.query.ignore", k.Key.Query.Ignore)
	c.patterns("cache.key.query.only", k.Key.Query.Only)
	c.patterns("cache.ignore.cookies", k.Ignore.Cookies)
	ignored := canonical(k.Ignore.Headers)
	for _, name := range canonical(k.Key.Headers) {
		switch {
		case slices.Contains(ignored, name):
			c.add("cache.ignore.headers", "%s is in key.headers too: it cannot count and not count; drop it from one", name)
		case isHop(name) || isClientsOwn(name):
			c.add("cache.key.headers", "%s is not sent upstream by what fills the cache: no answer depends on it; drop it", name)
		}
	}
	for _, name := range k.Key.Cookies {
		if listed(k.Ignore.Cookies, name) {
			c.add("cache.ignore.cookies", "%s is in key.cookies too: it cannot count and not count; drop it from one", name)
		}
	}
}

func (c *checker) patterns(key string, names []string) {
	for _, name := range names {
		if name == "" || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			c.add(key, "%q: write a name, or a prefix with a star at its end, utm_*", name)
		}
	}
}

// figure is a key that is a time.
type figure struct {
	key string
	d   time.Duration
}

func (k Cache) figures() []figure {
	return []figure{
		{"cache.ttl", k.TTL}, {"cache.force_ttl", k.ForceTTL}, {"cache.grace", k.Grace.Well}, {"cache.grace", k.Grace.Sick}, {"cache.stale_if_error", k.StaleIfError},
		{"cache.keep", k.Keep}, {"cache.uncacheable_for", k.UncacheableFor}, {"cache.wait.max", k.Wait.Max},
		{"cache.soft_timeout", k.SoftTimeout},
	}
}

func (c *checker) times(k Cache) {
	for _, t := range k.figures() {
		if t.d < 0 {
			c.add(t.key, "%s is negative: write 0s for none", t.d)
		}
	}
	if !(k.Jitter >= 0 && k.Jitter < 1) {
		c.add("cache.jitter", "%g%% would leave nothing of some lifetimes: write 0%% to 99%%, 20%% when in doubt", 100*float64(k.Jitter))
	}
	if k.Grace.Sick != 0 && k.Grace.Sick < k.Grace.Well {
		c.add("cache.grace", "%s for a sick upstream is less than %s for a well one: write the longer one under sick", k.Grace.Sick, k.Grace.Well)
	}
	if k.ForceTTL > 0 && k.SetCookie == "keep" {
		c.add("cache.force_ttl", "would hand one client's cookies to all, as set_cookie is keep: write set_cookie: strip, or drop force_ttl")
	}
}

func (c *checker) early(e EarlyRule) {
	c.choice("cache.early_refresh.mode", e.Mode, "xfetch", "power", "off")
	if e.Mode == "xfetch" && !(e.Beta > 0) {
		c.add("cache.early_refresh.beta", "%g: write a number above 0, 1.0 when in doubt", e.Beta)
	}
	if e.Mode == "power" && !(e.Exponent > 0) {
		c.add("cache.early_refresh.exponent", "%g: write a number above 0, 3 when in doubt", e.Exponent)
	}
}

func (c *checker) negative(rules []Negative) {
	seen := map[int]bool{}
	for _, n := range rules {
		if n.TTL <= 0 {
			c.add("cache.negative", "a ttl of %s keeps nothing: write one above 0s, or drop the entry", n.TTL)
		}
		if len(n.Status) == 0 {
			c.add("cache.negative", "names no status: write status: [404, 410]")
		}
		for _, status := range n.Status {
			twice := seen[status]
			seen[status] = true
			switch {
			case twice:
				c.add("cache.negative", "%d has two lifetimes: drop one", status)
			case status != http.StatusNoContent && (status < 400 || status > 599):
				c.add("cache.negative", "%d is no error, and not empty: use ttl for the others", status)
			case isOnesOwnFault(status):
				c.add("cache.negative", "%d is about the one request that earned it, and would be served to all (R27): drop it", status)
			case isNeverKept(status) && status != http.StatusTooManyRequests:
				c.add("cache.negative", "%d may be stored by no cache (RFC 6585): drop it", status)
			}
		}
	}
}

func (c *checker) choices(k Cache) {
	c.choice("cache.set_cookie", k.SetCookie, "refuse", "strip", "keep")
	c.choice("cache.client_directives", k.ClientDirectives, "honour", "collapse", "ignore")
	c.choice("cache.collapse", k.Collapse, "rfc", "all")
	c.choice("cache.invalidate", k.Invalidate, "rfc", "soft", "off")
	for _, directive := range k.StaleDespite {
		c.choice("cache.stale_despite", cmp.Or(directive, `""`), "must-revalidate", "proxy-revalidate", "s-maxage", "no-cache")
	}
	c.choice("cache.wait.then", k.Wait.Then, "503", "upstream")
}

// choice: an empty word is the strictest of them, which comes first (of early_refresh: off).
func (c *checker) choice(key, word string, words ...string) {
	if word != "" && !slices.Contains(words, word) {
		c.add(key, "%q is none of %s", word, strings.Join(words, ", "))
	}
}

// Suspicious is what is no mistake, and yet seldom what was meant: each is a Problem to look at, not to refuse.
func Suspicious(c Config) (problems []Problem) {
	for i, r := range c.Routes {
		k := checker{route: i, name: r.Name}
		k.doubts(r.Cache)
		for _, p := range k.problems {
			problems = append(problems, p.(Problem))
		}
	}
	return problems
}

func (c *checker) doubts(k Cache) {
	for _, t := range k.figures() {
		if t.d > LongestKeep {
			c.add(t.key, "of %s is longer than anything is kept: write 30d or less", t.d)
		}
	}
	life := max(k.TTL, k.ForceTTL)
	if k.EarlyRefresh.Mode == "power" {
		c.power(cmp.Or(life, time.Minute), k.EarlyRefresh.Exponent)
	}
	asked := len(k.Ignore.Cookies)+len(k.Ignore.Headers)+len(k.Key.Cookies) > 0
	longest := time.Duration(0)
	for _, n := range k.Negative {
		longest = max(longest, n.TTL)
	}
	for _, d := range []struct {
		is        bool
		key, text string
	}{
		{k.ForceTTL > 0 && asked, "cache.force_ttl", "keeps what is answered to requests whose cookies or other tokens are ignored or keyed, whatever the answer says, " +
			"private and no-store apart: make sure that no page here is made for one client, or write ttl"},
		{k.ForceTTL > 0 && k.SetCookie == "strip", "cache.force_ttl", "shares what sets a cookie, without the cookie: make sure that no page here is made for one client, or write set_cookie: refuse"},
		{k.ForceTTL > 0 && k.TTL > 0, "cache.ttl", "is never used, as force_ttl comes first: drop one"},
		{life > 0 && k.Jitter == 0, "cache.jitter", "of 0% lets pages that were stored together expire together: write 20%"},
		{longest > time.Hour, "cache.negative", "keeps an error for " + longest.String() + ", for as long it hides that the page has come: write a minute or less"},
		{k.StaleIfError < k.Grace.longest(), "cache.stale_if_error", "is shorter than grace, which holds when the upstream fails, too: write " + k.Grace.longest().String() + " or more"},
		{len(k.StaleDespite) > 0 && k.StaleIfError <= 0 && k.Grace.longest() <= 0, "cache.stale_despite", "is never used, as the route allows nothing stale: write grace or stale_if_error"},
		{k.SoftTimeout > 0 && k.StaleIfError <= 0 && k.Grace.longest() <= 0, "cache.soft_timeout", "is never used, as nothing stale may be served: write stale_if_error"},
		{k.SoftTimeout > 0 && k.Wait.Max > 0 && k.SoftTimeout >= k.Wait.Max, "cache.soft_timeout", "is no sooner than wait.max, when a stale copy answers anyway: make it shorter, or drop it"},
		{k.UncacheableFor == 0, "cache.uncacheable_for", "of 0s lets every crowd wait for an answer that turns out to be one client's: write 2m"},
	} {
		if d.is {
			c.add(d.key, "%s", d.text)
		}
	}
}

// Loosened is what a route allows beyond the RFC's rules and our strict defaults. It is no fault; it is what to look at
// first when somebody saw what was not theirs.
func (r *Route) Loosened() []Problem {
	var loose []Problem
	k := r.Cache
	for _, l := range []struct {
		is        bool
		key, text string
	}{
		{k.ForceTTL > 0, "cache.force_ttl", "answers are kept whatever they say"},
		{len(k.StaleDespite) > 0, "cache.stale_despite", strings.Join(k.StaleDespite, ", ") + ": stale answers are served all the same"},
		{k.SetCookie == "strip" || k.SetCookie == "keep", "cache.set_cookie", k.SetCookie + ": answers that set cookies are shared"},
		{len(k.Ignore.Headers) > 0, "cache.ignore.headers", strings.Join(k.Ignore.Headers, ", ") + ": who asks by these makes no difference"},
		{len(k.Ignore.Cookies) > 0, "cache.ignore.cookies", strings.Join(k.Ignore.Cookies, ", ") + ": who asks by these makes no difference"},
		{k.ClientDirectives == "collapse" || k.ClientDirectives == "ignore", "cache.client_directives", k.ClientDirectives + ": a reload need not reach the upstream"},
		{k.Collapse == "all", "cache.collapse", "all: those who wait share an answer with no-cache"},
		{k.Invalidate == "soft" || k.Invalidate == "off", "cache.invalidate", k.Invalidate + ": pages may outlive a change made through us"},
	} {
		if l.is {
			loose = append(loose, Problem{Name: r.Name, Key: l.key, Text: l.text})
		}
	}
	return loose
}

// busy is the page by which rules are judged that ask at each request.
const busy = 1000

func (c *checker) power(life time.Duration, exponent float64) {
	k := exponent + 1
	c.add("cache.early_refresh.mode", "power refreshes a page that lives %s and is asked for %d times a second about %.0f times in its life: "+
		"(%d × %.0f / %g)^(1/%g) / Γ(1+1/%g); xfetch does about once: write mode: xfetch",
		life, busy, powerRefreshes(busy*life.Seconds(), exponent), busy, life.Seconds(), k, k, k)
}

// isToken reports whether s is a token (RFC 9110 §5.6.2), as names of methods and fields are.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// fitValue reports whether s can be a field's value (RFC 9110 §5.5): no control character but the tab.
func fitValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
