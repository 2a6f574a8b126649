package redis

import (
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// SHA-256 by another program: printf 'api http://example.com/x' | sha256sum.
const (
	xSum = "db70c6baf57c3cd3f242e3bf0019912c6f0a1c65613cf4e48d1eda3ebeceadb6"
	vSum = "4c94485e0c21ae6c41ce1dfe7b6bfaceea5ab68e40a2476f50208e526f506080"
)

// FNV-1a of "host example.com", by another program.
const exampleHost = "\xf5\x32\x3a\x3a\xa6\x8f\x57\x4e"

// TestNames: replicas of two releases meet under these names.
func TestNames(t *testing.T) {
	key := policy.Key{Primary: "api http://example.com/x", Variant: "v"}
	for _, c := range []struct {
		l   layout
		key policy.Key
		n   names
	}{
		{layout{prefix: "weir"}, policy.Key{Primary: key.Primary}, names{
			head: "weir:{0}:head:" + xSum, lease: "weir:{0}:lease:" + xSum, fail: "weir:{0}:fail:" + xSum,
			page: "weir:{0}:page:" + xSum, notes: "weir:{0}:notes", bell: "weir:{0}:bell", segments: "weir:{0}:seg:" + xSum,
			place: "example.com/x", host: store.Label([]byte(exampleHost)),
		}},
		{layout{prefix: "w", cluster: true}, key, names{
			head: "w:{db}:head:" + xSum + ":" + vSum, lease: "w:{db}:lease:" + xSum + ":" + vSum,
			fail: "w:{db}:fail:" + xSum + ":" + vSum, segments: "w:{db}:seg:" + xSum + ":" + vSum,
			page: "w:{db}:page:" + xSum, notes: "w:{db}:notes", bell: "w:{db}:bell",
			place: "example.com/x", host: store.Label([]byte(exampleHost)),
		}},
	} {
		if got := c.l.of(c.key); got != c.n {
			t.Errorf("names = %+v\nwant %+v", got, c.n)
		}
	}
	if got := (layout{prefix: "weir", db: 3}).channel(); got != "weir:bell:3" {
		t.Errorf("channel = %q", got)
	}
	tags := make(map[string]bool)
	for _, n := range (layout{prefix: "w", cluster: true}).everywhere() {
		tags[n.notes] = true
	}
	if len(tags) != 256 {
		t.Errorf("%d tags", len(tags))
	}
}

func TestValues(t *testing.T) {
	l := store.Lease{Key: page("x"), Token: "t|1", Holder: "10.0.0.1:8082", Taken: 1790000000000000}
	value := leaseValue(l, policy.WarmWaits)
	if value != "L1|4|1|1790000000000000|10.0.0.1:8082|t|1" {
		t.Errorf("lease = %q", value)
	}
	if got := parseLease(page("x"), value); got == nil || *got != l {
		t.Errorf("read as %+v", got)
	}
	for _, foreign := range []string{"", "L1", "L2|4|1|1|h|t", "L1|4|1|x|h|t", "E1|1|0|t"} {
		if got := parseLease(page("x"), foreign); got != nil {
			t.Errorf("%q read as %+v", foreign, got)
		}
	}
	out := store.Outcome{
		End: store.Failed, Remember: 3 * time.Second,
		Fault: policy.Fault{Kind: policy.BadStatus, Status: 503, RetryAfter: 7 * time.Second},
	}
	if got := parseOutcome(outcomeValue(out)); got != out {
		t.Errorf("outcome = %+v, want %+v", got, out)
	}
	for _, foreign := range []string{"", "x", "9,0,0,0,0", "-1,0,0,0,0", "0"} {
		if got := parseOutcome(foreign); got != (store.Outcome{End: store.Lapsed}) {
			t.Errorf("%q read as %+v", foreign, got)
		}
	}
}
