package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/policy"
)

// load reads text as a file called weir.yaml.
func load(t *testing.T, text string, f Flags) (*Config, error) {
	t.Helper()
	base := shipped(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("weir.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Source{Default: base, File: "weir.yaml", Flags: f})
}

func loaded(t *testing.T, text string, f Flags) *Config {
	t.Helper()
	c, err := load(t, text, f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const small = `
listen: :7000
upstreams:
  - {name: api, url: http://127.0.0.1:9000}
routes:
  - {name: all, upstream: api}
`

// Each testdata/NAME.yaml is refused with exactly what NAME.txt says.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	base := shipped(t)
	t.Chdir("testdata")
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(name, ".yaml") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load(Source{Default: base, File: name})
			if err == nil {
				t.Fatalf("accepted; want\n%s", want)
			}
			if got := err.Error() + "\n"; got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Flag before variable before file before the shipped file.
func TestLayers(t *testing.T) {
	text := small + "drain: {lame_duck: 1s}\nstore: {max_body: 1MiB}\n"
	t.Setenv("WEIR_DRAIN_LAME_DUCK", "2s")
	t.Setenv("WEIR_LISTEN", ":7001")
	t.Setenv("WEIR_TRUSTED_PROXIES", "10.0.0.0/8, ::1")
	t.Setenv("WEIR_TELEMETRY_LOG_ACCESS", "false")
	t.Setenv("WEIR_CACHE_KEY_QUERY_IGNORE", "utm_*,fbclid")
	t.Setenv("WEIR_STORE_REDIS_PASSWORD", "0123")
	t.Setenv("WEIR_MEMORY_MAX_WAITING", "7")
	t.Setenv("WEIR_CACHE_JITTER", "5%")
	t.Setenv("WEIR_STORE_MAX_SIZE", "") // set to nothing is not set
	c := loaded(t, text, Flags{Listen: ":7002", LogLevel: "debug"})
	for _, is := range []struct {
		what      string
		got, want any
	}{
		{"flag over variable over file", c.Listen, ":7002"},
		{"flag", c.Telemetry.Log.Level, "debug"},
		{"variable over file", c.Drain.LameDuck, 2 * time.Second},
		{"default", c.Drain.Timeout, 30 * time.Second},
		{"file", c.Store.MaxBody, Size(1 << 20)},
		{"an empty variable", c.Store.MaxSize, Size(256 << 20)},
		{"list", c.TrustedProxies, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		{"bool", c.Telemetry.Log.Access, false},
		{"text that looks like a number", c.Store.Redis.Password, "0123"},
		{"number", c.Memory.MaxWaiting, 7},
		{"share", c.Cache.Jitter, policy.Percent(0.05)},
		{"routes inherit variables", c.Routes[0].Cache.Key.Query.Ignore, []string{"utm_*", "fbclid"}},
	} {
		if !reflect.DeepEqual(is.got, is.want) {
			t.Errorf("%s: got %v, want %v", is.what, is.got, is.want)
		}
	}
}

func TestBadVariables(t *testing.T) {
	for _, pair := range []string{
		"WEIR_DRAIN_TIMEOUT=90", "WEIR_STORE_REDIS_PASWORD=x", "WEIR_ROUTES=[]", "WEIR_UPSTREAMS_0_URL=http://x", "WEIR_CACHE=x",
		"WEIR_CACHE_NEGATIVE=404", "WEIR_ADMIN_LISTEN=nowhere",
		// Kubernetes sets these for Services called weir, weir-admin: not a slip.
		"WEIR_SERVICE_HOST=10.0.0.1", "WEIR_SERVICE_PORT=80", "WEIR_SERVICE_PORT_HTTP=80", "WEIR_PORT=tcp://10.0.0.1:80",
		"WEIR_PORT_80_TCP=tcp://10.0.0.1:80", "WEIR_PORT_80_TCP_ADDR=10.0.0.1", "WEIR_ADMIN_PORT_81_TCP_PROTO=tcp", "WEIR_ADMIN_SERVICE_HOST=10.0.0.2",
	} {
		name, text, _ := strings.Cut(pair, "=")
		t.Setenv(name, text)
	}
	_, err := load(t, small, Flags{})
	want := []string{
		"WEIR_CACHE: names no key; a key such as store.redis.timeout is WEIR_STORE_REDIS_TIMEOUT",
		"WEIR_CACHE_NEGATIVE: a list of entries can only be written in the file",
		"WEIR_DRAIN_TIMEOUT: 90 needs a unit: write 90s, 90m, 90h or 90d",
		"WEIR_ROUTES: a list of entries can only be written in the file",
		"WEIR_STORE_REDIS_PASWORD: names no key; did you mean WEIR_STORE_REDIS_PASSWORD?",
		"WEIR_UPSTREAMS_0_URL: upstreams, routes and warm can only be written in the file",
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

// What is found wrong after the layers were laid over each other is told of the layer it came from.
func TestProblemsNameTheirLayer(t *testing.T) {
	t.Setenv("WEIR_ADMIN_LISTEN", "nowhere")
	_, err := load(t, small+"telemetry: {log: {level: loud}}\n", Flags{Listen: "8080"})
	want := `weir.yaml:7: telemetry.log.level: "loud" is none of debug, info, warn, error
--listen: listen: "8080" is no address to listen on: write :8080 or 127.0.0.1:8080
WEIR_ADMIN_LISTEN: admin.listen: "nowhere" is no address: write host:port, such as 127.0.0.1:8081`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestRoutesInherit(t *testing.T) {
	c := loaded(t, `
cache:
  grace: 30s
  particular: [X-One, X-Two]
  wait: {max: 3s, then: upstream}
upstreams:
  - {name: api, url: http://127.0.0.1:9000, queue: 9}
routes:
  - name: plain
    upstream: api
  - name: own
    upstream: api
    cache: {ttl: 5m, grace: 0s, particular: [X-Three], wait: {max: 1s}}
  - name: last
    upstream: api
    cache:
`, Flags{})
	plain, own, last := c.Routes[0].Cache, c.Routes[1].Cache, c.Routes[2].Cache
	if plain.Grace.Well != 30*time.Second || plain.StaleIfError != 24*time.Hour || !reflect.DeepEqual(plain, last) {
		t.Errorf("a route that writes nothing has %+v", plain)
	}
	want := plain
	want.TTL, want.Grace.Well, want.Particular, want.Wait.Max = 5*time.Minute, 0, []string{"X-Three"}, time.Second
	if !reflect.DeepEqual(own, want) {
		t.Errorf("a route that writes some keys has\n%+v, want\n%+v", own, want)
	}
	if !reflect.DeepEqual(last.Particular, []string{"X-One", "X-Two"}) {
		t.Errorf("one route's list has changed another's: %v", last.Particular)
	}
	if u := c.Upstreams[0]; u.Queue != 9 || u.ConnectTimeout != 2*time.Second || u.MaxConcurrent != 64 {
		t.Errorf("an upstream that writes one key has %+v", u)
	}
}

// A grace is one value in two forms: whoever writes it writes all of it.
func TestGrace(t *testing.T) {
	t.Setenv("WEIR_CACHE_GRACE", "2m")
	c := loaded(t, `
cache: {grace: {well: 1m, sick: 1d}}
upstreams: [{name: api, url: "http://127.0.0.1:9000"}]
routes:
  - {name: inherits, upstream: api}
  - {name: both, upstream: api, cache: {grace: {well: 1h, sick: 24h}}}
  - {name: one, upstream: api, cache: {grace: 30s}}
  - {name: sick, upstream: api, cache: {grace: {sick: 24h}}}
`, Flags{})
	for i, want := range []policy.Grace{{Well: 2 * time.Minute}, {Well: time.Hour, Sick: 24 * time.Hour}, {Well: 30 * time.Second}, {Sick: 24 * time.Hour}} {
		if got := c.Routes[i].Cache.Grace; got != want {
			t.Errorf("route %s: %+v, want %+v", c.Routes[i].Name, got, want)
		}
	}
}

// What is suspicious is told with its line, once, and is not refused.
func TestWarnings(t *testing.T) {
	base := shipped(t)
	t.Chdir(t.TempDir())
	text := `
cache:
  jitter: 0%
  early_refresh: {mode: power}
upstreams: [{name: api, url: "http://127.0.0.1:9000"}]
routes:
  - name: one
    upstream: api
    match: {path: /one}
    cache:
      ttl: 5m
  - name: two
    upstream: api
    cache:
      jitter: 10%
      force_ttl: 5m
      ignore: {cookies: [_ga]}
    bypass: {query: [now]}
warm:
  - name: hot
    urls:
      - http://www.example.com/
      - /?now=1
`
	if err := os.WriteFile("weir.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Warnings(Source{Default: base, File: "weir.yaml"})
	want := []string{
		"weir.yaml:3: cache.jitter: of 0% lets pages",
		"weir.yaml:4: cache.early_refresh.mode: power refreshes a page that lives 5m0s",
		"weir.yaml:16: routes[1].cache.force_ttl: keeps what is answered",
		"weir.yaml:23: warm[0].urls[1]: http://www.example.com/?now=1 cannot be kept",
	}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i].String(), want[i]) {
			t.Errorf("%s\nwant %s…", got[i], want[i])
		}
	}
	if _, err := Load(Source{Default: base, File: "weir.yaml"}); err != nil {
		t.Errorf("refused: %v", err)
	}
}

func TestAnchors(t *testing.T) {
	c := loaded(t, `
upstreams:
  - &api {name: api, url: http://127.0.0.1:9000, queue: 9}
  - {<<: *api, name: other}
routes:
  - name: one
    upstream: api
    cache: &pages {ttl: 5m, grace: 1m}
  - name: two
    upstream: other
    cache: {<<: *pages, grace: 2m}
  - {name: three, upstream: api, cache: *pages}
`, Flags{})
	if u := c.Upstreams[1]; u.Name != "other" || u.Queue != 9 || u.URL != "http://127.0.0.1:9000" {
		t.Errorf("merged upstream: %+v", u)
	}
	two, three := c.Routes[1].Cache, c.Routes[2].Cache
	if two.TTL != 5*time.Minute || two.Grace.Well != 2*time.Minute || three.Grace.Well != time.Minute {
		t.Errorf("merged caches: %+v, %+v", two, three)
	}
}

func TestUpstreamFlag(t *testing.T) {
	text := `
cache: {set_cookie: strip, ttl: 1s}
upstreams:
  - {name: a, url: http://127.0.0.1:1}
  - {name: b, url: http://127.0.0.1:2}
routes:
  - {name: r, upstream: a, match: {path: /x}}
  - {name: s, upstream: nobody}
`
	c := loaded(t, text, Flags{Upstream: "http://127.0.0.1:9000", TTL: "5m", Grace: "1d"})
	if len(c.Upstreams) != 1 || c.Upstreams[0].Name != "default" || c.Upstreams[0].URL != "http://127.0.0.1:9000" || c.Upstreams[0].Queue != 256 {
		t.Errorf("upstreams: %+v", c.Upstreams)
	}
	if len(c.Routes) != 1 {
		t.Fatalf("routes: %+v", c.Routes)
	}
	want := policy.Route{Name: "default", Upstream: "default", Cache: c.Cache}
	want.Cache.TTL, want.Cache.Grace.Well = 5*time.Minute, 24*time.Hour
	if r := c.Routes[0]; !reflect.DeepEqual(r, want) || r.Cache.SetCookie != "strip" {
		t.Errorf("route:\n%+v, want\n%+v", r, want)
	}
	if c.Cache.TTL != time.Second {
		t.Errorf("--ttl changed the top-level cache: %v", c.Cache.TTL)
	}
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		flags Flags
		want  string
	}{
		{Flags{Upstream: "127.0.0.1:9000"}, "--upstream: is a URL: write http://127.0.0.1:9000"},
		{Flags{Upstream: "ftp://127.0.0.1:9000"}, `--upstream: upstreams[0].url: "ftp://127.0.0.1:9000": write http://host:port or https://host:port`},
		{Flags{TTL: "5m"}, "--ttl: belongs to --upstream; without it, write ttl in the file"},
		{Flags{Upstream: "http://127.0.0.1:9000", Grace: "5"}, "--grace: 5 needs a unit: write 5s, 5m, 5h or 5d"},
		{Flags{LogLevel: "loud"}, `--log-level: telemetry.log.level: "loud" is none of debug, info, warn, error`},
	} {
		if _, err := load(t, small, c.flags); err == nil || err.Error() != c.want {
			t.Errorf("%+v: got\n%v\nwant\n%s", c.flags, err, c.want)
		}
	}
}

func TestRedisFlagChoosesTheStore(t *testing.T) {
	c := loaded(t, small, Flags{Redis: "127.0.0.1:6380"})
	if c.Store.Kind != "redis" || !reflect.DeepEqual(c.Store.Redis.Addresses, []string{"127.0.0.1:6380"}) {
		t.Errorf("store: %+v", c.Store)
	}
}

// Without a named file the ordinary one is read if it is there; a named one must be.
func TestWhichFile(t *testing.T) {
	base := shipped(t)
	t.Chdir(t.TempDir())
	flags := Flags{Upstream: "http://127.0.0.1:9000"}
	if c, err := Load(Source{Default: base, Flags: flags}); err != nil || c.Listen != ":8080" {
		t.Errorf("without any file: %v", err)
	}
	if err := os.WriteFile(Ordinary, []byte("listen: :7777"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(Source{Default: base, Flags: flags}); err != nil || c.Listen != ":7777" {
		t.Errorf("with config.yaml here: %v", err)
	}
	_, err := Load(Source{Default: base, File: "absent.yaml", Flags: flags})
	if want := "absent.yaml: cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = Load(Source{Default: base})
	if want := "config.yaml: no upstreams and no routes; to start, name one: weir serve --upstream http://127.0.0.1:9000"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAdminOfNeedsNoUpstream(t *testing.T) {
	t.Setenv("WEIR_ADMIN_TOKEN", "secret")
	a, err := AdminOf(Source{Default: shipped(t), Flags: Flags{Admin: "127.0.0.1:9999"}})
	if err != nil || a.Listen != "127.0.0.1:9999" || a.Token != "secret" {
		t.Errorf("got %+v, %v", a, err)
	}
}

// No text makes the reader panic or hang, and what it accepts decodes.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(small))
	f.Add([]byte("a: &a {<<: *a}"))
	f.Add([]byte("cache: &c {<<: [*c, *c]}"))
	base, err := os.ReadFile("../../config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &reader{file: "f", set: places{}}
		read := r.document(text)
		if len(r.wrong) > 0 {
			return
		}
		basis := &reader{file: "b", set: places{}}
		c, err := decode(basis.document(base), read, nil)
		if err != nil {
			t.Fatalf("accepted by the reader, refused by the decoder: %v\n%s", err, text)
		}
		c.check(r.set)
	})
}
