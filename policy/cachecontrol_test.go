package policy

import (
	"net/http"
	"strings"
	"testing"
)

func TestResponseDirectivesAreCleaned(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{`MAX-AGE=60, S-MaxAge=5`, `max-age=60, s-maxage=5`},
		{`max-age="60"`, `max-age=60`},
		{`max-age='60'`, `max-age=0`},
		{`max-age=60, max-age=10`, `max-age=10`},
		{`max-age=10|max-age=60`, `max-age=10`},
		{`max-age=60|no-store`, `max-age=60, no-store`},
		{`s-maxage=-5, no-store`, `s-maxage=0, no-store`},
		{`max-age=3.5`, `max-age=0`},
		{`max-age=60s`, `max-age=0`},
		{`max-age=+60`, `max-age=0`},
		{`max-age=99999999999999999999`, `max-age=2147483647`},
		{`max-age=2147483648`, `max-age=2147483647`},
		{`max-age=003600`, `max-age=3600`},
		{`max-age`, `max-age=0`},
		{`max-age=`, `max-age=0`},
		{`max-age =60`, `max-age=0`},
		{`max-age= 60`, `max-age=0`},
		{`max-age=60;s-maxage=5`, `max-age=0`},
		{`max-age=60 public`, `max-age=60, public`},
		{`,,, ,max-age=60,,`, `max-age=60`},
		{`no-store=1`, `no-store`},
		{`public=1, max-age=60, must-revalidate="x", immutable=1`, `public, max-age=60, must-revalidate, immutable`},
		{`private="Set-Cookie, X-Foo", max-age=60`, `private="Set-Cookie,X-Foo", max-age=60`},
		{`private=Set-Cookie,max-age=60`, `private="Set-Cookie", max-age=60`},
		{`no-cache=Set-Cookie,max-age=60,no-store`, `no-cache="Set-Cookie", max-age=60, no-store`},
		{`no-cache, no-cache="Set-Cookie"`, `no-cache`},
		{`no-cache="Set-Cookie", no-cache`, `no-cache`},
		{`no-cache="A", no-cache="B"`, `no-cache="A,B"`},
		{`no-cache="", private=""`, `no-cache, private`},
		{`private="a b/c"`, `private`},
		{`private="X F", max-age=60`, `private, max-age=60`},
		{`no-cache="a b"`, `no-cache`},
		{`private=1, max-age=60`, `private, max-age=60`},
		{`no-cache=true`, `no-cache`},
		{`no-cache="A, b c", no-cache="D"`, `no-cache`},
		{"private=\"X-A ,\tX-B,,\"", `private="X-A,X-B"`},
		{`private=" "`, `private`},
		{`private=","`, `private`},
		{`stale-while-revalidate=30, stale-if-error=120`, `stale-while-revalidate=30, stale-if-error=120`},
		{`stale-while-revalidate, stale-if-error=abc`, ``},
		{`stale-if-error=5, stale-if-error=3`, `stale-if-error=3`},
		{`community="UCI, max-age=1"`, ``},
		{`ext="a\"b, no-store", max-age=1`, `max-age=1`},
		{`foo="bar"no-store`, `no-store`},
		{`"no-store", max-age=1`, `max-age=1`},
		{`no-store;public`, `no-store, public`},
		{``, ``},
	} {
		members, ok := readDirectives(strings.Split(c.lines, "|"))
		if got := members.cleaned(responseForm); !ok || got != c.want {
			t.Errorf("%s\n got %q, %v\nwant %q", c.lines, got, ok, c.want)
		}
	}
}

func TestDirectivesThatCannotBeReadInFullForbidStoring(t *testing.T) {
	for name, line := range map[string]string{
		"too long":         "max-age=60, " + strings.Repeat("x", maxDirectiveBytes),
		"too many":         "max-age=60" + strings.Repeat(",a", maxDirectives),
		"a quote unclosed": `max-age=60, foo="bar`,
		"ends in escape":   `max-age=60, foo="bar\`,
	} {
		h := http.Header{"Cache-Control": {line}}
		if d := parseResponse(h); !d.NoStore {
			t.Errorf("%s: a response may be stored", name)
		}
		if d := parseRequest(h); !d.noStore {
			t.Errorf("%s: a request's answer may be stored", name)
		}
	}
}

func TestRequestDirectives(t *testing.T) {
	none := requestDirectives{maxAge: -1, minFresh: -1, maxStale: -1, staleIfError: -1}
	with := func(change func(*requestDirectives)) requestDirectives { d := none; change(&d); return d }
	for _, c := range []struct {
		header http.Header
		want   requestDirectives
	}{
		{http.Header{}, none},
		{http.Header{"Cache-Control": {"no-cache=x"}}, with(func(d *requestDirectives) { d.noCache = true })},
		{http.Header{"Cache-Control": {"max-age=abc, No-Cache"}}, with(func(d *requestDirectives) { d.noCache = true })},
		{http.Header{"Cache-Control": {"max-age=9, max-age=5"}}, with(func(d *requestDirectives) { d.maxAge = 5 })},
		{http.Header{"Cache-Control": {"min-fresh=5", "min-fresh=9"}}, with(func(d *requestDirectives) { d.minFresh = 9 })},
		{http.Header{"Cache-Control": {"max-stale"}}, with(func(d *requestDirectives) { d.anyStale = true })},
		{http.Header{"Cache-Control": {"max-stale, max-stale=4"}}, with(func(d *requestDirectives) { d.maxStale = 4 })},
		{http.Header{"Cache-Control": {"max-stale=x"}}, none},
		{http.Header{"Cache-Control": {"stale-if-error=0"}}, with(func(d *requestDirectives) { d.staleIfError = 0 })},
		{http.Header{"Cache-Control": {"no-store, only-if-cached=1"}}, with(func(d *requestDirectives) { d.noStore, d.onlyIfCached = true, true })},
		{http.Header{"Pragma": {"foo, No-Cache"}}, with(func(d *requestDirectives) { d.noCache = true })},
		{http.Header{"Pragma": {"no-cache"}, "Cache-Control": {""}}, none},
	} {
		if got := parseRequest(c.header); got != c.want {
			t.Errorf("%v\n got %+v\nwant %+v", c.header, got, c.want)
		}
	}
}

// FuzzResponseDirectives: cleaning is stable, the library reads what was cleaned, and no-store standing free among
// commas is never lost, whatever surrounds it.
func FuzzResponseDirectives(f *testing.F) {
	for _, s := range []string{
		`max-age=60, no-store`, `private="a,b", no-cache`, `ext="a\"b"`, `foo="`, `=,=;"`, `no-cache=Set-Cookie,max-age=60`,
		`max-age=99999999999999999999999`, strings.Repeat(`a="",`, 30),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		members, ok := readDirectives([]string{s})
		if ok {
			clean := members.cleaned(responseForm)
			again, ok := readDirectives([]string{clean})
			if !ok || again.cleaned(responseForm) != clean {
				t.Fatalf("%q is cleaned to %q, that to %q", s, clean, again.cleaned(responseForm))
			}
			// What the library cannot read is taken for no-store.
			_, said := members.find("no-store")
			if parseResponse(http.Header{"Cache-Control": {s}}).NoStore != said {
				t.Fatalf("%q is cleaned to %q, which the library cannot read", s, clean)
			}
		}
		for _, line := range []string{s + ",no-store", "no-store," + s} {
			if !strings.Contains(s, `"`) && !parseResponse(http.Header{"Cache-Control": {line}}).NoStore {
				t.Fatalf("no-store is lost in %q", line)
			}
		}
		if !parseResponse(http.Header{"Cache-Control": {s, "no-store"}}).NoStore {
			t.Fatalf("no-store on a line of its own is lost behind %q", s)
		}
	})
}

// FuzzRequestDirectives: the client cannot break the parser, nor hide no-store.
func FuzzRequestDirectives(f *testing.F) {
	for _, s := range []string{`max-age=0`, `max-stale`, `min-fresh=1, max-stale="5"`, `no-cache="`, `only-if-cached=,`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d := parseRequest(http.Header{"Cache-Control": {s, "no-store"}})
		if !d.noStore {
			t.Fatalf("no-store is lost behind %q", s)
		}
		for _, n := range []int64{d.maxAge, d.minFresh, d.maxStale, d.staleIfError} {
			if n < -1 || n > maxSeconds {
				t.Fatalf("%q: %d is out of range", s, n)
			}
		}
	})
}
