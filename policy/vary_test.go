package policy

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// onePage is a policy with one plain route, and a way to ask it for a page with some header.
func onePage(t testing.TB, change func(*Route)) (*Policy, func(http.Header) Plan) {
	t.Helper()
	r := Route{Name: "all", Upstream: "api"}
	if change != nil {
		change(&r)
	}
	p, err := New(Config{Routes: []Route{r}, Upstreams: []string{"api"}})
	if err != nil {
		t.Fatal(err)
	}
	return p, func(h http.Header) Plan {
		return p.Plan(Request{Method: "GET", Scheme: "http", Host: "a.test", URL: &url.URL{Path: "/page"}, Header: h})
	}
}

// bring admits an answer for a plan, and puts its line into the signpost, as a commit does.
func bring(t testing.TB, p *Policy, sign Stored, plan Plan, at time.Time, vary ...string) (Key, Stored) {
	t.Helper()
	h := http.Header{"Cache-Control": {"max-age=5000"}, "Vary": vary}
	return bringHeader(t, p, sign, plan, at, h)
}

func bringHeader(t testing.TB, p *Policy, sign Stored, plan Plan, at time.Time, h http.Header) (Key, Stored) {
	t.Helper()
	adm := p.Admit(plan, nil, Response{Status: 200, Header: h, Asked: at, Arrived: at}, Moment{Now: at})
	if adm.Reason != None {
		t.Fatalf("not stored: %v", adm.Reason)
	}
	key, line := p.VariantOf(plan, adm.Stored)
	if key != adm.Key {
		t.Fatalf("VariantOf says %v, Admit %v", key, adm.Key)
	}
	if line == nil {
		return key, sign
	}
	return key, AddVariant(sign, *line)
}

func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

func TestFollowSelectsWhatTheRequestMatches(t *testing.T) {
	for _, c := range []struct {
		sentence     string
		vary         string
		brought, ask http.Header
		want         bool
	}{
		{"match", "Foo", header("Foo: 1"), header("Foo: 1"), true},
		{"no match", "Foo", header("Foo: 1"), header("Foo: 2"), false},
		{"stored without", "Foo", header(), header("Foo: 1"), false},
		{"asked without", "Foo", header("Foo: 1"), header(), false},
		{"both without", "Foo", header(), header(), true},
		{"empty is not absent", "Foo", header(), header("Foo:"), false},
		{"both empty", "Foo", header("Foo:"), header("Foo:"), true},
		{"other fields do not count", "Foo", header("Foo: 1", "Other: 2"), header("Foo: 1", "Other: 3"), true},
		{"two", "Foo, Bar", header("Foo: 1", "Bar: abc"), header("Bar: abc", "Foo: 1"), true},
		{"two, one other", "Foo, Bar", header("Foo: 1", "Bar: abc"), header("Foo: 1", "Bar: abcd"), false},
		{"three, one absent in both", "Foo, Bar, Baz", header("Foo: 1", "Baz: 789"), header("Foo: 1", "Baz: 789"), true},
		{"a value does not wander to the next name", "Bar, Foo", header("Bar: 1"), header("Foo: 1"), false},
		{"lines are joined", "Foo", header("Foo: 1, 2"), header("Foo: 1", "Foo: 2"), true},
		{"blanks round commas", "Foo", header("Foo: 1,2"), header("Foo:  1 ,\t2 "), true},
		{"blanks inside count", "Foo", header("Foo: a b"), header("Foo: ab"), false},
		{"blanks inside quotes count", "Foo", header(`Foo: "a, b"`), header(`Foo: "a,b"`), false},
		{"letters count in general", "Foo", header("Foo: a"), header("Foo: A"), false},
		{"order counts in general", "Foo", header("Foo: a, b"), header("Foo: b, a"), false},
		{"languages in any order", "Accept-Language", header("Accept-Language: en, de"), header("Accept-Language: de, en"), true},
		{"languages in any letters", "Accept-Language", header("Accept-Language: en, de"), header("Accept-Language: eN, De"), true},
		{"a weight of one is none", "Accept-Language", header("Accept-Language: en, de;q=0.5"), header("Accept-Language: de;q=0.50,en;q=1.0"), true},
		{"weights count", "Accept-Language", header("Accept-Language: en, de;q=0.5"), header("Accept-Language: en, de;q=0.4"), false},
		{"codings on two lines", "Accept-Encoding", header("Accept-Encoding: gzip", "Accept-Encoding: br"), header("Accept-Encoding: gzip"), false},
		{"codings in any order", "Accept-Encoding", header("Accept-Encoding: gzip, br"), header("Accept-Encoding: BR,gzip;q=1"), true},
		{"what is malformed stays itself", "Accept-Encoding", header("Accept-Encoding: gzip;x, br"), header("Accept-Encoding: br"), false},
		{"a long value", "Foo", header("Foo: " + strings.Repeat("x", 9000)), header("Foo: " + strings.Repeat("x", 9000)), true},
		{"a long value's end counts", "Foo", header("Foo: " + strings.Repeat("x", 9000)), header("Foo: " + strings.Repeat("x", 8999) + "y"), false},
	} {
		p, ask := onePage(t, nil)
		key, sign := bring(t, p, Stored{}, ask(c.brought), epoch(), c.vary)
		if got := p.Follow(ask(c.ask), sign); (got.Key == key) != c.want {
			t.Errorf("%s: followed to %v, brought to %v", c.sentence, got.Key, key)
		} else if got.Vary == nil || got.Page.Variant != "" {
			t.Errorf("%s: the plan forgets Vary or page: %+v", c.sentence, got)
		}
	}
}

// Of the favourite language the upstream has sent its one answer (conformance: vary-normalise-lang-select).
func TestTheFavouriteLanguageSelects(t *testing.T) {
	p, ask := onePage(t, nil)
	h := http.Header{"Cache-Control": {"max-age=5000"}, "Vary": {"Accept-Language"}, "Content-Language": {"DE"}}
	key, sign := bringHeader(t, p, Stored{}, ask(header("Accept-Language: en, de")), epoch(), h)
	for _, c := range []struct {
		languages string
		want      bool
	}{
		{"fr;q=0.5, de;q=1.0", true},
		{"de", true},
		{"de, fr", false}, // fr might be sent as well
		{"fr, de;q=0.9", false},
		{"*", false},
		{"de;q=x", false},
	} {
		if got := p.Follow(ask(header("Accept-Language: "+c.languages)), sign); (got.Key == key) != c.want {
			t.Errorf("%s: followed to %v", c.languages, got.Key)
		}
	}
}

// A page may vary on different names at different times (B046); of several that match the newest counts.
func TestVaryMayChangeBetweenVariants(t *testing.T) {
	p, ask := onePage(t, nil)
	a1 := header("X-A: 1")
	a2b1 := header("X-A: 2", "X-B: 1")
	first, sign := bring(t, p, Stored{}, ask(a1), epoch(), "X-A")
	second, sign := bring(t, p, sign, ask(a2b1), epoch().Add(time.Second), "X-A, X-B")
	if got := p.Follow(ask(a1), sign).Key; got != first {
		t.Errorf("the first variant is lost: %v", got)
	}
	if got := p.Follow(ask(a2b1), sign).Key; got != second {
		t.Errorf("the second variant is lost: %v", got)
	}
	miss := p.Follow(ask(header("X-A: 2", "X-B: 2")), sign)
	if miss.Key == first || miss.Key == second || !slices.Equal(miss.Vary, []string{"x-a", "x-b"}) {
		t.Errorf("the third is no miss by the newest names: %+v", miss)
	}
	third, sign := bring(t, p, sign, ask(a2b1), epoch().Add(2*time.Second), "X-A")
	if got := p.Follow(ask(a2b1), sign).Key; got != third {
		t.Errorf("two match and the older is taken: %v", got)
	}
}

// What misses is filed where it was looked for, so that the lease and the commit are of one key.
func TestAMissIsFiledWhereItWasLookedFor(t *testing.T) {
	p, ask := onePage(t, nil)
	_, sign := bring(t, p, Stored{}, ask(header("Foo: 1")), epoch(), "Foo")
	plan := p.Follow(ask(header("Foo: 2")), sign)
	key, _ := bring(t, p, sign, plan, epoch(), "Foo")
	if key != plan.Key {
		t.Errorf("looked for at %v, filed at %v", plan.Key, key)
	}
}

// What Follow turned into a variant's plan is a vary-miss when nothing lies there.
func TestAVariantThatIsMissingIsAVaryMiss(t *testing.T) {
	p, ask := onePage(t, nil)
	_, sign := bring(t, p, Stored{}, ask(header("Foo: 1")), epoch(), "Foo")
	plan := p.Follow(ask(header("Foo: 2")), sign)
	if d := p.Decide(plan, nil, Moment{Now: epoch()}); d.Action != Fetch || d.Reason != VaryMiss || !d.Collapse {
		t.Errorf("%+v", d)
	}
	if got := p.Follow(ask(nil), Stored{Kind: Marker}); got.Vary != nil || got.Key != got.Page {
		t.Errorf("a marker is followed to %v", got.Key)
	}
	defer func() {
		if recover() == nil {
			t.Error("a signpost is decided on")
		}
	}()
	p.Decide(ask(nil), &sign, Moment{Now: epoch()})
}

// An admission made from an entry that lay under the joiner's own key has no key to compare: only the coding counts.
func TestMayOfAnEntryFoundUnderOnesOwnKey(t *testing.T) {
	p, ask := onePage(t, nil)
	h := http.Header{"Cache-Control": {"max-age=60"}, "Content-Encoding": {"gzip"}}
	adm := p.Admit(ask(header("Accept-Encoding: gzip")), nil, Response{Status: 200, Header: h, Asked: epoch(), Arrived: epoch()}, Moment{Now: epoch()})
	adm.Key = Key{}
	for coding, want := range map[string]Action{"gzip": Serve, "gzip, br": Serve, "br": Fetch} {
		if d := p.May(ask(header("Accept-Encoding: "+coding)), adm, Order{Later: true}, Moment{Now: epoch()}); d.Action != want {
			t.Errorf("%s: %v %v", coding, d.Action, d.Reason)
		}
	}
}

// At a fill's head those whom Vary parts know their own key already: the one that the signpost will lead them to.
func TestPartedIsWhereTheSignpostWillLead(t *testing.T) {
	p, ask := onePage(t, nil)
	h := http.Header{"Cache-Control": {"max-age=60"}, "Vary": {"Foo"}}
	asker, joiner := ask(header("Foo: 1")), ask(header("Foo: 2"))
	adm := p.Admit(asker, nil, Response{Status: 200, Header: h, Asked: epoch(), Arrived: epoch()}, Moment{Now: epoch()})
	_, line := p.VariantOf(asker, adm.Stored)
	parted, followed := p.Parted(joiner, adm), p.Follow(joiner, AddVariant(Stored{}, *line))
	if parted.Key != followed.Key || !slices.Equal(parted.Vary, followed.Vary) || parted.Page != joiner.Page || parted.Key == adm.Key {
		t.Errorf("parted to %v %v, followed to %v %v", parted.Key, parted.Vary, followed.Key, followed.Vary)
	}
}

func TestAPlainFormDoesNotDriveOutCodedOnes(t *testing.T) {
	p, ask := onePage(t, nil)
	gzip := http.Header{"Cache-Control": {"max-age=60"}, "Content-Encoding": {"gzip"}}
	coded, sign := bringHeader(t, p, Stored{}, ask(header("Accept-Encoding: gzip")), epoch(), gzip)
	plan := p.Follow(ask(header("Accept-Encoding: identity")), sign)
	if plan.Key == coded {
		t.Fatal("a client that decodes nothing is given gzip")
	}
	plain, sign := bringHeader(t, p, sign, plan, epoch(), http.Header{"Cache-Control": {"max-age=60"}})
	if plain.Variant == "" {
		t.Error("the plain form takes the signpost's place")
	}
	if got := p.Follow(ask(header("Accept-Encoding: gzip")), sign).Key; got != coded {
		t.Errorf("the coded form is lost: %v", got)
	}
}

func TestAPermissionForOneSiteIsNotAnothers(t *testing.T) {
	p, ask := onePage(t, nil)
	h := http.Header{"Cache-Control": {"max-age=60"}, "Access-Control-Allow-Origin": {"https://a.example"}}
	key, sign := bringHeader(t, p, Stored{}, ask(header("Origin: https://a.example")), epoch(), h)
	for _, other := range []http.Header{header("Origin: https://b.example"), header()} {
		if got := p.Follow(ask(other), sign).Key; got == key {
			t.Errorf("%v is given a's permission", other)
		}
	}
	if h.Get("Vary") != "" {
		t.Error("the implied Vary is written into the response")
	}
}

func TestIgnoredCookiesSelectNothing(t *testing.T) {
	p, ask := onePage(t, func(r *Route) { r.Cache.Ignore.Cookies = []string{"_g*"} })
	key, sign := bring(t, p, Stored{}, ask(header("Cookie: _ga=1; lang=de")), epoch(), "Cookie")
	if got := p.Follow(ask(header("Cookie: lang=de; _ga=2")), sign).Key; got != key {
		t.Errorf("an ignored cookie parts two requests: %v and %v", got, key)
	}
	if got := p.Follow(ask(header("Cookie: lang=fr; _ga=1")), sign).Key; got == key {
		t.Error("a cookie that is not ignored selects nothing")
	}
	bare, sign := bring(t, p, Stored{}, ask(header()), epoch(), "Cookie")
	if got := p.Follow(ask(header("Cookie: _ga=1")), sign).Key; got != bare {
		t.Error("only ignored cookies, and it is not as if there were none")
	}
}

func TestVariantsOfDifferentKeyedFormsStayApart(t *testing.T) {
	p, ask := onePage(t, func(r *Route) { r.Cache.Key.Headers = []string{"x-tenant"} })
	a, _ := bring(t, p, Stored{}, ask(header("X-Tenant: a", "Foo: 1")), epoch(), "Foo")
	b, _ := bring(t, p, Stored{}, ask(header("X-Tenant: b", "Foo: 1")), epoch(), "Foo")
	if a == b || a.Primary != b.Primary {
		t.Errorf("%v and %v", a, b)
	}
}

func TestSignposts(t *testing.T) {
	var sign Stored
	for i := range maxVariants {
		v := Variant{Names: []string{"foo"}, Values: []string{fmt.Sprint(i)}, Variant: fmt.Sprint(i), Arrived: epoch()}
		before := len(sign.Variants)
		next := AddVariant(sign, v)
		if len(sign.Variants) != before {
			t.Fatal("the old signpost was written to")
		}
		sign = next
	}
	if sign.Kind != Signpost || len(sign.Variants) != maxVariants || !sign.FreshUntil.After(epoch().AddDate(50, 0, 0)) {
		t.Fatalf("kind %v, %d lines, fresh until %v", sign.Kind, len(sign.Variants), sign.FreshUntil)
	}
	again := AddVariant(sign, Variant{Variant: "3", Arrived: epoch()})
	if len(again.Variants) != maxVariants || again.Variants[maxVariants-1].Variant != "3" {
		t.Errorf("a known variant is not moved to the end: %d lines", len(again.Variants))
	}
	full := AddVariant(sign, Variant{Variant: "new", Arrived: epoch()})
	if full.Kind != Marker || full.Marked[0] != epoch().Add(overflowMark) || full.Marked[1] != full.Marked[0] {
		t.Errorf("one more makes %v, marked %v", full.Kind, full.Marked)
	}
	if after := AddVariant(full, Variant{Variant: "new", Arrived: epoch()}); after.Kind != Signpost || len(after.Variants) != 1 {
		t.Errorf("after the marker: %v with %d lines", after.Kind, len(after.Variants))
	}
}

// FuzzSelecting: headers that count as equal accept the same, and an answer is found again by the request it was for.
func FuzzSelecting(f *testing.F) {
	for _, s := range [][2]string{
		{"gzip, br;q=0.5", "br;q=0.500,GZIP"}, {"*;q=0", "identity"}, {"", ","}, {`"a, b"`, "gzip;q=1.5"}, {"gzip;x=1", "gzip"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p, ask := onePage(t, nil)
		plan, other := ask(header("Accept-Encoding: "+a, "Foo: "+a)), ask(header("Accept-Encoding: "+b, "Foo: "+b))
		key, sign := bring(t, p, Stored{}, plan, epoch(), "Accept-Encoding, Foo")
		if got := p.Follow(plan, sign).Key; got != key {
			t.Fatalf("%q is not found again", a)
		}
		if p.Follow(other, sign).Key == key && strings.Join(strings.Fields(a), "") != strings.Join(strings.Fields(b), "") {
			t.Fatalf("%q and %q differ in more than blanks, and are one variant", a, b)
		}
		if preferences(a) == preferences(b) {
			for _, coding := range []string{"gzip", "br", "zstd", "identity"} {
				if accepts(a, coding) != accepts(b, coding) {
					t.Fatalf("%q and %q count as one, but differ on %s", a, b, coding)
				}
			}
		}
	})
}
