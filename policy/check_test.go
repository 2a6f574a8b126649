package policy

import (
	"strings"
	"testing"
	"time"
)

// Every mistake is named by route and key, all at once, with what would be right.
func TestNewNamesEveryProblem(t *testing.T) {
	for _, c := range []struct {
		change func(*Route)
		want   string
	}{
		{func(r *Route) { r.Name = "" }, `route "": name: is missing`},
		{func(r *Route) { r.Upstream = "apy" }, `route "x": upstream: "apy" is not defined: name one of api, img,`},
		{func(r *Route) { r.Match.Host = "*.*.com" }, `route "x": match.host: "*.*.com" is no host: write example.com, *.example.com`},
		{func(r *Route) { r.Match.Host = "http://a" }, `match.host`},
		{func(r *Route) { r.Match.Host = "a.test:http" }, `match.host`},
		{func(r *Route) { r.Match.Path = "catalogue" }, `match.path: "catalogue" is no path: write /page`},
		{func(r *Route) { r.Match.Path = "/a*b" }, `match.path`},
		{func(r *Route) { r.Match.Path = "/a?b=1" }, `match.path`},
		{func(r *Route) { r.Upstream = "two words" }, `upstream: "two words": an upstream's name has no blanks`},
		{func(r *Route) { r.Upstream = "a\x00" }, `upstream: "a\x00"`},
		{func(r *Route) { r.Cache.Key.Headers = []string{"Range"} }, `cache.key.headers: Range is not sent upstream`},
		{func(r *Route) { r.Cache.Key.Headers = []string{"te"} }, `cache.key.headers: Te`},
		{func(r *Route) { r.Match.Methods = []string{"get"} }, `match.methods: "get" is no method: they are in capitals`},
		{func(r *Route) { r.Bypass.Headers = []string{"a b"} }, `bypass.headers: "a b" is no field name`},
		{func(r *Route) { r.Headers.Set = []string{"X-A 1"} }, `headers.set: "X-A 1" is no field: write Name: value`},
		{func(r *Route) { r.Headers.Set = []string{"X-A: a\r\nb"} }, `headers.set`},
		{func(r *Route) { r.Headers.Remove = []string{""} }, `headers.remove`},
		{func(r *Route) { r.Cache.Particular = []string{"é"} }, `cache.particular`},
		{func(r *Route) { r.Cache.Tags.Header = []string{"a:"} }, `cache.tags.header`},
		{func(r *Route) { r.Cache.Key.Query.Ignore = []string{"u*m"} }, `cache.key.query.ignore: "u*m": write a name, or a prefix`},
		{func(r *Route) { r.Cache.Key.Query.Only = []string{""} }, `cache.key.query.only`},
		{func(r *Route) {
			r.Cache.Key.Headers, r.Cache.Ignore.Headers = []string{"x-a"}, []string{"X-A"}
		}, `cache.ignore.headers: X-A is in key.headers too`},
		{func(r *Route) {
			r.Cache.Key.Cookies, r.Cache.Ignore.Cookies = []string{"a"}, []string{"a"}
		}, `cache.ignore.cookies: a is in key.cookies too`},
		{func(r *Route) { r.Cache.TTL = -time.Second }, `cache.ttl: -1s is negative: write 0s for none`},
		{func(r *Route) { r.Cache.ForceTTL = -1 }, `cache.force_ttl`},
		{func(r *Route) { r.Cache.Grace.Well = -1 }, `cache.grace`},
		{func(r *Route) { r.Cache.StaleIfError = -1 }, `cache.stale_if_error`},
		{func(r *Route) { r.Cache.Keep = -1 }, `cache.keep`},
		{func(r *Route) { r.Cache.UncacheableFor = -1 }, `cache.uncacheable_for`},
		{func(r *Route) { r.Cache.Wait.Max = -1 }, `cache.wait.max`},
		{func(r *Route) { r.Cache.Jitter = 1.2 }, `cache.jitter: 120% would leave nothing of some lifetimes: write 0% to 99%`},
		{func(r *Route) { r.Cache.Jitter = 1 }, `cache.jitter: 100% would leave`},
		{func(r *Route) { r.Cache.SoftTimeout = -1 }, `cache.soft_timeout`},
		{func(r *Route) { r.Cache.Grace = Grace{time.Hour, time.Minute} }, `cache.grace: 1m0s for a sick upstream is less than 1h0m0s for a well one`},
		{func(r *Route) { r.Cache.ForceTTL, r.Cache.SetCookie = time.Hour, "keep" }, `cache.force_ttl: would hand one client's cookies to all`},
		{func(r *Route) { r.Cache.Negative = []Negative{{[]int{404, 410, 404}, 1}} }, `cache.negative: 404 has two lifetimes: drop one`},
		{func(r *Route) { r.Cache.Negative = []Negative{{nil, 1}} }, `cache.negative: names no status`},
		{func(r *Route) { r.Cache.EarlyRefresh.Mode = "always" }, `cache.early_refresh.mode: "always" is none of xfetch, power, off`},
		{func(r *Route) { r.Cache.EarlyRefresh.Mode = "xfetch" }, `cache.early_refresh.beta`},
		{func(r *Route) { r.Cache.EarlyRefresh.Mode = "power" }, `cache.early_refresh.exponent`},
		{func(r *Route) { r.Cache.Negative = []Negative{{[]int{404}, 0}} }, `cache.negative: a ttl of 0s keeps nothing`},
		{func(r *Route) { r.Cache.Negative = []Negative{{[]int{302}, 1}} }, `cache.negative: 302 is no error, and not empty: use ttl`},
		{func(r *Route) { r.Cache.Negative = []Negative{{[]int{404, 431}, 1}} }, `cache.negative: 431 is about the one request`},
		{func(r *Route) { r.Cache.Negative = []Negative{{[]int{416}, 1}} }, `cache.negative: 416 is about the one request`},
		{func(r *Route) { r.Cache.Negative = []Negative{{[]int{511}, 1}} }, `cache.negative: 511 may be stored by no cache (RFC 6585): drop it`},
		{func(r *Route) { r.Cache.SetCookie = "drop" }, `cache.set_cookie: "drop" is none of refuse, strip, keep`},
		{func(r *Route) { r.Cache.ClientDirectives = "honor" }, `cache.client_directives`},
		{func(r *Route) { r.Cache.Invalidate = "hard" }, `cache.invalidate`},
		{func(r *Route) { r.Cache.StaleDespite = []string{"no-store"} }, `cache.stale_despite: "no-store" is none of must-revalidate, proxy-revalidate, s-maxage, no-cache`},
		{func(r *Route) { r.Cache.StaleDespite = []string{""} }, `cache.stale_despite`},
		{func(r *Route) { r.Cache.Collapse = "none" }, `cache.collapse: "none" is none of rfc, all`},
		{func(r *Route) { r.Cache.Wait.Then = "504" }, `cache.wait.then`},
	} {
		good := Route{Name: "good", Upstream: "api"}
		bad := Route{Name: "x", Upstream: "img"}
		c.change(&bad)
		_, err := New(Config{Routes: []Route{good, bad}, Upstreams: []string{"api", "img", "two words", "a\x00"}})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("want %s\n got %v", c.want, err)
		}
	}
}

func TestNewReportsAllProblemsTogether(t *testing.T) {
	_, err := New(Config{Routes: []Route{
		{Name: "a", Upstream: "api", Match: Match{Path: "x"}}, {Name: "a", Upstream: "api", Cache: Cache{TTL: -1}},
	}, Upstreams: []string{"api"}})
	list, ok := err.(interface{ Unwrap() []error })
	if !ok || len(list.Unwrap()) != 3 {
		t.Fatalf("want three problems, got %v", err)
	}
	var routes []int
	for _, one := range list.Unwrap() {
		routes = append(routes, one.(Problem).Route)
	}
	if routes[0] != 0 || routes[1] != 1 || routes[2] != 1 {
		t.Errorf("they are of the routes %v, want 0, 1, 1", routes)
	}
}

func TestAConfigWithoutUpstreamsSaysSo(t *testing.T) {
	_, err := New(Config{Routes: []Route{{Name: "a", Upstream: "api"}}})
	if err == nil || !strings.Contains(err.Error(), "no upstream is defined") {
		t.Errorf("got %v", err)
	}
}

// What is suspicious is told by route and key, and what is ordinary is not.
func TestSuspicious(t *testing.T) {
	plain := Cache{
		TTL: 5 * time.Minute, Jitter: 0.2, StaleIfError: 24 * time.Hour, Grace: Grace{time.Minute, time.Hour}, UncacheableFor: time.Minute,
		EarlyRefresh: EarlyRule{Mode: "xfetch", Beta: 1}, SoftTimeout: time.Second, Negative: []Negative{{[]int{404}, 10 * time.Second}},
	}
	for _, c := range []struct {
		change func(*Cache)
		want   string
	}{
		{func(*Cache) {}, ""},
		// N = 1000/s * 300 s; (300000/4)^(1/4) = 16.55; Γ(5/4) = 0.9064; 16.55/0.9064 = 18.26.
		{func(c *Cache) { c.EarlyRefresh = EarlyRule{Mode: "power", Exponent: 3} }, "cache.early_refresh.mode: power refreshes a page that lives 5m0s and is asked for 1000 times a second about 18 times in its life"},
		// Without a ttl a minute is shown: (60000/2)^(1/2) = 173.2; Γ(3/2) = 0.8862; 195.4.
		{func(c *Cache) { c.TTL, c.EarlyRefresh = 0, EarlyRule{Mode: "power", Exponent: 1} }, "lives 1m0s and is asked for 1000 times a second about 195 times"},
		{func(c *Cache) { c.TTL, c.ForceTTL, c.Ignore.Cookies = 0, time.Minute, []string{"_ga"} }, "cache.force_ttl: keeps what is answered to requests whose cookies"},
		{func(c *Cache) { c.TTL, c.ForceTTL, c.SetCookie = 0, time.Minute, "strip" }, "cache.force_ttl: shares what sets a cookie"},
		{func(c *Cache) { c.ForceTTL = time.Minute }, "cache.ttl: is never used"},
		{func(c *Cache) { c.Jitter = 0 }, "cache.jitter: of 0%"},
		{func(c *Cache) { c.Negative[0].TTL = 2 * time.Hour }, "cache.negative: keeps an error for 2h0m0s"},
		{func(c *Cache) { c.StaleIfError = 31 * 24 * time.Hour }, "cache.stale_if_error: of 744h0m0s is longer than anything is kept: write 30d or less"},
		{func(c *Cache) {
			c.SoftTimeout, c.StaleIfError, c.Grace, c.StaleDespite = 0, 0, Grace{}, []string{"s-maxage"}
		}, "cache.stale_despite: is never used"},
		{func(c *Cache) { c.StaleIfError = 10 * time.Minute }, "cache.stale_if_error: is shorter than grace"},
		{func(c *Cache) { c.StaleIfError, c.Grace = 0, Grace{} }, "cache.soft_timeout: is never used"},
		{func(c *Cache) { c.Wait.Max = time.Second }, "cache.soft_timeout: is no sooner than wait.max"},
		{func(c *Cache) { c.UncacheableFor = 0 }, "cache.uncacheable_for: of 0s"},
	} {
		doubtful := plain
		doubtful.Negative = []Negative{{[]int{404}, 10 * time.Second}}
		c.change(&doubtful)
		got := Suspicious(Config{Routes: []Route{{Name: "good", Cache: plain}, {Name: "x", Cache: doubtful}}})
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("an ordinary route is suspicious: %v", got)
			}
			continue
		}
		if len(got) != 1 || got[0].Route != 1 || !strings.Contains(got[0].Error(), c.want) {
			t.Errorf("want %s\n got %v", c.want, got)
		}
	}
}
