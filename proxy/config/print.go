package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"weir/policy"
	"weir/proxy/warm"
)

// mask stands for a secret that is set.
const mask = "********"

func isSecret(path string) bool {
	key := path[strings.LastIndex(path, ".")+1:]
	return strings.HasSuffix(key, "password") || strings.HasSuffix(key, "token")
}

// YAML prints the Config as a file that reads back as the same, but for the secrets, which are masked.
func (c *Config) YAML() ([]byte, error) {
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(node(reflect.ValueOf(*c), "")); err != nil {
		return nil, err
	}
	return []byte(b.String()), e.Close()
}

func node(v reflect.Value, path string) *yaml.Node {
	switch {
	case isBranch(v.Type()):
		m := &yaml.Node{Kind: yaml.MappingNode}
		for i := range v.NumField() {
			key := keyOf(v.Type().Field(i))
			m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, node(v.Field(i), join(path, key)))
		}
		return m
	case v.Type() == graceType && v.Interface().(policy.Grace).Sick > 0:
		m := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for i, key := range keysOf(graceType) {
			m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, node(v.Field(i), join(path, key)))
		}
		return m
	case v.Kind() == reflect.Slice:
		s := &yaml.Node{Kind: yaml.SequenceNode}
		if !isList(v.Type()) || v.Len() == 0 {
			s.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			s.Content = append(s.Content, node(v.Index(i), path))
		}
		return s
	}
	text, style := scalar(v.Interface())
	if isSecret(path) && text != "" {
		text = mask
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: style}
}

// scalar is the text that parse reads.
func scalar(v any) (string, yaml.Style) {
	switch v := v.(type) {
	case time.Duration:
		return formatDuration(v), 0
	case policy.Grace:
		return formatDuration(v.Well), 0
	case policy.Percent:
		return strconv.FormatFloat(float64(v)*100, 'g', 12, 64) + "%", 0
	case Size:
		return v.String(), 0
	case netip.Prefix:
		return v.String(), yaml.DoubleQuotedStyle
	case warm.Every:
		return v.String(), yaml.DoubleQuotedStyle
	case string:
		return v, yaml.DoubleQuotedStyle
	}
	return fmt.Sprint(v), 0
}

// Restart names the keys that differ and only take effect in a new process: all but routes, what they inherit, what is
// kept warm, and how much is logged.
func Restart(old, now *Config) []string {
	was, is := map[string]string{}, map[string]string{}
	flatten(reflect.ValueOf(*old), "", was)
	flatten(reflect.ValueOf(*now), "", is)
	var keys []string
	for key := range is {
		live := key == "routes" || key == "warm" || strings.HasPrefix(key, "cache.") || key == "telemetry.log.level"
		if was[key] != is[key] && !live {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func flatten(v reflect.Value, path string, into map[string]string) {
	if !isBranch(v.Type()) {
		into[path] = fmt.Sprint(v.Interface())
		return
	}
	for i := range v.NumField() {
		flatten(v.Field(i), join(path, keyOf(v.Type().Field(i))), into)
	}
}
