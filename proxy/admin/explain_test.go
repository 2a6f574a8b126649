package admin

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/policy"
)

var catalogue = &policy.Route{Name: "catalogue", Upstream: "api"}

func TestExplain(t *testing.T) {
	loose := policy.Route{Name: "loose", Upstream: "api", Cache: policy.Cache{StaleDespite: []string{"s-maxage"}}}
	lookup := policy.Plan{Route: catalogue, Action: policy.Lookup, Key: policy.Key{Primary: "api https example.com /a", Variant: "v"},
		Vary: []string{"accept"}, Particular: []string{"Cookie"}}
	head := `"route":"catalogue","upstream":"api","key":{"page":"api https example.com /a","variant":"v","vary":["accept"]},"particular":["Cookie"]}`
	meaning := func(r policy.Reason) string { return `"reason":"` + r.String() + `","meaning":"` + r.Meaning() + `",` }
	for _, c := range []struct {
		name     string
		plan     policy.Plan
		decision policy.Decision
		want     string
	}{
		{"a hit", lookup, policy.Decision{Action: policy.Serve, Reason: policy.Fresh, Age: 1500 * time.Millisecond},
			`{"action":"serve",` + meaning(policy.Fresh) + `"age_seconds":1.5,` + head},
		{"an age of 0", lookup, policy.Decision{Action: policy.ServeAndRefresh, Reason: policy.StaleRefresh},
			`{"action":"serve+refresh",` + meaning(policy.StaleRefresh) + `"age_seconds":0,` + head},
		{"a miss", lookup, policy.Decision{Action: policy.Fetch, Reason: policy.URIMiss, Collapse: true},
			`{"action":"fetch",` + meaning(policy.URIMiss) + `"collapse":true,` + head},
		{"behind a marker", lookup, policy.Decision{Action: policy.Fetch, Reason: policy.KnownUncacheable},
			`{"action":"fetch",` + meaning(policy.KnownUncacheable) + `"collapse":false,` + head},
		{"a pass", policy.Plan{Route: catalogue, Action: policy.Pass, Reason: policy.Bypass}, policy.Decision{},
			`{"action":"pass",` + meaning(policy.Bypass) + `"route":"catalogue","upstream":"api"}`},
		{"a loose route", policy.Plan{Route: &loose, Action: policy.Pass, Reason: policy.Bypass}, policy.Decision{},
			`{"action":"pass",` + meaning(policy.Bypass) + `"route":"loose","upstream":"api","loosened":["cache.stale_despite: s-maxage: stale answers are served all the same"]}`},
		{"a refusal", policy.Plan{Action: policy.Refuse, Reason: policy.UnknownAuthority}, policy.Decision{},
			`{"action":"refuse",` + meaning(policy.UnknownAuthority) + `"status":421}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &house{explain: func(*http.Request) (policy.Plan, policy.Decision, error) { return c.plan, c.decision, nil }}
			is(t, ask(New(h.options(local)), "GET", "/api/explain?url=https://example.com/a", ""), 200, c.want)
		})
	}
}

func TestExplainFails(t *testing.T) {
	h := &house{explain: func(*http.Request) (policy.Plan, policy.Decision, error) {
		return policy.Plan{}, policy.Decision{}, errors.New("take k: store unavailable")
	}}
	isProblem(t, ask(New(h.options(local)), "GET", "/api/explain?url=https://example.com/a", ""), 503, "take k: store unavailable")
}

// The handler is given the request as its own listener would.
func TestExplainedRequest(t *testing.T) {
	var got *http.Request
	h := &house{explain: func(r *http.Request) (policy.Plan, policy.Decision, error) {
		got = r
		return policy.Plan{}, policy.Decision{}, nil
	}}
	a := New(h.options(local))
	q := url.Values{"url": {"https://Example.com:8443//a%2Fb?c=d&e#f"}, "method": {"HEAD"},
		"header": {"accept: text/html", "Cookie:a=b:c", "Accept: */*", "X-Empty:"}}
	if w := ask(a, "GET", "/api/explain?"+q.Encode(), ""); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got.Method != "HEAD" || got.Host != "Example.com:8443" || got.RequestURI != "//a%2Fb?c=d&e" || got.TLS == nil {
		t.Errorf("%s %q %q, TLS %v", got.Method, got.Host, got.RequestURI, got.TLS)
	}
	if u := got.URL; u.Host != "" || u.Scheme != "" || u.Path != "//a/b" || u.EscapedPath() != "//a%2Fb" || u.RawQuery != "c=d&e" || u.Fragment != "" {
		t.Errorf("URL %#v", u)
	}
	if h := got.Header; len(h) != 3 || h.Get("Cookie") != "a=b:c" || len(h["Accept"]) != 2 || h["Accept"][0] != "text/html" {
		t.Errorf("header %v", h)
	}

	ask(a, "GET", "/api/explain?url=http://example.com", "")
	if got.Method != "GET" || got.RequestURI != "/" || got.URL.Path != "/" || got.TLS != nil {
		t.Errorf("%s %q %q, TLS %v; want GET / in clear", got.Method, got.RequestURI, got.URL.Path, got.TLS)
	}
}

func TestExplainRefuses(t *testing.T) {
	a := New((&house{}).options(local))
	for query, detail := range map[string]string{
		"":                             "https://",
		"url=/a":                       "https://",
		"url=http://":                  "https://",
		"url=ftp://example.com/":       "https://",
		"url=http://%zz/":              "percent-encode",
		"url=http://a/;b":              "percent-encode",
		"url=http://a/?b=c&d=e":        `no parameter "d"`,
		"url=http://a/&method=G%20T":   "method",
		"url=http://a/&header=Accept":  "header=Name:value",
		"url=http://a/&header=:b":      "header=Name:value",
		"url=http://a/&header=A%20b:c": "header=Name:value",
		"url=http://a/&header=Accept:a%0d%0aX:%20b":     "header=Name:value",
		"url=http://a/&header=Host:b":                   "url",
		"url=http://user%20@exa%20mple.com/&method=GET": "https://",
	} {
		isProblem(t, ask(a, "GET", "/api/explain?"+query, ""), 400, detail)
	}
}

// Whatever is explained could have come through the front door, and would have looked the same.
func FuzzImagined(f *testing.F) {
	f.Add("https://example.com/a?b=c", "GET", "Accept: text/html")
	f.Add("http://[::1]:8080//a%2Fb/../;c?d;e&f", "M-SEARCH", "X:\t y \t")
	f.Add("http://user:secret@example.com?", "", "cookie:")
	f.Add("http://example.com/a b?c d ", "GET", "Accept: text/html")
	f.Fuzz(func(t *testing.T, target, method, line string) {
		q := url.Values{"url": {target}, "method": {method}, "header": {line}}
		got, err := imagined(httptest.NewRequest("GET", "/api/explain?"+q.Encode(), nil))
		if err != nil {
			return
		}
		name, value, _ := strings.Cut(line, ":")
		wire := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s:%s\r\n\r\n", got.Method, got.RequestURI, got.Host, name, value)
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
		if err != nil {
			t.Fatalf("no server would read this (%v): %q", err, wire)
		}
		if got.Method != want.Method || got.Host != want.Host || *got.URL != *want.URL || !reflect.DeepEqual(got.Header, want.Header) {
			t.Errorf("%q is explained as\n%s %q %#v %v, a server sees\n%s %q %#v %v", wire,
				got.Method, got.Host, got.URL, got.Header, want.Method, want.Host, want.URL, want.Header)
		}
	})
}
