package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
