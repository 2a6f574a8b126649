package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const resultsFile = "conformance.json"

var suiteFile = flag.String("suite", "../../shared/cache-tests/tests.json", "the exported definitions of http-tests/cache-tests")

func suite(t *testing.T) []trial {
	t.Helper()
	trials, err := readSuite(*suiteFile)
	if err != nil {
		t.Fatal(err)
	}
	return trials
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	u, err := newSuiteUpstream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.down)
	return &judge{upstream: u, pause: 3 * time.Second}
}

// The public suite, from one configuration: against one replica on memory, one on Redis, and two that share a Redis and
// are asked by turns. What it shows is checked in, so that a change in either direction is seen in review; it is the
// same for all three.
func TestConformance(t *testing.T) {
	trials := suite(t)
	for name, replicas := range map[string]int{"memory": 1, "redis": 1, "two replicas": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJudge(t)
			var flags []string
			if name != "memory" {
				r, err := newRedis(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(r.close)
				l, err := r.line("all")
				if err != nil {
					t.Fatal(err)
				}
				flags = []string{"--redis", l.address()}
			}
			for i := range replicas {
				j.addresses = append(j.addresses, stand(t, fmt.Sprint(name, " ", i+1), j.upstream.address, flags).listen)
			}
			verdicts := j.run(trials)
			t.Log(summary(verdicts))
			compareResults(t, verdicts)
		})
	}
}

// stand starts a replica as the suite's page says.
func stand(t *testing.T, name, upstream string, flags []string) *replica {
	t.Helper()
	argv := []string{"env", "WEIR_PEERS_LISTEN=127.0.0.1:0", "WEIR_STORE_REDIS_TIMEOUT=5s", binary(t), "serve", "--config", "conformance.yaml",
		"--upstream", "http://" + upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	r, err := launch(name, append(argv, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.await(); err != nil {
		t.Fatal(err)
	}
	return r
}

// summary counts what passed of each kind.
func summary(verdicts map[string]verdict) string {
	var parts []string
	for _, kind := range []string{"required", "optimal", "check"} {
		passed, all := 0, 0
		for _, v := range verdicts {
			if v.Kind == kind {
				all++
				if v.Outcome == pass {
					passed++
				}
			}
		}
		parts = append(parts, fmt.Sprintf("%s %d/%d", kind, passed, all))
	}
	return strings.Join(parts, ", ")
}

func compareResults(t *testing.T, verdicts map[string]verdict) {
	got := map[string]string{}
	for id, v := range verdicts {
		got[id] = v.Kind + " " + string(v.Outcome)
	}
	if *update {
		text, err := json.MarshalIndent(got, "", "  ") // sorts
		if err == nil {
			err = os.WriteFile(resultsFile, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	want := map[string]string{}
	text, err := os.ReadFile(resultsFile)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatalf("%v; `go test ./e2e -run Conformance -update` writes it", err)
	}
	changed := false
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if got[id] != want[id] {
			changed = true
			t.Errorf("%s: %s, was %q: %s", id, got[id], want[id], verdicts[id].Why)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if _, there := got[id]; !there {
			changed = true
			t.Errorf("%s: no longer in the suite", id)
		}
	}
	if changed {
		t.Errorf("what Weir does has changed. Is it meant? `go test ./e2e -run Conformance -update`, and commit %s with the change", resultsFile)
	}
}

// rightly are the optimal tests that a right cache does not pass, each with the test of ours, in proxy, that shows what
// it does instead.
var rightly = map[string]string{
	"conditional-lm-fresh-no-lm":                    "TestDateStandsInForLastModified",
	"partial-store-partial-complete":                "TestPartsWithoutAValidatorAreNotCombined",
	"partial-store-partial-reuse-partial":           "TestPartOfAnotherLengthIsNotKept",
	"partial-store-partial-reuse-partial-absent":    "TestPartOfAnotherLengthIsNotKept",
	"partial-store-partial-reuse-partial-byterange": "TestPartOfAnotherLengthIsNotKept",
	"partial-store-partial-reuse-partial-suffix":    "TestPartOfAnotherLengthIsNotKept",
}

// All that is required passes, and all that is optimal but for those.
func TestResultsAreRight(t *testing.T) {
	text, err := os.ReadFile(resultsFile)
	results := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &results)
	}
	if err != nil {
		t.Fatal(err)
	}
	for id, result := range results {
		kind, outcome, _ := strings.Cut(result, " ")
		if wants := kind == "required" || kind == "optimal" && rightly[id] == ""; wants && outcome != string(pass) {
			t.Errorf("%s: %s: mend Weir", id, result)
		}
	}
	var ours []string
	for _, s := range sources(t) {
		for _, d := range s.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.room == "proxy" && s.test {
				ours = append(ours, f.Name.Name)
			}
		}
	}
	for id, name := range rightly {
		if results[id] == "" || !slices.Contains(ours, name) {
			t.Errorf("%s: there is no such test any more, or no %s in proxy that shows why", id, name)
		}
	}
}

// The runner itself: through a proxy that caches nothing, a trial passes exactly when it wants nothing from a cache.
func TestJudgeOfAPlainProxy(t *testing.T) {
	j := newJudge(t)
	j.pause = 0
	target, err := url.Parse("http://" + j.upstream.address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// A kept connection may be closed at the moment it is used, and a PUT is not sent twice.
		Transport:    &http.Transport{DisableKeepAlives: true},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	defer proxy.Close()
	j.addresses = []string{strings.TrimPrefix(proxy.URL, "http://")}
	// What these want from a cache is not told by their expected_type.
	alsoWant := []string{
		"ccreq-oic",                              // a 504 of the cache's own
		"conditional-etag-vary-headers-mismatch", // a conditional request
		"conditional-etag-forward-unquoted",      // the validator mended
		"head-200-retain",                        // a header of the stored answer
		"partial-store-partial-complete",         // a ranged request
	}
	const byItself = "conditional-lm-stale" // the client's own If-Modified-Since does it
	trials := suite(t)
	verdicts := j.run(trials)
	for _, trial := range trials {
		v := verdicts[trial.ID]
		wants := slices.Contains(alsoWant, trial.ID) || slices.ContainsFunc(trial.Steps, func(s step) bool {
			return s.WantType == "cached" || strings.HasSuffix(s.WantType, "validated")
		})
		if passes := v.Outcome == pass || v.Outcome == depends; passes == wants && trial.ID != byItself {
			t.Errorf("%s: %s (%s)", trial.ID, v.Outcome, v.Why)
		}
	}
}

// Members that the checked-in definitions may lack.
func TestDefinitions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tests.json")
	os.WriteFile(path, []byte(`[{"tests": [{"id": "a", "requests": [{
		"interim_responses": [[103, [["Link", "x"]]], [102]], "response_pause": 0.5, "expected_status": null,
		"response_status": [203, "So"], "response_headers": [["Age", 5], ["Expires", -5, false], ["ETag", "ü"]],
		"expected_response_headers": ["A", ["B", "=", "C"], ["Date", 0]]}]}]}]`), 0o600)
	trials, err := readSuite(path)
	if err != nil {
		t.Fatal(err)
	}
	s, noon := trials[0].Steps[0], time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ got, want any }{
		{fmt.Sprint(s.Interim[0].code, " ", s.Interim[0].header[0].name, ": ", *s.Interim[0].header[0].value, " ", s.Interim[1].code), "103 Link: x 102"},
		{s.Pause, "0.5"},
		{s.WantStatus.given && s.WantStatus.value == nil, "true"},
		{*s.Status, "{203 So}"},
		{s.resolve(s.Reply, noon), "[{Age 5} {Expires Fri, 02 Jan 2026 11:59:55 GMT} {ETag \xfc}]"},
		{s.WantHeader, "[any = C \"0\"]"},
		{s.body("id"), "id"},
	} {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	s.RFC850 = []string{"expires"}
	if got, want := s.at(s.Reply[1], noon), "Friday, 02-Jan-26 11:59:55 GMT"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A trial falls with one that it depends on, however far away.
func TestDependencies(t *testing.T) {
	trials := []trial{{ID: "a"}, {ID: "b", DependsOn: []string{"a"}}, {ID: "c", DependsOn: []string{"elsewhere", "b"}}}
	for _, c := range []struct {
		a    outcome
		want string
	}{{pass, ""}, {setup, "a"}} {
		verdicts := map[string]verdict{"a": {Outcome: c.a}, "b": {Outcome: pass}, "c": {Outcome: pass}}
		if got := broken(trials[2], trials, verdicts); got != c.want {
			t.Errorf("with a %s: %q, want %q", c.a, got, c.want)
		}
	}
}
