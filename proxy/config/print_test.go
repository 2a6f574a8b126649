package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

const rich = `
listen: 127.0.0.1:7000
admin: {token: hush}
trusted_proxies: [10.0.0.0/8, "::1"]
store: {kind: redis, max_size: 1GB, redis: {password: "quiet # one", addresses: ["127.0.0.1:6379"]}}
cache: {jitter: 12.5%, grace: 90s, negative: [{status: [404, 410], ttl: 10s}]}
upstreams:
  - {name: api, url: http://127.0.0.1:9000}
  - {name: two, urls: [http://127.0.0.1:9001, http://127.0.0.1:9002]}
routes:
  - {name: first, upstream: two, match: {host: "*.example.com", path: "/x/*"}, headers: {set: ["X-A: b"]}, cache: {ttl: 1h30m, grace: {well: 1h, sick: 1d}}}
  - {name: all, upstream: api}
warm:
  - {name: hot, urls: [http://www.example.com/], headers: ["Accept-Language: de"], every: "*/5 * * * *"}
  - {name: map, sitemap: http://www.example.com/sitemap.xml, every: 1d}
`

func TestYAMLReadsBackAsTheSame(t *testing.T) {
	base := shipped(t)
	c := loaded(t, rich, Flags{})
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hush", "quiet"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the secret %q is printed:\n%s", secret, text)
		}
	}
	if err := os.WriteFile("again.yaml", text, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Load(Source{Default: base, File: "again.yaml"})
	if err != nil {
		t.Fatalf("what is printed is refused: %v\n%s", err, text)
	}
	again.Admin.Token, again.Store.Redis.Password = c.Admin.Token, c.Store.Redis.Password
	twice, err := again.YAML()
	if err != nil || string(twice) != string(text) {
		t.Errorf("printed\n%s\nread and printed again\n%s", text, twice)
	}
}

func TestRestart(t *testing.T) {
	old := loaded(t, rich, Flags{})
	now := loaded(t, strings.NewReplacer(
		"listen: 127.0.0.1:7000", "listen: 127.0.0.1:7001", "grace: 90s", "grace: 91s", "1GB", "2GB", "127.0.0.1:9001", "127.0.0.1:9003", "1h30m", "1h", "every: 1d", "every: 2d",
	).Replace(rich)+"telemetry: {log: {level: debug}}\n", Flags{})
	want := []string{"listen", "store.max_size", "upstreams"}
	if got := Restart(old, now); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Restart(old, old); len(got) > 0 {
		t.Errorf("nothing changed, and yet %v", got)
	}
}

func TestLoosenedAndWithoutLifetime(t *testing.T) {
	const text = `
upstreams: [{name: api, url: "http://127.0.0.1:9000"}]
routes:
  - {name: strict, upstream: api, match: {path: /a}}
  - name: loose
    upstream: api
    cache:
      force_ttl: 5m
      set_cookie: strip
      stale_despite: [s-maxage, no-cache]
      ignore: {cookies: [_ga]}
`
	c := loaded(t, text, Flags{})
	if names := c.WithoutLifetime(); !reflect.DeepEqual(names, []string{"strict"}) {
		t.Errorf("without lifetime: %v", names)
	}
	base := shipped(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("weir.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Loosened(Source{Default: base, File: "weir.yaml"})
	want := []string{
		"weir.yaml:8: routes[1].cache.force_ttl: answers are kept whatever they say",
		"weir.yaml:9: routes[1].cache.set_cookie: strip: answers that set cookies are shared",
		"weir.yaml:10: routes[1].cache.stale_despite: s-maxage, no-cache: stale answers are served all the same",
		"weir.yaml:11: routes[1].cache.ignore.cookies: _ga: who asks by these makes no difference",
	}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	for i := range want {
		if got[i].String() != want[i] {
			t.Errorf("%s, want %s", got[i], want[i])
		}
	}
}
