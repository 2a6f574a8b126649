package e2e

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every case of cases.txt is kept by tests that exist.
func TestCasesAreKept(t *testing.T) {
	list, err := os.Open("cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	known := sentences(t)
	head := regexp.MustCompile(`^[A-L]\d{3} \S`)
	seen := map[string]bool{}
	last, kept := "", true
	for lines, n := bufio.NewScanner(list), 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "\t"):
			kept = true
			if !known[line[1:]] {
				t.Errorf("cases.txt:%d: %s is kept by %q, which is no test", n, last, line[1:])
			}
		case !head.MatchString(line) || seen[line[:4]] || !kept:
			t.Errorf("cases.txt:%d: %q is no case, or one twice, or none keeps the one before it", n, line)
		default:
			last, kept = line[:4], false
			seen[last] = true
		}
	}
	if !kept || len(seen) == 0 {
		t.Errorf("cases.txt: nothing keeps %q", last)
	}
}

// sentences is everything that a case may be kept by.
func sentences(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	check := regexp.MustCompile(`(?m)^\t+\{"([^"]+)", func\(c \*bench\)`)
	walk(t, func(name string, text []byte) {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			for _, m := range test.FindAllSubmatch(text, -1) {
				known[string(m[1])] = true
			}
		case strings.Contains(name, "store/storetest/"):
			for _, m := range check.FindAllSubmatch(text, -1) {
				known["store: "+string(m[1])] = true
			}
		case filepath.Dir(name) == "policy/testdata":
			for line := range strings.Lines(string(text)) {
				if sentence, ok := strings.CutPrefix(line, "# "); ok {
					known[filepath.Base(name)+": "+strings.TrimSpace(sentence)] = true
				}
			}
		case filepath.Dir(name) == "e2e/scenarios":
			known["scenario "+strings.TrimSuffix(filepath.Base(name), ".txt")] = true
		}
	})
	return known
}
