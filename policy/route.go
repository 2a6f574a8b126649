package policy

import (
	"net/http"
	"slices"
	"strings"
)

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

// takesPath compares what is sent upstream, so that no spelling of a path escapes its route.
func (r *rule) takesPath(path string) bool {
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
// proxy in front of us says of the one it has let through.
func isPersonal(name string) bool {
	switch name {
	case "Authorization", "Cookie", "Cookie2", "Proxy-Authorization", "X-Api-Key", "X-Auth-Token", "X-Access-Token",
		"X-Session-Id", "X-Session-Token", "X-Csrf-Token", "X-Xsrf-Token", "X-User", "X-User-Id", "X-User-Email",
		"X-Remote-User", "Remote-User", "X-Authenticated-User", "X-Authenticated-Userid", "X-Forwarded-User",
		"X-Forwarded-Email", "X-Forwarded-Groups", "X-Forwarded-Preferred-Username", "X-Forwarded-Access-Token",
		"X-Auth-Request-User", "X-Auth-Request-Email", "X-Auth-Request-Access-Token", "X-Webauth-User",
		"X-Goog-Iap-Jwt-Assertion", "X-Goog-Authenticated-User-Email", "Cf-Access-Jwt-Assertion", "X-Ms-Client-Principal",
		"X-Amzn-Oidc-Data", "X-Amzn-Oidc-Identity", "Client-Cert", "X-Client-Cert", "X-Forwarded-Client-Cert",
		"X-Ssl-Client-Cert", "X-Ssl-Client-S-Dn", "Dpop":
		return true
	}
	return false
}
