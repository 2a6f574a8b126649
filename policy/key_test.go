package policy

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func planOf(t *testing.T, p *Policy, rawURL string, h http.Header) Plan {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	req := Request{Method: "GET", Scheme: u.Scheme, Host: u.Host, Header: h}
	req.URL = &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}
	return p.Plan(req)
}

// Each of these is a page of its own: none may be answered by another's.
func TestDifferentPagesHaveDifferentKeys(t *testing.T) {
	p, err := New(Config{Upstreams: []string{"a", "b"}, Routes: []Route{
		{Name: "b", Upstream: "b", Match: Match{Host: "b.test"}}, {Name: "all", Upstream: "a"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, u := range []string{
		"http://a.test/", "https://a.test/", "http://a.test:81/", "http://a.test:443/", "https://a.test:80/", "http://b.test/",
		"http://a.test./x", "http://a.test//x", "http://a.test/x/", "http://a.test/x?", "http://a.test/X",
		"http://a.test/a%2Fb", "http://a.test/a/b", "http://a.test/a%252Fb", "http://a.test/a;b", "http://a.test/a%3Bb",
		"http://a.test/a%2Bb", "http://a.test/a+b", "http://a.test/a%20b", "http://a.test/./x", "http://a.test/%00x",
		"http://a.test/?a=%3Db", "http://a.test/?a%3D=b", "http://a.test/?a=b&c", "http://a.test/?a=b%26c", "http://a.test/?a=b;c",
		"http://a.test/?a=1&b=2", "http://a.test/?b=2&a=1", "http://a.test/?&a=1&b=2", "http://a.test/%3Fa=1&b=2", "http://a.test/?a=%7C",
		"http://[::1]/", "http://[::1]:81/",
	} {
		key := planOf(t, p, u, nil).Key.Primary
		if key == "" || seen[key] != "" {
			t.Errorf("%s and %s are both %q", u, seen[key], key)
		}
		seen[key] = u
	}
}

// What the key says is what the upstream sees.
func TestTheTargetIsWhatTheKeyEndsIn(t *testing.T) {
	p, _ := onePage(t, func(r *Route) { r.Cache.Key.Query = QueryRules{Ignore: []string{"utm_*"}, Sort: true} })
	plan := planOf(t, p, "http://A.TEST:80/%7ea%2f?b=%5f&utm_x=1&a", nil)
	if want := "/~a%2F?a&b=_"; plan.Target != want || plan.Key.Primary != "api http://a.test"+want || plan.Authority != "a.test" {
		t.Errorf("target %q, authority %q, key %q", plan.Target, plan.Authority, plan.Key.Primary)
	}
}

// Keyed cookies and fields: no value can pass for another's, nor for a different split of the same bytes.
func TestKeyedVariantsStayApart(t *testing.T) {
	p, ask := onePage(t, func(r *Route) {
		r.Cache.Key.Headers, r.Cache.Key.Cookies = []string{"X-A", "X-B"}, []string{"c", "d"}
	})
	_ = p
	seen := map[string]int{}
	for i, h := range []http.Header{
		header(), header("X-A: 1"), header("X-B: 1"), header("X-A:"), header("X-A: 1", "X-B: 1"), header("X-A: 11"),
		header("Cookie: c=1"), header("Cookie: d=1"), header("Cookie: c="), header("Cookie: c"), header("Cookie: c=1; d=1"),
		header("Cookie: c=1; c=1"), header("Cookie: c=1d=1"), header("X-A: c=1"),
	} {
		variant := ask(h).Key.Variant
		if before, ok := seen[variant]; ok || variant == "" {
			t.Errorf("headers %d and %d have the same variant", i, before)
		}
		seen[variant] = i
	}
	if a, b := ask(header("Cookie: c=1; d=2; x=3")), ask(header("Cookie: d=2", "Cookie: c=1")); a.Key != b.Key {
		t.Error("the order of different cookies, or one that is not keyed, selects")
	}
}

// A change of what is keyed must not find what was kept under the former meaning.
func TestSettingsThatShapeTheKeyAreInIt(t *testing.T) {
	_, a := onePage(t, func(r *Route) { r.Cache.Key.Headers = []string{"X-A"} })
	_, b := onePage(t, func(r *Route) { r.Cache.Key.Headers = []string{"X-B"} })
	_, c := onePage(t, func(r *Route) { r.Cache.Key.Cookies = []string{"X-A"} })
	keys := map[Key]bool{a(nil).Key: true, b(nil).Key: true, c(nil).Key: true}
	if len(keys) != 3 {
		t.Errorf("%d keys for three settings", len(keys))
	}
}

func TestHostsThatAreNone(t *testing.T) {
	p, _ := onePage(t, nil)
	for _, host := range []string{"a b", "a/b", "a?b", "a@b", "a%41", "[::1", "[x]", "a:b", ":80", "ａ.test", "a.test:80:80", "\u212a.test"} {
		plan := p.Plan(Request{Method: "GET", Scheme: "http", Host: host, URL: &url.URL{Path: "/"}})
		if plan.Action != Refuse || plan.Reason != BadRequest {
			t.Errorf("%q: %v %v", host, plan.Action, plan.Reason)
		}
	}
	// The star of a host stands for a label, not for nothing.
	star, _ := onePage(t, func(r *Route) { r.Match.Host = "*.example.com" })
	if plan := star.Plan(Request{Method: "GET", Scheme: "http", Host: ".example.com", URL: &url.URL{Path: "/"}}); plan.Reason != UnknownAuthority {
		t.Errorf("a label of no letters: %v %v", plan.Action, plan.Reason)
	}
	// HTTP/1.0 need not name one.
	if plan := p.Plan(Request{Method: "GET", Scheme: "http", URL: &url.URL{Path: "/"}}); plan.Action != Lookup {
		t.Errorf("no host: %v %v", plan.Action, plan.Reason)
	}
}

// FuzzKey: two targets with one key are one to the upstream, and the normal form is its own.
func FuzzKey(f *testing.F) {
	f.Add("/a%2fb", "x=%41&y")
	f.Add("/%", "%zz")
	f.Add("%%34%31", "%4%31")
	f.Add("//..;/%7e", "a=1&&b;c")
	f.Fuzz(func(t *testing.T, path, query string) {
		n := unreserve(path)
		if unreserve(n) != n {
			t.Fatalf("%q, then %q, then %q", path, n, unreserve(n))
		}
		if !strings.HasPrefix(path, "/") {
			return
		}
		u := url.URL{Path: path, RawQuery: query}
		r := compile(Route{Cache: Cache{Key: KeyRules{Query: QueryRules{Sort: true, Ignore: []string{"u*"}}}}})
		_, once := r.target(&u)
		again, err := url.ParseRequestURI(once)
		if err != nil {
			return // not what a server hands us
		}
		if _, twice := r.target(again); twice != once {
			t.Fatalf("%q?%q is %q, which is %q", path, query, once, twice)
		}
	})
}

// A target that names a scheme of its own is answered only where that is the connection's (RFC 9110 §7.4).
func TestATargetOfAnotherSchemeIsRefused(t *testing.T) {
	p, _ := onePage(t, nil)
	for target, want := range map[string]Action{"http://a.test/": Lookup, "https://a.test/": Refuse, "ftp://a.test/": Refuse} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Plan(Request{Method: "GET", Scheme: "http", Host: u.Host, URL: u})
		if plan.Action != want || want == Refuse && plan.Reason.Status() != http.StatusMisdirectedRequest {
			t.Errorf("GET %s over http: %s %s", target, plan.Action, plan.Reason)
		}
	}
}
