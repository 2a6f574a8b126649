package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"weir/policy"
	"weir/proxy/warm"
)

// readShipped reads once: tests change their working folder.
var readShipped = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("../../config.yaml") })

func shipped(t *testing.T) []byte {
	t.Helper()
	text, err := readShipped()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var emptyList = regexp.MustCompile(`(?m)^(upstreams|routes|warm): \[\].*$`)
var commentedOut = regexp.MustCompile(`(?m)^# (- |  )`)

// examples is the shipped file with the commented-out entries of its lists in force.
func examples(t *testing.T) string {
	head, body, found := strings.Cut(string(shipped(t)), "\n\n")
	if !found {
		t.Fatal("config.yaml does not begin with a heading of its own")
	}
	body = emptyList.ReplaceAllString(body, "$1: # such as this")
	return head + "\n\n" + commentedOut.ReplaceAllString(body, "$1")
}

// Every key of the structs is in the file, every key of the file is in the structs, and each has a comment.
func TestShippedFileHasEveryKey(t *testing.T) {
	text := examples(t)
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	sameKeys(t, doc.Content[0], reflect.TypeFor[Config](), "", lines)
}

func sameKeys(t *testing.T, n *yaml.Node, typ reflect.Type, path string, lines []string) {
	t.Helper()
	if isList(typ) {
		if len(n.Content) == 0 {
			return // cache.negative, shown in its comment
		}
		n, typ = n.Content[0], typ.Elem()
	}
	if !isBranch(typ) {
		return
	}
	written := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		written[key.Value] = n.Content[i+1]
		if _, ok := fieldOf(typ, key.Value); !ok {
			t.Errorf("config.yaml has %s, which no struct has", join(path, key.Value))
		}
		if line := key.Line - 1; !strings.Contains(lines[line], " # ") && !strings.HasPrefix(strings.TrimSpace(lines[line-1]), "#") {
			t.Errorf("%s has no comment: say what it means, on its line or above it", join(path, key.Value))
		}
	}
	for i := range typ.NumField() {
		field := typ.Field(i)
		value, ok := written[keyOf(field)]
		switch p := join(path, keyOf(field)); {
		case !ok:
			t.Errorf("config.yaml lacks %s: add it at its default, with a comment", p)
		case p == "routes.cache":
			// the keys of the top-level cache
		default:
			sameKeys(t, value, field.Type, p, lines)
		}
	}
}

func TestExamplesShowTheDefaults(t *testing.T) {
	c, err := load(t, examples(t), Flags{})
	if err != nil {
		t.Fatalf("the shipped examples, in force, are refused:\n%v", err)
	}
	want := newUpstream()
	want.Name, want.URL, want.URLs = "api", "http://127.0.0.1:9000", []string{}
	if !reflect.DeepEqual(c.Upstreams[0], want) {
		t.Errorf("config.yaml shows an upstream\n%+v, the defaults are\n%+v", c.Upstreams[0], want)
	}
	job := newWarm()
	job.Name, job.URLs, job.Headers = "hot", []string{"http://www.example.com/"}, []string{}
	if !reflect.DeepEqual(c.Warm, []warm.Config{job}) {
		t.Errorf("config.yaml shows a job of warm\n%+v, the defaults are\n%+v", c.Warm[0], job)
	}
	plain := policy.Route{Name: "everything", Upstream: "api", Cache: c.Cache}
	got, bare := c.Routes[0], func(s []string) bool { return len(s) == 0 }
	if !reflect.DeepEqual(got.Cache, plain.Cache) || got.Match.Host != "" || got.Match.Path != "" || !bare(got.Match.Methods) {
		t.Errorf("config.yaml shows a route that is not the default:\n%+v", got)
	}
}
