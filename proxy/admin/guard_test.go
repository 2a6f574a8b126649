package admin

import (
	"net/http"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	remote := New((&house{}).options(Config{Listen: ":8081", Token: "s3cret"}))
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"none", func(*http.Request) {}, 401},
		{"right", field("Authorization", "Bearer s3cret"), 200},
		{"the scheme's case is free", field("Authorization", "bearer s3cret"), 200},
		{"wrong", field("Authorization", "Bearer secret"), 401},
		{"a beginning", field("Authorization", "Bearer s3cre"), 401},
		{"more", field("Authorization", "Bearer s3crets"), 401},
		{"empty", field("Authorization", "Bearer "), 401},
		{"no scheme", field("Authorization", "s3cret"), 401},
		{"another scheme", field("Authorization", "Basic s3cret"), 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, target := range []string{"/api/status", "/api/keys", "/api/purge"} {
				method := map[string]string{"/api/status": "GET", "/api/keys": "GET", "/api/purge": "POST"}[target]
				w := ask(remote, method, target, `{"all":true}`, host("weir.example.com"), c.change)
				if w.Code != c.want {
					t.Errorf("%s: %d, want %d", target, w.Code, c.want)
				}
				if c.want == 401 {
					isProblem(t, w, 401, "admin.token")
					if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer ") {
						t.Error("a 401 without a challenge")
					}
				}
			}
		})
	}
	for _, target := range []string{"/healthz", "/readyz", "/metrics"} {
		if w := ask(remote, "GET", target, "", host("weir.example.com")); w.Code != 200 {
			t.Errorf("%s asks for a token: %d", target, w.Code)
		}
	}
	// A stranger does not learn which paths and methods there are.
	isProblem(t, ask(remote, "GET", "/api/purge", ""), 401, "token")
	isProblem(t, ask(remote, "GET", "/nothing", ""), 401, "token")
}

// Validate refuses this configuration; should it get here all the same, nothing is open that a token should guard.
func TestOpenToTheWorld(t *testing.T) {
	a := New((&house{}).options(Config{Listen: ":8081"}))
	isProblem(t, ask(a, "GET", "/api/status", "", field("Authorization", "Bearer ")), 401, "token")
	isProblem(t, ask(a, "POST", "/api/purge", `{"all":true}`), 401, "token")
	is(t, ask(a, "GET", "/healthz", ""), 200, `{"alive":true}`)
}

// No token is set: the empty one opens nothing that was closed, and closes nothing that was open.
func TestEmptyToken(t *testing.T) {
	a := New((&house{}).options(local))
	if w := ask(a, "GET", "/api/status", "", field("Authorization", "Bearer ")); w.Code != 200 {
		t.Errorf("on loopback: %d", w.Code)
	}
	if w := ask(a, "GET", "/api/status", "", field("Authorization", "Bearer "), host("evil.example")); w.Code != 421 {
		t.Errorf("an empty token stands in for a loopback name: %d", w.Code)
	}
}

// A page can have its own name point here, and then is of the same origin as we are.
func TestRebinding(t *testing.T) {
	a := New((&house{}).options(local))
	for name, want := range map[string]int{
		"127.0.0.1:8081": 200, "127.0.0.1": 200, "127.8.8.8:1": 200, "[::1]:8081": 200, "[::1]": 200, "[::ffff:127.0.0.1]:80": 200,
		"localhost:8081": 200, "LocalHost": 200, "localhost.": 200, "weir.localhost:8081": 200,
		"evil.example": 421, "evil.example:8081": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "notlocalhost": 421,
		"10.0.0.1:8081": 421, "0.0.0.0:8081": 421, "2130706433": 421, "": 200,
	} {
		for _, target := range []string{"/healthz", "/readyz", "/metrics", "/api/status"} {
			if w := ask(a, "GET", target, "", host(name)); w.Code != want {
				t.Errorf("Host %q, %s: %d, want %d", name, target, w.Code, want)
			}
		}
	}
	isProblem(t, ask(a, "POST", "/api/purge", `{"all":true}`, host("evil.example")), 421, "localhost")

	guarded := New((&house{}).options(Config{Listen: "localhost:8081", Token: "s3cret"}))
	if w := ask(guarded, "GET", "/metrics", "", host("tunnel.example"), field("Authorization", "Bearer s3cret")); w.Code != 200 {
		t.Errorf("who has the token may come by any name: %d", w.Code)
	}
	isProblem(t, ask(guarded, "GET", "/api/status", ""), 401, "token") // it guards on loopback too
}

func TestOtherOrigins(t *testing.T) {
	h := &house{}
	a := New(h.options(local))
	for _, change := range []func(*http.Request){
		field("Sec-Fetch-Site", "cross-site"), field("Sec-Fetch-Site", "same-site"), field("Origin", "https://evil.example"),
		field("Origin", "null"), field("Origin", "http://127.0.0.1:9999"),
	} {
		isProblem(t, ask(a, "POST", "/api/purge", `{"all":true}`, change), 403, "origin")
	}
	if len(h.asked) > 0 {
		t.Errorf("a page of another origin purged: %v", h.asked)
	}
	for _, change := range []func(*http.Request){
		func(*http.Request) {}, field("Sec-Fetch-Site", "same-origin"), field("Origin", "http://127.0.0.1:8081"),
	} {
		if w := ask(a, "POST", "/api/purge", `{"all":true}`, change); w.Code != 200 {
			t.Errorf("refused: %d %s", w.Code, w.Body)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string // what the fault begins with
	}{
		{Config{Listen: "127.0.0.1:8081"}, ""},
		{Config{Listen: "localhost:0"}, ""},
		{Config{Listen: "[::1]:8081"}, ""},
		{Config{Listen: "127.0.0.1:8081", Token: "s3cret"}, ""},
		{Config{Listen: ":8081", Token: "s3cret"}, ""},
		{Config{Listen: ":8081"}, "token: "},
		{Config{Listen: "0.0.0.0:8081"}, "token: "},
		{Config{Listen: "[::]:8081"}, "token: "},
		{Config{Listen: "10.0.0.1:8081"}, "token: "},
		{Config{Listen: "weir.example.com:8081"}, "token: "},
		{Config{Listen: ""}, "listen: "},
		{Config{Listen: "8081"}, "listen: "},
		{Config{Listen: "127.0.0.1"}, "listen: "},
		{Config{Listen: "127.0.0.1:http"}, "listen: "},
		{Config{Listen: "127.0.0.1:65536"}, "listen: "},
		{Config{Listen: ":8081", Token: "two words"}, "token: "},
		{Config{Listen: ":8081", Token: "line\n"}, "token: "},
	} {
		err := c.config.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}
