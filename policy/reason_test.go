package policy

import (
	"regexp"
	"testing"
)

// Header, log, metrics and README print these words: each has one, unlike any other, and a meaning.
func TestEveryReasonHasItsOwnWord(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[string]Reason{}
	for _, r := range Reasons() {
		if !kebab.MatchString(r.String()) || r.Meaning() == "" {
			t.Errorf("reason %d is %q, meaning %q", r, r, r.Meaning())
		}
		if before, ok := seen[r.String()]; ok {
			t.Errorf("reasons %d and %d are both %q", before, r, r)
		}
		seen[r.String()] = r
	}
	if got := Reason(255).String(); got != "unknown" {
		t.Errorf("a reason of a later version is %q", got)
	}
}

// RFC 9211 §2.2 knows these and no others.
func TestForwardIsOfTheRegisteredTokens(t *testing.T) {
	known := map[string]bool{
		"": true, "uri-miss": true, "vary-miss": true, "miss": true, "request": true, "stale": true, "partial": true, "method": true, "bypass": true,
	}
	for _, r := range Reasons() {
		if !known[r.Forward()] {
			t.Errorf("%v: %q", r, r.Forward())
		}
	}
	for r, want := range map[Reason]string{
		URIMiss: "uri-miss", VaryMiss: "vary-miss", StaleEntry: "stale", RequestDirective: "request", PartialMiss: "partial",
		KnownUncacheable: "miss", Unacceptable: "miss", Method: "method", Bypass: "bypass", Fresh: "", ParticularAsker: "request",
	} {
		if r.Forward() != want {
			t.Errorf("%v: %q, want %q", r, r.Forward(), want)
		}
	}
}

func TestRefusalsHaveAStatus(t *testing.T) {
	for r, want := range map[Reason]int{
		UpstreamRefused: 502, UpstreamReset: 502, UpstreamGarbage: 502, UpstreamTruncated: 502, UpstreamTimeout: 504,
		UpstreamBusy: 503, WaitersFull: 503, Draining: 503, OnlyIfCached: 504, UnknownAuthority: 421, NoRoute: 404,
		StaleForbidden: 504, BadRequest: 400, Fresh: 0,
	} {
		if r.Status() != want {
			t.Errorf("%v: %d, want %d", r, r.Status(), want)
		}
	}
}
