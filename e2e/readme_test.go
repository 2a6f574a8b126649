package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

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
