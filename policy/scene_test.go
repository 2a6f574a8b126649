package policy

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A scene is one block of a text table: a sentence, subjects with their header fields below them, and what is right.
//
//	# The sentence.
//	stored 200
//	  ETag: "a"
//	GET /page
//	  If-None-Match: "a"
//	----
//	304
type scene struct {
	line     int
	given    string // as written
	sentence string
	subjects []subject
	want     string
}

// subject is a line of words with the fields indented under it.
type subject struct {
	words  []string
	header http.Header
}

// epoch is the moment scenes happen in: their answers arrive then.
func epoch() time.Time { return time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) }

// eachScene runs play on every block of a table as a test of its own, and compares.
func eachScene(t *testing.T, file string, play func(t *testing.T, s scene) string) {
	t.Helper()
	scenes := readScenes(t, file)
	if len(scenes) == 0 {
		t.Fatalf("%s holds no scene", file)
	}
	var rewritten strings.Builder
	for _, s := range scenes {
		t.Run(s.sentence, func(t *testing.T) {
			got := play(t, s)
			rewritten.WriteString(s.given + "\n----\n" + got + "\n\n")
			if got != s.want && !*update {
				t.Errorf("testdata/%s:%d: %s\n got %s\nwant %s", file, s.line, s.sentence, got, s.want)
			}
		})
	}
	if *update {
		text := strings.TrimRight(rewritten.String(), "\n") + "\n"
		if err := os.WriteFile("testdata/"+file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readScenes(t *testing.T, file string) []scene {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var scenes []scene
	line := 1
	for block := range strings.SplitSeq(string(text), "\n\n") {
		given, want, ok := strings.Cut(block, "\n----\n")
		if !ok {
			t.Fatalf("testdata/%s:%d: a block without ----", file, line)
		}
		s := scene{line: line, given: strings.TrimLeft(given, "\n"), want: strings.TrimSpace(want)}
		for row := range strings.SplitSeq(strings.TrimLeft(given, "\n"), "\n") {
			s.read(t, row)
		}
		scenes = append(scenes, s)
		line += strings.Count(block, "\n") + 2
	}
	return scenes
}

func (s *scene) read(t *testing.T, row string) {
	t.Helper()
	switch {
	case strings.HasPrefix(row, "# "):
		s.sentence = strings.TrimSpace(s.sentence + " " + row[2:])
	case strings.HasPrefix(row, "  "):
		name, value, ok := strings.Cut(row[2:], ":")
		if !ok || len(s.subjects) == 0 {
			t.Fatalf("line %d: %q is no field of a subject", s.line, row)
		}
		s.subjects[len(s.subjects)-1].header.Add(name, strings.Trim(value, " "))
	default:
		s.subjects = append(s.subjects, subject{strings.Fields(row), http.Header{}})
	}
}

// stored is what the scene's "stored [kind] STATUS" says, arrived at the epoch.
func (s scene) stored(t *testing.T) Stored {
	t.Helper()
	for _, x := range s.subjects {
		if x.words[0] != "stored" {
			continue
		}
		status, err := strconv.Atoi(x.words[len(x.words)-1])
		if err != nil {
			t.Fatal(err)
		}
		out := Stored{Response: Response{Status: status, Header: x.header, Asked: epoch(), Arrived: epoch()}, Total: -1}
		switch x.words[1] {
		case "part":
			out.Kind = Part
		case "marker":
			out.Kind = Marker
		}
		return out
	}
	t.Fatalf("line %d: nothing is stored", s.line)
	return Stored{}
}

// request is what the scene's "METHOD URL" says; an absolute URL names scheme and host, which are else http and a.test.
func (s scene) request(t *testing.T) Request {
	t.Helper()
	for _, x := range s.subjects {
		if c := x.words[0][0]; c < 'A' || c > 'Z' {
			continue
		}
		u, err := url.Parse(x.words[1])
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Method: x.words[0], Scheme: "http", Host: "a.test", URL: u, Header: x.header}
		if u.IsAbs() {
			r.Scheme, r.Host = u.Scheme, u.Host
			r.URL = &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}
		}
		return r
	}
	t.Fatalf("line %d: nobody asks", s.line)
	return Request{}
}

// policy is what the scene's "route key=value..." lines say; without one, every request goes to the upstream api.
func (s scene) policy(t *testing.T) *Policy {
	t.Helper()
	c := Config{Upstreams: []string{"api", "other"}}
	for _, x := range s.subjects {
		if x.words[0] == "route" {
			c.Routes = append(c.Routes, readRoute(t, len(c.Routes), x.words[1:]))
		}
	}
	if len(c.Routes) == 0 {
		c.Routes = []Route{readRoute(t, 0, nil)}
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func readRoute(t *testing.T, n int, words []string) Route {
	t.Helper()
	r := Route{Name: "r" + strconv.Itoa(n), Upstream: "api", Cache: Cache{Keep: time.Hour, Heuristic: true}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		values := strings.Split(value, ",")
		switch key {
		case "upstream":
			r.Upstream = value
		case "host":
			r.Match.Host = value
		case "path":
			r.Match.Path = value
		case "methods":
			r.Match.Methods = values
		case "invalidate":
			r.Cache.Invalidate = value
		case "collapse":
			r.Cache.Collapse = value
		case "client_directives":
			r.Cache.ClientDirectives = value
		case "ignore.headers":
			r.Cache.Ignore.Headers = values
		case "ignore.cookies":
			r.Cache.Ignore.Cookies = values
		case "key.headers":
			r.Cache.Key.Headers = values
		case "query.ignore":
			r.Cache.Key.Query.Ignore = values
		default:
			if !readCache(t, &r, key, value) {
				t.Fatalf("no scene knows the route's key %q", key)
			}
		}
	}
	return r
}

// printHeader is one field a line, by name, the lines of a field in their order.
func printHeader(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, line := range h[name] {
			b.WriteString(strings.TrimRight(name+": "+line, " ") + "\n")
		}
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return strings.TrimSpace(b.String())
}
