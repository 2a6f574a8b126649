package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// README's table of what happens when names scenarios and tests that there are.
func TestTechniquesOfFaults(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	var files []string
	for _, room := range []string{"store/redis", "store/near", "proxy/fill"} {
		more, _ := filepath.Glob("../" + room + "/*_test.go")
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- faults -->\n")
	table, _, ended := strings.Cut(rest, "<!-- /faults -->")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if !ended || len(rows) < 15 {
		t.Fatalf("README.md has no table of faults between <!-- faults --> and <!-- /faults -->: %d rows", len(rows))
	}
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		shows := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(cells) != 5 || len(shows) == 0 {
			t.Errorf("want five cells, and the last to say what shows it: %s", row)
		}
		for _, shown := range shows {
			_, err := os.Stat("scenarios/" + shown[1] + ".txt")
			if err != nil && !strings.Contains(tests.String(), "func "+shown[1]+"(t *testing.T)") {
				t.Errorf("there is neither a scenario nor a test %s: %s", shown[1], row)
			}
		}
	}
}

// README's table of techniques names keys that there are, and scenarios that show them.
func TestTechniques(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- techniques -->\n")
	table, _, ended := strings.Cut(rest, "<!-- /techniques -->")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if !ended || len(rows) < 20 {
		t.Fatalf("README.md has no table of techniques between <!-- techniques --> and <!-- /techniques -->: %d rows", len(rows))
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range rows[2:] {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if len(cells) != 5 {
			t.Errorf("%d cells instead of five: %s", len(cells), row)
			continue
		}
		for _, key := range quoted.FindAllStringSubmatch(cells[1], -1) {
			name := regexp.MustCompile(`^[a-z_.]+`).FindString(key[1])
			name = name[strings.LastIndex(name, ".")+1:]
			known := regexp.MustCompile(`(?m)^[# -]*` + name + `:`)
			if !strings.HasPrefix(key[1], "weir ") && !known.Match(shipped) {
				t.Errorf("config.yaml has no key %s: %s", key[1], row)
			}
		}
		shows := quoted.FindAllStringSubmatch(cells[3], -1)
		for _, scenario := range shows {
			if _, err := os.Stat("scenarios/" + scenario[1] + ".txt"); err != nil && !strings.HasPrefix(scenario[1], "go test ") {
				t.Errorf("there is no scenario %s: %s", scenario[1], row)
			}
		}
		if len(shows) == 0 && !strings.Contains(cells[1], "none yet") {
			t.Errorf("nothing shows it: %s", row)
		}
	}
}
