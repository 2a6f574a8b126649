package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ErrNoPage: no route serves the URL.
var ErrNoPage = errors.New("no route serves this URL")

// Invalidates lists what a non-error answer to an unsafe request makes void (RFC 9111 §4.4): the target URI,
// Location and Content-Location where they share its origin, and the groups that the answer names (RFC 9875 §3). Only
// pages that a cacheable route serves, and none of a route that says off.
func (p *Policy) Invalidates(plan Plan, res Response) []Selector {
	req := plan.Request
	if plan.Route == nil || plan.Route.Cache.Invalidate == "off" || isSafe(req.Method) || res.Status < 200 || res.Status >= 400 {
		return nil
	}
	void := p.pages(req.uri())
	for _, name := range [...]string{"Location", "Content-Location"} {
		for _, line := range res.Header[name] {
			if u := req.sibling(line); u != nil {
				void = append(void, p.pages(u)...)
			}
		}
	}
	selectors := distinct(slices.DeleteFunc(void, func(x page) bool { return x.rule.Cache.Invalidate == "off" }))
	for _, tag := range plan.groupTags(res.Header["Cache-Group-Invalidation"]) {
		selectors = append(selectors, Selector{Tag: tag})
	}
	return selectors
}

// groupTags are the tags that stand for the cache groups a field lists (RFC 9875 §2.1). A group is one origin's; and no
// tag of an upstream's own can be one, since those hold no blank.
func (p *Plan) groupTags(lines []string) []string {
	var tags []string
	for _, name := range groups(lines) {
		tags = append(tags, "group "+p.Request.Scheme+"://"+p.Authority+" "+name)
	}
	return sorted(tags)
}

// uri is the target of the request (RFC 9110 §7.1).
func (r *Request) uri() *url.URL {
	u := *r.URL
	u.Scheme, u.Host = r.Scheme, r.Host
	return &u
}

// sibling is the URI that a field of the answer refers to; nil when it is of another origin, or none at all.
func (r *Request) sibling(reference string) *url.URL {
	own := r.uri()
	u, err := own.Parse(reference)
	if err != nil || !sameOrigin(own, u) {
		return nil
	}
	return u
}

// Pages lists every page an absolute URL may be kept as: one selector for each upstream whose routes take it,
// under both schemes (R5). ErrNoPage: no route serves it.
func (p *Policy) Pages(rawURL string) ([]Selector, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q names no page: a page is named by scheme, host and path, such as http://example.com/page", rawURL)
	}
	other := *u
	other.Scheme = "http"
	if u.Scheme == "http" {
		other.Scheme = "https"
	}
	// A default port that was spelled out is that of its own scheme only.
	if host, port, _ := authority(u.Scheme, u.Host); port == defaultPort(u.Scheme) {
		other.Host = host
	}
	found := distinct(append(p.pages(u), p.pages(&other)...))
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoPage, rawURL)
	}
	return found, nil
}

// page is where one route keeps a URL.
type page struct {
	rule    *rule
	primary string
}

// pages lists where a URL may be kept: by every route that could take it, not only the first, since routes differ by
// method and may have stood in another order when it was stored.
func (p *Policy) pages(u *url.URL) []page {
	host, port, ok := authority(u.Scheme, u.Host)
	if !ok {
		return nil
	}
	var found []page
	for i := range p.rules {
		r := &p.rules[i]
		path, target := r.target(u)
		if r.keeps() && r.takesHost(host, port) && r.takesPath(path) {
			found = append(found, page{r, r.primary(u.Scheme, joinHost(u.Scheme, host, port), target)})
		}
	}
	return found
}

func distinct(found []page) []Selector {
	var s []Selector
	for _, f := range found {
		if one := (Selector{Page: f.primary}); !slices.Contains(s, one) {
			s = append(s, one)
		}
	}
	return s
}

// sameOrigin compares scheme, host and port as the key has them.
func sameOrigin(a, b *url.URL) bool {
	host, port, ok := authority(a.Scheme, a.Host)
	otherHost, otherPort, otherOK := authority(b.Scheme, b.Host)
	return ok && otherOK && a.Scheme == b.Scheme && host == otherHost && port == otherPort
}

// isSafe knows the registered safe methods (RFC 9110 §9.2.1, and WebDAV's). A method it does not know may change
// anything (RFC 9111 §4.4).
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY", "PROPFIND", "REPORT", "SEARCH":
		return true
	}
	return false
}

// Selector names what a purge covers: exactly one field is set. All but Page are compared as texts, with what the key or
// the facts of an entry say: PrefixOf and HostOf bring what somebody wrote into that form.
type Selector struct {
	Page   string // Key.Primary; Pages turns a URL into those it may have
	Tag    string // one of Stored.Tags
	Prefix string // what Key.Place begins with: example.com/catalogue/, under every upstream and scheme
	Host   string // Key.Host: example.com, under every upstream, scheme and port
	Route  string // Stored.Route
	All    bool
}

// IsOne reports whether the selector names one thing, as it must.
func (s Selector) IsOne() bool {
	switch s {
	case Selector{}:
		return false
	case Selector{Page: s.Page}, Selector{Tag: s.Tag}, Selector{Prefix: s.Prefix}, Selector{Host: s.Host}, Selector{Route: s.Route}, Selector{All: true}:
		return true
	}
	return false
}

// ErrNoRoute: the file has no route of that name.
var ErrNoRoute = errors.New("no route has this name")

var errNoHost = errors.New("write a host, such as example.com")

// Place is where the page is on the web, without its scheme: authority and target.
func (k Key) Place() string {
	_, where, _ := strings.Cut(k.Primary, " ")
	_, place, _ := strings.Cut(where, "://")
	return place
}

// Host is the page's host, without its port.
func (k Key) Host() string {
	authority, _, _ := strings.Cut(k.Place(), "/")
	host, _ := splitHost(authority)
	return host
}

// PrefixOf reads how URLs begin, with a scheme or without: both schemes are meant. A prefix ends where it ends, so
// example.com/cat covers /catalogue too; one without a path covers the whole authority.
func PrefixOf(text string) (Selector, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return Selector{}, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || strings.HasSuffix(text, "*") || strings.Contains(text, "#") {
		return Selector{}, fmt.Errorf("%q begins no URL of a page: write its beginning, such as https://example.com/catalogue/, without star or fragment", text)
	}
	host, port, ok := authority(u.Scheme, u.Host)
	if !ok || host == "" || strings.HasSuffix(host, ".") {
		return Selector{}, fmt.Errorf("prefix %q: %w, and a path", text, errNoHost)
	}
	prefix := joinHost(u.Scheme, host, port) + pathOf(u)
	if u.RawQuery != "" || u.ForceQuery {
		prefix += "?" + unreserve(u.RawQuery)
	}
	return Selector{Prefix: prefix}, nil
}

// PrefixHost is the host that all pages of a prefix have.
func (s Selector) PrefixHost() string { return Key{Primary: " ://" + s.Prefix}.Host() }

// HostOf reads a host's name or address. A port is refused: it would be a part of the host's pages only.
func HostOf(text string) (Selector, error) {
	host, port := splitHost(lower(text))
	if host == "" || port != "" || !fitHost(host) || strings.HasSuffix(host, ".") {
		return Selector{}, fmt.Errorf("host %q: %w, without scheme, port or path", text, errNoHost)
	}
	return Selector{Host: host}, nil
}

// RouteNamed is what a route of this policy has brought.
func (p *Policy) RouteNamed(name string) (Selector, error) {
	for i := range p.rules {
		if p.rules[i].Name == name && name != "" {
			return Selector{Route: name}, nil
		}
	}
	return Selector{}, fmt.Errorf("%w: %q", ErrNoRoute, name)
}
