package config

import (
	"reflect"
	"regexp"
	"strings"
)

const envPrefix = "WEIR_"

// serviceLink is a variable that Kubernetes sets in every pod when a Service is called weir or weir-something. It is
// nobody's slip.
var serviceLink = regexp.MustCompile(`^WEIR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$`)

func variable(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// environment checks every variable that bears our name. viper reads them later, and would ignore what it does not know.
func environment(environ []string, set places) (wrong Problems) {
	types := map[string]reflect.Type{}
	paths := map[string]string{}
	var names []string
	eachLeaf(reflect.TypeFor[Config](), "", func(path string, t reflect.Type) {
		name := variable(path)
		types[name], paths[name] = t, path
		if !isList(t) {
			names = append(names, name)
		}
	})
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || text == "" || serviceLink.MatchString(name) {
			continue
		}
		t, known := types[name]
		switch {
		case !known:
			wrong = append(wrong, Problem{Source: name, Text: unknownVariable(name, names)})
		case isList(t):
			wrong = append(wrong, Problem{Source: name, Text: "a list of entries can only be written in the file"})
		default:
			set[paths[name]] = Problem{Source: name}
			if _, err := parse(text, t); err != nil {
				wrong = append(wrong, Problem{Source: name, Text: err.Error()})
			}
		}
	}
	return wrong
}

func unknownVariable(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return "names no key; did you mean " + near + "?"
	}
	for _, list := range []string{"UPSTREAMS_", "ROUTES_", "WARM_"} {
		if strings.HasPrefix(name, envPrefix+list) {
			return "upstreams, routes and warm can only be written in the file"
		}
	}
	return "names no key; a key such as store.redis.timeout is WEIR_STORE_REDIS_TIMEOUT"
}

// Flags are the command line's, as they were written. "": not given.
type Flags struct {
	Listen, Admin, Redis, LogLevel string
	Upstream                       string // replaces the file's upstreams and routes by one
	TTL, Grace                     string // of that one
}

// read turns flags into keys and values.
func (f Flags) read(set places) (values map[string]any, wrong Problems) {
	values = map[string]any{}
	put := func(flag, path, text string, t reflect.Type) {
		if text == "" {
			return
		}
		v, err := parse(text, t)
		if err != nil {
			wrong = append(wrong, Problem{Source: flag, Text: err.Error()})
		}
		set[path], values[path] = Problem{Source: flag}, v
	}
	text, list := reflect.TypeFor[string](), reflect.TypeFor[[]string]()
	put("--listen", "listen", f.Listen, text)
	put("--admin", "admin.listen", f.Admin, text)
	put("--log-level", "telemetry.log.level", f.LogLevel, text)
	put("--redis", "store.redis.addresses", f.Redis, list)
	if f.Redis != "" {
		put("--redis", "store.kind", "redis", text)
	}
	return values, append(wrong, f.single(set, values)...)
}

// single is --upstream: one upstream, one route that takes everything. The top-level cache stays.
func (f Flags) single(set places, values map[string]any) (wrong Problems) {
	cache := map[string]any{}
	for _, one := range []struct {
		flag, key, text string
		t               reflect.Type
	}{{"--ttl", "ttl", f.TTL, durationType}, {"--grace", "grace", f.Grace, graceType}} {
		if one.text == "" {
			continue
		}
		if f.Upstream == "" {
			wrong = append(wrong, Problem{Source: one.flag, Text: "belongs to --upstream; without it, write " + one.key + " in the file"})
			continue
		}
		d, err := parse(one.text, one.t)
		if err != nil {
			wrong = append(wrong, Problem{Source: one.flag, Text: err.Error()})
		}
		cache[one.key] = d
	}
	if f.Upstream == "" {
		return wrong
	}
	if !strings.Contains(f.Upstream, "://") {
		return append(wrong, Problem{Source: "--upstream", Text: "is a URL: write http://" + f.Upstream})
	}
	for _, key := range []string{"upstreams", "routes"} {
		set[key] = Problem{Source: "--upstream"}
		for k := range set {
			if strings.HasPrefix(k, key+"[") {
				delete(set, k)
			}
		}
	}
	values["upstreams"] = []any{map[string]any{"name": "default", "url": f.Upstream}}
	values["routes"] = []any{map[string]any{"name": "default", "upstream": "default", "cache": cache}}
	return wrong
}
