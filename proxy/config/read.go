package config

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"weir/policy"
)

// reader walks a YAML document beside the structs. It finds every problem rather than the first, and yields a tree of
// maps whose leaves are of the structs' own types.
type reader struct {
	file   string
	set    places
	wrong  Problems
	merges int
}

// maxMerges stops a document that merges a mapping into itself.
const maxMerges = 1000

func (r *reader) document(text []byte) map[string]any {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, next yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // empty, or comments only
	case err != nil:
		r.notYAML(err)
		return nil
	}
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		r.complain(&next, "", "a second document (---) would never be read: one file holds one")
		return nil
	}
	// Anchors that hold themselves, or one another a million times over, end here.
	var ignored any
	if err := doc.Decode(&ignored); err != nil && !errors.As(err, new(*yaml.TypeError)) {
		r.notYAML(err)
		return nil
	}
	if root := doc.Content[0]; !isNull(root) {
		return r.mapping(root, reflect.TypeFor[Config](), "")
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

func (r *reader) notYAML(err error) {
	m := yamlLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1])
	r.wrong = append(r.wrong, Problem{Source: r.file, Line: line, Text: "not YAML: " + err.Error()[len(m[0]):]})
}

func (r *reader) complain(n *yaml.Node, key, format string, args ...any) {
	r.wrong = append(r.wrong, Problem{Source: r.file, Line: n.Line, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) place(n *yaml.Node, key string) {
	r.set[key] = Problem{Source: r.file, Line: n.Line}
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// mapping reads the keys of a branch. What an anchor brings (<<) yields to what is written beside it.
func (r *reader) mapping(n *yaml.Node, t reflect.Type, path string) map[string]any {
	if n = resolve(n); n.Kind != yaml.MappingNode {
		r.complain(n, path, "holds keys (%s), not a single value", strings.Join(keysOf(t), ", "))
		return nil
	}
	read, merged := map[string]any{}, map[string]any{}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			r.merge(value, t, path, merged)
			continue
		}
		field, known := fieldOf(t, key.Value)
		if !known || key.Kind != yaml.ScalarNode {
			r.complain(key, join(path, key.Value), "%s", unknown(key.Value, t, path))
			continue
		}
		if line, twice := first[key.Value]; twice {
			r.complain(key, join(path, key.Value), "written twice; the first is on line %d", line)
			continue
		}
		first[key.Value] = key.Line
		r.place(key, join(path, key.Value))
		if v, ok := r.value(value, field.Type, join(path, key.Value)); ok {
			read[key.Value] = v
		}
	}
	for key, v := range merged {
		if _, ok := read[key]; !ok {
			read[key] = v
		}
	}
	return read
}

func (r *reader) merge(n *yaml.Node, t reflect.Type, path string, into map[string]any) {
	if r.merges++; r.merges > maxMerges {
		return
	}
	sources := []*yaml.Node{n}
	if resolve(n).Kind == yaml.SequenceNode {
		sources = resolve(n).Content
	}
	for _, source := range sources {
		for key, v := range r.mapping(source, t, path) {
			if _, ok := into[key]; !ok {
				into[key] = v
			}
		}
	}
}

// unknown explains a key that is not there: the wrong case, a slip, or the wrong place.
func unknown(key string, t reflect.Type, path string) string {
	if _, ok := fieldOf(t, strings.ToLower(key)); ok {
		return "keys are lower case: write " + strings.ToLower(key)
	}
	if near := nearest(strings.ToLower(key), keysOf(t)); near != "" {
		return "unknown key; did you mean " + near + "?"
	}
	if other := elsewhere(strings.ToLower(key)); other != "" {
		return "unknown key here; did you mean " + other + "?"
	}
	if path == "" {
		return "unknown key"
	}
	return fmt.Sprintf("unknown key; %s has %s", path, strings.Join(keysOf(t), ", "))
}

// value reads what a key holds; false: nothing, or nothing right.
func (r *reader) value(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	n = resolve(n)
	switch {
	case isNull(n) && (isBranch(t) || t.Kind() == reflect.Slice):
		return nil, false // every key below is commented out: the defaults hold
	case isNull(n):
		r.complain(n, path, "has no value; to have the default, leave the key out")
		return nil, false
	case isBranch(t):
		return r.mapping(n, t, path), true
	case t.Kind() == reflect.Slice:
		return r.sequence(n, t, path)
	case t == graceType && n.Kind == yaml.MappingNode:
		return r.grace(n, path), true
	case t == graceType && n.Kind != yaml.ScalarNode:
		r.complain(n, path, "is one time, or two: write 30s, or {well: 1h, sick: 24h}")
		return nil, false
	case n.Kind != yaml.ScalarNode:
		r.complain(n, path, "is one value, not a list or a mapping")
		return nil, false
	}
	v, err := parse(n.Value, t)
	if err != nil {
		r.complain(n, path, "%s", err)
	}
	return v, err == nil
}

// grace reads the long form: one time for a well upstream, one for a sick one.
func (r *reader) grace(n *yaml.Node, path string) (g policy.Grace) {
	read := r.mapping(n, graceType, path)
	g.Well, _ = read["well"].(time.Duration)
	g.Sick, _ = read["sick"].(time.Duration)
	return g
}

func (r *reader) sequence(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		if isList(t) {
			r.complain(n, path, "is a list: begin each entry with a dash (-)")
		} else {
			r.complain(n, path, "is a list: write [%s]", n.Value)
		}
		return nil, false
	}
	if isList(t) {
		entries := make([]any, len(n.Content))
		for i, entry := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			r.place(entry, at)
			entries[i] = r.mapping(entry, t.Elem(), at)
		}
		return entries, true
	}
	list := reflect.MakeSlice(t, 0, len(n.Content))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.place(item, at)
		if v, ok := r.value(item, t.Elem(), at); ok {
			list = reflect.Append(list, reflect.ValueOf(v))
		}
	}
	return list.Interface(), true
}
