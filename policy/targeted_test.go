package policy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What counts instead of Cache-Control, and how it is read (RFC 9213 §2.1).
func TestTargeted(t *testing.T) {
	r := &rule{Route: Route{Cache: Cache{Targeted: Targeted{Fields: []string{"Weir-Cache-Control", "CDN-Cache-Control"}}}}}
	for _, c := range []struct {
		name string
		h    http.Header
		want string // the directives that count; "-": Cache-Control's
	}{
		{"absent", http.Header{"Cache-Control": {"max-age=1"}}, "-"},
		{"plain", http.Header{"Cdn-Cache-Control": {"max-age=60"}}, "max-age=60"},
		{"the first of the list", http.Header{"Cdn-Cache-Control": {"max-age=60"}, "Weir-Cache-Control": {"no-store"}}, "no-store"},
		{"lines are one list", http.Header{"Cdn-Cache-Control": {"max-age=60", "private"}}, "max-age=60, private"},
		{"the last of two", http.Header{"Cdn-Cache-Control": {"max-age=60, max-age=5"}}, "max-age=5"},
		{"empty counts as absent", http.Header{"Cdn-Cache-Control": {""}}, "-"},
		{"upper case is no key", http.Header{"Cdn-Cache-Control": {"MAX-AGE=60"}}, "-"},
		{"a blank after = is malformed", http.Header{"Cdn-Cache-Control": {"max-age= 60"}}, "-"},
		{"a trailing comma is malformed", http.Header{"Cdn-Cache-Control": {"max-age=60,"}}, "-"},
		{"malformed: the next counts", http.Header{"Weir-Cache-Control": {"&&"}, "Cdn-Cache-Control": {"no-store"}}, "no-store"},
		{"parameters mean nothing", http.Header{"Cdn-Cache-Control": {"max-age=60;x=1, private;y"}}, "max-age=60, private"},
		{"a number as text is ignored", http.Header{"Cdn-Cache-Control": {`max-age="60", no-store`}}, "no-store"},
		{"a fraction is ignored", http.Header{"Cdn-Cache-Control": {"max-age=60.5, no-store"}}, "no-store"},
		{"a negative number is ignored", http.Header{"Cdn-Cache-Control": {"max-age=-1, public"}}, "public"},
		{"false is not said", http.Header{"Cdn-Cache-Control": {"no-store=?0, max-age=5"}}, "max-age=5"},
		{"a list of values is ignored", http.Header{"Cdn-Cache-Control": {"private=(a b), max-age=5"}}, "max-age=5"},
		{"fields by name", http.Header{"Cdn-Cache-Control": {`private="x-a, x-b"`}}, `private="x-a, x-b"`},
		{"extensions mean nothing", http.Header{"Cdn-Cache-Control": {"foo, max-age=5"}}, "foo, max-age=5"},
	} {
		got, ok := r.targeted(c.h)
		if !ok {
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Beside a targeted field neither Cache-Control nor Expires counts, in either direction.
func TestTargetedStandsInForCacheControl(t *testing.T) {
	r := &rule{Route: Route{Cache: Cache{Targeted: Targeted{Fields: []string{"CDN-Cache-Control"}}}}}
	d := r.directives(http.Header{"Cdn-Cache-Control": {"max-age=60"}, "Cache-Control": {"no-store"}})
	if d.NoStore || d.MaxAge != 60 {
		t.Errorf("no-store %v, max-age %d", d.NoStore, d.MaxAge)
	}
	d = r.directives(http.Header{"Cdn-Cache-Control": {"must-revalidate"}})
	if _, stated := d.statedLifetime(Response{Header: http.Header{"Expires": {"Mon, 01 Jan 2035 00:00:00 GMT"}}}, time.Time{}); stated {
		t.Error("Expires counts beside a targeted field")
	}
}

func FuzzTargeted(f *testing.F) {
	for _, seed := range []string{"max-age=60", `private="a"`, "no-store;x", "max-age=", "a=(b c)", `x="\"`} {
		f.Add(seed)
	}
	r := &rule{Route: Route{Cache: Cache{Targeted: Targeted{Fields: []string{"CDN-Cache-Control"}}}}}
	f.Fuzz(func(t *testing.T, v string) {
		value, ok := r.targeted(http.Header{"Cdn-Cache-Control": {v}})
		if !ok {
			return
		}
		// What is read is written so that it is read again as the same.
		if _, fine := readDirectives([]string{value}); !fine {
			t.Errorf("%q becomes %q, which cannot be read", v, value)
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, seed := range []string{"bytes 0-4/10", "bytes 4-9/*", "bytes */10", "bytes 9-4/10", "bytes 0-99999999999999999999/*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		span, total, ok := partOf(http.Header{"Content-Range": {v}})
		if ok && (span.Start < 0 || span.Len() <= 0 || total >= 0 && span.End > total || total < -1) {
			t.Errorf("%q: %+v of %d", v, span, total)
		}
	})
}

// Every cache has to manage 32 groups of 32 characters (RFC 9875 §2); what is far beyond that is not read.
func TestGroupsAreBounded(t *testing.T) {
	for _, c := range []struct{ count, length, want int }{{32, 32, 32}, {1, maxDirectiveBytes, 0}} {
		var members []string
		for i := range c.count {
			members = append(members, fmt.Sprintf("%q", fmt.Sprintf("%0*d", c.length, i)))
		}
		if got := len(groups([]string{strings.Join(members, ", ")})); got != c.want {
			t.Errorf("of %d groups of %d characters %d are known, want %d", c.count, c.length, got, c.want)
		}
	}
}
