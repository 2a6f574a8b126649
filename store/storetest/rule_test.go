package storetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/store"
)

func TestParseRule(t *testing.T) {
	for text, want := range map[string]rule{
		"commit #2: lost":               {verb: "commit", nth: 2, steps: []step{{fault: store.ErrLost}}},
		"take every 3: unavailable":     {verb: "take", every: 3, steps: []step{{fault: store.ErrUnavailable}}},
		"await: 50ms then lapsed":       {verb: "await", steps: []step{{wait: 50 * time.Millisecond}, {fault: ended(store.Lapsed)}}},
		" commit : done then readonly ": {verb: "commit", steps: []step{{done: true}, {fault: store.ErrReadOnly}}},
		"check:1s":                      {verb: "check", steps: []step{{wait: time.Second}}},
	} {
		want.text = text
		if got, err := parseRule(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestParseRuleSaysWhatIsWrong(t *testing.T) {
	for text, says := range map[string]string{
		"":                            "verb: fault",
		"commit lost":                 "verb: fault",
		": lost":                      "verb: fault",
		"comit: lost":                 `no verb "comit"`,
		"close: lost":                 `no verb "close"`,
		"commit 2: lost":              "which call",
		"commit #0: lost":             "which call",
		"commit #-1: lost":            "which call",
		"commit #: lost":              "which call",
		"commit every: lost":          "which call",
		"commit every x: lost":        "which call",
		"commit every 0: lost":        "which call",
		"commit #1 #2: lost":          "which call",
		"commit:":                     `no step ""`,
		"commit: lots":                `no step "lots"`,
		"commit: -1s":                 `no step "-1s"`,
		"commit: lost then done":      "nothing happens after a fault",
		"take: lost":                  "take cannot end as lost",
		"commit: lapsed":              "that is for await",
		"peek: unavailable":           "peek cannot end as unavailable",
		"await: 50ms thenlapsed":      `no step "50ms thenlapsed"`,
		"await: 50ms then then filed": `no step "then filed"`,
	} {
		_, err := parseRule(text)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "rule") {
			t.Errorf("%q: %v, want it to say %q", text, err, says)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, text := range Faults() {
		f.Add(text)
	}
	f.Add("await every 3: 50ms then done then lapsed")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRule(text)
		if err == nil && (r.verb == "" || len(r.steps) == 0 || r.nth < 0 || r.every < 0) {
			t.Errorf("%q is taken for %+v", text, r)
		}
	})
}
