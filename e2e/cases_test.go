package e2e

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every case of cases.txt, and every rule of rules.txt, is kept by tests that exist.
func TestCasesAreKept(t *testing.T) {
	known := sentences(t)
	for file, id := range map[string]string{"cases.txt": `^[A-L]\d{3} \S`, "rules.txt": `^R\d+ \S`} {
		kept(t, file, regexp.MustCompile(id), known)
	}
}

func kept(t *testing.T, file string, head *regexp.Regexp, known map[string]bool) {
	t.Helper()
	list, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	seen := map[string]bool{}
	last, kept := "", true
	for lines, n := bufio.NewScanner(list), 1; lines.Scan(); n++ {
		line := lines.Text()
		id, _, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "\t"):
			kept = true
			if !known[line[1:]] {
				t.Errorf("%s:%d: %s is kept by %q, which is no test", file, n, last, line[1:])
			}
		case !head.MatchString(line) || seen[id] || !kept:
			t.Errorf("%s:%d: %q is none, or there twice, or nothing keeps the one before it", file, n, line)
		default:
			last, kept = id, false
			seen[id] = true
		}
	}
	if !kept || len(seen) == 0 {
		t.Errorf("%s: nothing keeps %q", file, last)
	}
}

// sentences is everything that a case may be kept by.
func sentences(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{"not built": true}
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
