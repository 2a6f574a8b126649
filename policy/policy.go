package policy

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Config is the part of the file that decides: the routes, in order, first match wins.
type Config struct {
	Routes    []Route
	Upstreams []string // the names routes may use
}

// Route is one rule of the file, complete: what it left out has been filled in from the top-level cache.
type Route struct {
	Name     string      `mapstructure:"name"`
	Match    Match       `mapstructure:"match"`
	Upstream string      `mapstructure:"upstream"`
	Bypass   BypassRules `mapstructure:"bypass"`
	Headers  Headers     `mapstructure:"headers"`
	Cache    Cache       `mapstructure:"cache"`
}

// Match says which requests a route takes. Empty fields take all.
type Match struct {
	Host    string   `mapstructure:"host"` // exact, or *.example.com
	Path    string   `mapstructure:"path"` // exact, or a prefix ending in *
	Methods []string `mapstructure:"methods"`
}

// BypassRules lists what makes a request pass.
type BypassRules struct {
	Cookies []string `mapstructure:"cookies"`
	Headers []string `mapstructure:"headers"`
	Query   []string `mapstructure:"query"`
}

// Headers changes responses on their way to the client.
type Headers struct {
	Set    []string `mapstructure:"set"` // "Name: value"
	Remove []string `mapstructure:"remove"`
}

// Cache is what a route says about keeping and waiting. config.yaml shows every key with its meaning.
type Cache struct {
	TTL              time.Duration `mapstructure:"ttl"`
	ForceTTL         time.Duration `mapstructure:"force_ttl"`
	Heuristic        bool          `mapstructure:"heuristic"` // a lifetime is guessed from Last-Modified (RFC 9111 §4.2.2)
	Grace            Grace         `mapstructure:"grace"`
	StaleIfError     time.Duration `mapstructure:"stale_if_error"`
	StaleDespite     []string      `mapstructure:"stale_despite"` // directives that do not forbid grace and the like here
	Keep             time.Duration `mapstructure:"keep"`
	Jitter           Percent       `mapstructure:"jitter"`
	EarlyRefresh     EarlyRule     `mapstructure:"early_refresh"`
	SoftTimeout      time.Duration `mapstructure:"soft_timeout"`
	Negative         []Negative    `mapstructure:"negative"`
	UncacheableFor   time.Duration `mapstructure:"uncacheable_for"`
	Wait             Wait          `mapstructure:"wait"`
	Key              KeyRules      `mapstructure:"key"`
	Particular       []string      `mapstructure:"particular"`
	Ignore           Ignore        `mapstructure:"ignore"`
	SetCookie        string        `mapstructure:"set_cookie"`        // refuse | strip | keep
	ClientDirectives string        `mapstructure:"client_directives"` // honour | collapse | ignore
	Collapse         string        `mapstructure:"collapse"`          // rfc | all
	Invalidate       string        `mapstructure:"invalidate"`        // rfc | soft | off
	Tags             Tags          `mapstructure:"tags"`
	Targeted         Targeted      `mapstructure:"targeted"`
	ConvertHead      bool          `mapstructure:"convert_head"` // a HEAD of a page that nobody has fetches it
}

// Grace is how long stale answers may be served while they are refreshed, written as "30s", or apart for an upstream that
// is well and one that is sick.
type Grace struct {
	Well time.Duration `mapstructure:"well"`
	Sick time.Duration `mapstructure:"sick"` // 0: no longer than when it is well
}

// longest is how long a copy may have to serve.
func (g Grace) longest() time.Duration { return max(g.Well, g.Sick) }

// Percent is a share, 0 to 1, written as "20%".
type Percent float64

// EarlyRule says when a fresh answer is refreshed before it expires.
type EarlyRule struct {
	Mode     string  `mapstructure:"mode"` // xfetch | power | off
	Beta     float64 `mapstructure:"beta"`
	Exponent float64 `mapstructure:"exponent"`
}

// Negative gives statuses a lifetime of their own.
type Negative struct {
	Status []int         `mapstructure:"status"`
	TTL    time.Duration `mapstructure:"ttl"`
}

// Wait bounds how long an exchange waits for a fill, and says what then.
type Wait struct {
	Max  time.Duration `mapstructure:"max"`  // 0: as long as the fill lives
	Then string        `mapstructure:"then"` // "503" | upstream
}

// KeyRules says what beside the URL tells answers apart.
type KeyRules struct {
	Query   QueryRules `mapstructure:"query"`
	Headers []string   `mapstructure:"headers"`
	Cookies []string   `mapstructure:"cookies"`
}

// QueryRules says which query parameters count. What does not count is not sent upstream on fills.
type QueryRules struct {
	Sort   bool     `mapstructure:"sort"`
	Ignore []string `mapstructure:"ignore"` // a name, or a prefix ending in *
	Only   []string `mapstructure:"only"`
}

// Ignore lists particular fields that do not change the answer; they are not sent upstream on fills.
type Ignore struct {
	Headers []string `mapstructure:"headers"`
	Cookies []string `mapstructure:"cookies"`
}

// Targeted lists the fields that stand in for Cache-Control where they are present (RFC 9213), the first that is counting.
type Targeted struct {
	Fields []string `mapstructure:"fields"`
	Strip  bool     `mapstructure:"strip"` // do not pass them on to clients
}

// Tags says where the upstream lists an answer's tags.
type Tags struct {
	Header []string `mapstructure:"header"`
}

// Policy is a compiled Config. It is immutable: a reload makes another.
type Policy struct {
	rules []rule
}

// New compiles a Config. Its error is every Problem at once.
func New(c Config) (*Policy, error) {
	if problems := check(c); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	p := &Policy{rules: make([]rule, len(c.Routes))}
	for i, r := range c.Routes {
		p.rules[i] = compile(r)
	}
	return p, nil
}

// rule is a Route made ready for use. Names of fields are in canonical form.
type rule struct {
	Route
	host, port string // host without the wildcard's star: ".example.com"
	anySub     bool   // host is what a name must end in
	path       string
	anyPath    bool // path is what a path must begin with
	keyed      []string
	ignored    []string
	particular []string
	settings   string // fingerprint of what shapes Key.Variant
}

func compile(r Route) rule {
	c := rule{Route: r}
	host := strings.TrimPrefix(lower(r.Match.Host), "*")
	c.anySub = len(host) < len(r.Match.Host)
	c.host, c.port = splitHost(host)
	c.path, c.anyPath = strings.CutSuffix(r.Match.Path, "*")
	c.path = unreserve(escaped(c.path)) // in the form in which paths are compared
	if r.Match.Path == "" {
		c.anyPath = true
	}
	c.keyed = canonical(r.Cache.Key.Headers)
	c.ignored = canonical(r.Cache.Ignore.Headers)
	c.particular = canonical(r.Cache.Particular)
	c.settings = digest(append(append([]string{"headers"}, c.keyed...), append([]string{"cookies"}, sorted(r.Cache.Key.Cookies)...)...))
	return c
}

func canonical(names []string) []string {
	c := make([]string, len(names))
	for i, n := range names {
		c[i] = http.CanonicalHeaderKey(n)
	}
	return sorted(c)
}

func sorted(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }

// route answers the first route that takes a request. UnknownAuthority: none takes the host, whatever the path (R30).
func (p *Policy) route(method, host, port, path string) (*rule, Reason) {
	reason := UnknownAuthority
	for i := range p.rules {
		r := &p.rules[i]
		if !r.takesHost(host, port) {
			continue
		}
		reason = NoRoute
		if r.takesPath(path) && r.takesMethod(method) {
			return r, None
		}
	}
	return nil, reason
}

func (r *rule) takesHost(host, port string) bool {
	if r.port != "" && r.port != port {
		return false
	}
	if r.anySub {
		// The star stands for at least one label.
		return len(host) > len(r.host) && strings.HasSuffix(host, r.host)
	}
	return r.host == "" || r.host == host
}

// takesPath compares what is sent upstream, without its dot segments, so that no spelling of a path escapes its route.
func (r *rule) takesPath(path string) bool {
	path = withoutDots(path)
	if r.anyPath {
		return strings.HasPrefix(path, r.path)
	}
	return path == r.path
}

func (r *rule) takesMethod(method string) bool {
	return len(r.Match.Methods) == 0 || slices.Contains(r.Match.Methods, method)
}

// keeps reports whether answers to GET on this route are looked up and stored at all.
func (r *rule) keeps() bool { return r.takesMethod(http.MethodGet) }

// tells reports whether a request field tells who asks (R1), unless the route names it as keyed or ignored.
func (r *rule) tells(name string) bool {
	return (isPersonal(name) || slices.Contains(r.particular, name)) &&
		!slices.Contains(r.keyed, name) && !slices.Contains(r.ignored, name)
}

// isPersonal is the shipped list of fields by which servers learn who asks: credentials, and what an authenticating
// proxy in front of us says of the one it has let through. Most are known by how their names end.
func isPersonal(name string) bool {
	// Gateway interfaces read X_Api_Key as X-Api-Key.
	name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "Cookie", "Cookie2", "X-User-Id", "X-Authenticated-Userid", "X-Forwarded-Email", "X-Forwarded-Groups",
		"X-Forwarded-Preferred-Username", "X-Auth-Request-Email", "X-Goog-Authenticated-User-Email", "X-Ms-Client-Principal",
		"X-Amzn-Oidc-Data", "X-Amzn-Oidc-Identity", "X-Forwarded-Client-Cert", "X-Ssl-Client-S-Dn", "Dpop",
		"Ocp-Apim-Subscription-Key", "X-Tenant-Id":
		return true
	}
	end := strings.LastIndexByte(name, '-')
	switch name[end+1:] {
	case "Authorization", "Token", "Apikey", "Jwt", "Assertion", "Credential", "Credentials", "Signature", "Session", "User":
		return true
	}
	switch name[strings.LastIndexByte(name[:max(end, 0)], '-')+1:] {
	case "Api-Key", "Session-Id", "User-Id", "User-Name", "User-Email", "User-Login", "Client-Cert", "Client-Dn":
		return true
	}
	return false
}
