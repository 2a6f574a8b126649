package warm

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/policy"
)

func TestParseEvery(t *testing.T) {
	monday := time.Date(2026, 11, 30, 12, 1, 0, 0, time.UTC)
	kept := policy.Stored{Response: policy.Response{Arrived: monday}, FreshUntil: monday.Add(10 * time.Minute)}
	for text, want := range map[string]time.Duration{
		"80%": 8 * time.Minute, " 12.5 % ": 75 * time.Second, "99%": 594 * time.Second,
		"30s": 30 * time.Second, "1s": time.Second,
		"*/5 * * * *": 4 * time.Minute, "0 3 * * *": 14*time.Hour + 59*time.Minute,
		"0 12 * * MON": 7*24*time.Hour - time.Minute, "CRON_TZ=Europe/Berlin 30 13 * * *": 29 * time.Minute,
	} {
		e, err := ParseEvery(text, time.ParseDuration)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := e.after(kept, 0).Sub(monday); got != want || e.String() != strings.TrimSpace(text) {
			t.Errorf("%q (%s): after %v, want %v", text, e, got, want)
		}
	}
	for text, want := range map[string]string{
		"": "none of", "often": "none of", "5": "none of", "0%": "from 1% to 99%", "100%": "from 1% to 99%", "NaN%": "from 1% to 99%", "%": "from 1% to 99%",
		"0s": "1s or more", "-5s": "1s or more", "10ms": "1s or more",
		"* * * *": "not cron", "* * * * * *": "not cron", "@hourly": "not cron", "@every 5m": "not cron", "61 * * * *": "not cron", "TZ=X": "none of", "TZ=X *": "not cron",
		"CRON_TZ=Nowhere/Town * * * * *": "not cron", "0 0 31 2 *": "never comes",
	} {
		if _, err := ParseEvery(text, time.ParseDuration); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that says %q", text, err, want)
		}
	}
}

// However short a page lives, it is left alone for a second; without a lifetime to take a share of, for ten minutes.
func TestAfterIsBounded(t *testing.T) {
	e, err := ParseEvery("80%", time.ParseDuration)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for life, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: time.Second, -time.Minute: 9 * time.Minute, 0: 9 * time.Minute, 100 * time.Second: 72 * time.Second,
	} {
		kept := policy.Stored{Response: policy.Response{Arrived: now}, FreshUntil: now.Add(life)}
		if got := e.after(kept, 1).Sub(now); got != want {
			t.Errorf("a lifetime of %v: after %v at the earliest, want %v", life, got, want)
		}
	}
}

// A clock's moments, however rare, and either of day and weekday where both are named.
func TestClock(t *testing.T) {
	for text, want := range map[string]string{
		"0 0 30 3 1":     "2027-03-01", // a Monday: 2026-11-30 is one, 13 weeks before
		"0 0 29 2 *":     "2028-02-29",
		"0 0 13 * *":     "2026-12-13",
		"30 12 30 11 *":  "2026-11-30",
		"0 12 * * MON":   "2026-12-07", // not the moment itself
		"0 0 1 1 *":      "2027-01-01",
		"*/5 * 1 * *":    "2026-12-01",
		"0 0 31 4,6,1 *": "2027-01-31",
	} {
		e, err := ParseEvery(text, time.ParseDuration)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		if got := e.after(policy.Stored{Response: policy.Response{Arrived: now}}, 0).Format(time.DateOnly); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func FuzzParseEvery(f *testing.F) {
	for _, text := range []string{"80%", "30s", "*/5 * * * *", "0 0 31 2 *", "0 0 30 3 1", "CRON_TZ=UTC 0 0 L * *", "1e3%", "9999999h", "*/0 * * * *", "0-59/2,3 1-2 * JAN-DEC 0-7"} {
		f.Add(text, int64(time.Hour), 0.5)
	}
	f.Fuzz(func(t *testing.T, text string, life int64, dice float64) {
		e, err := ParseEvery(text, time.ParseDuration)
		if err != nil || !(dice >= 0 && dice < 1) {
			return
		}
		if again, err := ParseEvery(e.String(), time.ParseDuration); err != nil || again.String() != e.String() {
			t.Errorf("%q reads back as %q, %v", text, again, err)
		}
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		kept := policy.Stored{Response: policy.Response{Arrived: now}, FreshUntil: now.Add(time.Duration(life % math.MaxInt32))}
		if at := e.after(kept, dice); !at.After(now) {
			t.Errorf("%q of a page that lives %v: due at %v, which is not after it came", text, kept.Lifetime(), at)
		}
	})
}

func TestValidate(t *testing.T) {
	right := func(change func(*Config)) Config {
		c := Config{Name: "hot", URLs: []string{"http://weir.test/"}, Concurrency: 4}
		change(&c)
		return c
	}
	for want, c := range map[string]Config{
		"":                                      right(func(c *Config) {}),
		"name: \"\" is no name":                 right(func(c *Config) { c.Name = "" }),
		"name: \"a b\" is no name":              right(func(c *Config) { c.Name = "a b" }),
		"names no pages: write urls":            right(func(c *Config) { c.URLs = nil }),
		"names pages in 2 ways: keep one":       right(func(c *Config) { c.Sitemap = "http://weir.test/sitemap.xml" }),
		"headers[0]: \"X\" is no field":         right(func(c *Config) { c.Headers = []string{"X"} }),
		"headers[1]: \"X Y: 1\" is no field":    right(func(c *Config) { c.Headers = []string{"X: 1", "X Y: 1"} }),
		"headers[0]: \"X: a\\rb\" is no field":  right(func(c *Config) { c.Headers = []string{"X: a\rb"} }),
		"headers[0]: the host is told by the":   right(func(c *Config) { c.Headers = []string{"Host: other"} }),
		"concurrency: 0 would warm nothing":     right(func(c *Config) { c.Concurrency = 0 }),
		"concurrency: 65 pages at once would c": right(func(c *Config) { c.Concurrency = 65 }),
	} {
		if err := c.Validate(); err == nil && want != "" || err != nil && (want == "" || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What no route serves is wrong, what a route never keeps is odd.
func TestServedAndDoubts(t *testing.T) {
	p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{
		{Name: "cart", Upstream: "api", Match: policy.Match{Host: "weir.test", Path: "/cart"}, Bypass: policy.BypassRules{Query: []string{"now"}}},
		{Name: "rest", Upstream: "api", Match: policy.Match{Host: "weir.test", Path: "/shop/*"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "urls.txt")
	text := "http://weir.test/shop/1\n/shop/2 # a path alone\n\n# nothing\n/elsewhere\nhttps://weir.test/shop/1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		Config
		wrong, odd []string
	}{
		"right":   {Config: Config{URLs: []string{"https://weir.test/shop/1", "/cart"}}},
		"host":    {Config: Config{URLs: []string{"/cart"}}, wrong: []string{`urls[0]: "/cart" names no site`}},
		"whole":   {Config: Config{URLs: []string{"weir.test/cart"}}, wrong: []string{`urls[0]: "weir.test/cart" is not whole`}},
		"user":    {Config: Config{URLs: []string{"http://me:secret@weir.test/cart"}}, wrong: []string{"urls[0]: "}},
		"unknown": {Config: Config{URLs: []string{"http://weir.test/cart", "http://other.test/cart", "/else"}}, wrong: []string{"urls[1]: http://other.test/cart: no route serves this host", "urls[2]: http://other.test/else"}},
		"sitemap": {Config: Config{Sitemap: "http://other.test/sitemap.xml"}, wrong: []string{"sitemap: http://other.test/sitemap.xml: no route"}},
		"file":    {Config: Config{File: file}, wrong: []string{"file: " + file + ":5: http://weir.test/elsewhere: no route serves this path"}},
		"no file": {Config: Config{File: file + "s"}, wrong: []string{"file: " + file + "s cannot be read: no such file"}},
		"bypass":  {Config: Config{URLs: []string{"http://weir.test/cart?now=1"}}, odd: []string{"urls[0]: http://weir.test/cart?now=1 cannot be kept"}},
		"cookie":  {Config: Config{URLs: []string{"http://weir.test/cart", "/shop/1"}, Headers: []string{"Cookie: id=1"}}, odd: []string{"headers: Cookie tells who asks", "headers: Cookie tells who asks"}},
	} {
		for what, got := range map[string]struct {
			err  error
			want []string
		}{"wrong": {c.Served(p), c.wrong}, "odd": {c.Doubts(p), c.odd}} {
			faults := flat(got.err)
			if len(faults) != len(got.want) {
				t.Errorf("%s: %s: %v, want %q", name, what, got.err, got.want)
				continue
			}
			for i, want := range got.want {
				if !strings.HasPrefix(faults[i].Error(), want) {
					t.Errorf("%s: %s: %q, want %q", name, what, faults[i], want)
				}
			}
		}
	}
}

func flat(err error) []error {
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		return all.Unwrap()
	}
	return nil
}

// A list that is all wrong is told in a few lines.
func TestFaultsAreFew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "urls.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("nonsense\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(flat(Config{File: file}.Served(p))); n != mostFaults {
		t.Errorf("%d faults, want %d", n, mostFaults)
	}
}
