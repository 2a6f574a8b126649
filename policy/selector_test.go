package policy

import (
	"errors"
	"testing"
)

func TestPlaceAndHost(t *testing.T) {
	for primary, want := range map[string][2]string{
		"api http://example.com/a?b=c":            {"example.com/a?b=c", "example.com"},
		"api https://example.com:8443/":           {"example.com:8443/", "example.com"},
		"api http://[::1]:8080/a":                 {"[::1]:8080/a", "[::1]"},
		"api http://example.com/?u=http://other/": {"example.com/?u=http://other/", "example.com"},
		"a://b http://example.com/a":              {"example.com/a", "example.com"},
		"api http:///of HTTP/1.0":                 {"/of HTTP/1.0", ""},
		"nothing":                                 {"", ""},
	} {
		k := Key{Primary: primary}
		if got := [2]string{k.Place(), k.Host()}; got != want {
			t.Errorf("%s: %q, want %q", primary, got, want)
		}
	}
}

func TestPrefixOf(t *testing.T) {
	for text, want := range map[string]string{
		"https://example.com/catalogue/": "example.com/catalogue/",
		"example.com/catalogue/":         "example.com/catalogue/",
		"http://EXAMPLE.com.:80/a%7eb":   "example.com/a~b",
		"https://example.com:443":        "example.com/",
		"https://example.com:8443/a?b":   "example.com:8443/a?b",
		"example.com/a?":                 "example.com/a?",
		"example.com":                    "example.com/",
		"[::1]:8080/a":                   "[::1]:8080/a",
	} {
		if got, err := PrefixOf(text); err != nil || got != (Selector{Prefix: want}) {
			t.Errorf("%s: %+v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "/a", "ftp://example.com/", "https:///a", "http://exa mple/", "example.com/a/*", "http://a%b/"} {
		if got, err := PrefixOf(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestHostOf(t *testing.T) {
	for text, want := range map[string]string{"example.com": "example.com", "EXAMPLE.com.": "example.com", "[::1]": "[::1]"} {
		if got, err := HostOf(text); err != nil || got != (Selector{Host: want}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "example.com:80", "https://example.com", "example.com/", "*.example.com", "a b"} {
		if got, err := HostOf(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestRouteNamed(t *testing.T) {
	p, err := New(Config{Routes: []Route{{Name: "all", Upstream: "api"}}, Upstreams: []string{"api"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.RouteNamed("all"); err != nil || got != (Selector{Route: "all"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := p.RouteNamed("al"); !errors.Is(err, ErrNoRoute) {
		t.Errorf("a route that is not there: %v", err)
	}
}

func TestIsOne(t *testing.T) {
	for sel, want := range map[Selector]bool{
		{}: false, {Page: "a"}: true, {Tag: "a"}: true, {Prefix: "a"}: true, {Host: "a"}: true, {Route: "a"}: true, {All: true}: true,
		{Page: "a", All: true}: false, {Tag: "a", Host: "a"}: false, {Prefix: "a", Route: "b"}: false,
	} {
		if sel.IsOne() != want {
			t.Errorf("%+v: %v", sel, !want)
		}
	}
}

// What the key says of a page is what a prefix says of its URL, and its host.
func FuzzPrefixOf(f *testing.F) {
	f.Add("https://example.com/a%2fb?c=%7e")
	f.Add("http://EXAMPLE.com:8080")
	f.Fuzz(func(t *testing.T, text string) {
		sel, err := PrefixOf(text)
		if err != nil {
			return
		}
		again, err := PrefixOf(sel.Prefix)
		key := Key{Primary: "api https://" + sel.Prefix}
		if err != nil || again != sel || key.Place() != sel.Prefix {
			t.Errorf("%q: %+v, and again %+v, %v", text, sel, again, err)
		}
		if host, err := HostOf(sel.PrefixHost()); err != nil || host.Host != key.Host() {
			t.Errorf("%q: host %+v, %v", text, host, err)
		}
	})
}
