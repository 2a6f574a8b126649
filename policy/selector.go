package policy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

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
	if u.Scheme != "http" && u.Scheme != "https" || strings.HasSuffix(text, "*") {
		return Selector{}, fmt.Errorf("%q begins no URL of a page: write its beginning, such as https://example.com/catalogue/, without a star", text)
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
