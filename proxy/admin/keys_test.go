package admin

import (
	"reflect"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	a := New((&house{}).options(local))
	is(t, ask(a, "GET", "/api/keys?sort=misses", ""), 200, `{"sort":"misses","keys":[{"url":"http://example.com/misses","upstream":"api",`+
		`"requests_per_second":10,"hit_share":0.9,"misses_per_second":1,"upstream_time_share":0.5}]}`)
	isProblem(t, ask(a, "GET", "/api/keys?sort=", ""), 400, "hits, misses, upstream_time")
	c := serve(t, a)
	for sort, by := range map[string]string{"": "hits", "upstream_time": "upstream_time"} {
		want := Keys{by, []Key{{"http://example.com/" + by, "api", 10, .9, 1, .5}}}
		if got, err := c.Keys(t.Context(), sort); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("sort %q: %+v, %v", sort, got, err)
		}
	}
	if _, err := c.Keys(t.Context(), "size&x"); err == nil || !strings.Contains(err.Error(), "sort is one of") {
		t.Errorf("by size: %v", err)
	}
}
