package e2e

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The house rules as tests. A failure says where, and what to do about it.

// source is one Go file of the repository.
type source struct {
	name, room string // from the root: "store/redis/bell.go", "store/redis"; the root's room is "main"
	test       bool
	lines      int
	set        *token.FileSet
	*ast.File
}

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.set.Position(n.Pos()).Line)
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	set := token.NewFileSet()
	walk(t, func(name string, text []byte) {
		if path.Ext(name) != ".go" {
			return
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		room := path.Dir(name)
		if room == "." {
			room = "main"
		}
		all = append(all, source{name, room, strings.HasSuffix(name, "_test.go"), bytes.Count(text, []byte("\n")), set, file})
	})
	return all
}

// walk reads every file that belongs to the repository.
func walk(t *testing.T, visit func(name string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(file), "../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "dist"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || name == ".git" || name == "weir" || strings.HasSuffix(name, ".test") || strings.HasSuffix(name, ".out"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil {
			visit(name, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// staircase is who may look where: rooms of ours, then modules of others. Nobody looks up.
var staircase = map[string]struct{ ours, theirs []string }{
	"policy":          {nil, nil}, // but for the files below
	"store":           {[]string{"policy"}, nil},
	"store/memory":    {[]string{"store", "policy"}, nil},
	"store/near":      {[]string{"store", "policy"}, nil},
	"store/redis":     {[]string{"store", "policy"}, []string{"github.com/redis/go-redis/v9"}},
	"store/storetest": {[]string{"store", "policy"}, nil},
	"proxy":           {[]string{"proxy/fill", "proxy/upstream", "store", "policy"}, nil},
	"proxy/fill":      {[]string{"proxy/upstream", "store", "policy"}, []string{"golang.org/x/sync"}},
	"proxy/upstream":  {[]string{"policy"}, []string{"github.com/failsafe-go/failsafe-go"}},
	"proxy/telemetry": {[]string{"proxy", "proxy/fill", "proxy/upstream", "store", "policy"}, []string{"go.opentelemetry.io/otel", "github.com/prometheus"}},
	"proxy/admin":     {[]string{"proxy", "proxy/fill", "store", "policy"}, nil},
	"proxy/warm":      {[]string{"proxy", "proxy/fill", "store", "policy"}, []string{"github.com/netresearch/go-cron"}},
	"proxy/hot":       {[]string{"proxy", "proxy/fill"}, nil},
	"proxy/config": {
		[]string{"proxy", "proxy/fill", "proxy/upstream", "proxy/admin", "proxy/telemetry", "proxy/warm", "store", "store/memory", "store/redis", "store/near", "policy"},
		[]string{"github.com/spf13/viper", "github.com/go-viper/mapstructure/v2", "go.yaml.in/yaml/v3", "github.com/dustin/go-humanize", "github.com/fsnotify/fsnotify"},
	},
	"main": {[]string{"*"}, []string{"github.com/spf13/cobra", "golang.org/x/sync"}},
	"e2e":  {nil, []string{"rsc.io/script", "golang.org/x/tools/txtar"}},
}

// keyholders are single files with a module of their own.
var keyholders = map[string]string{
	"policy/cachecontrol.go": "github.com/pquerna/cachecontrol",
	"policy/targeted.go":     "github.com/dunglas/httpsfv",
}

func TestStaircase(t *testing.T) {
	for _, s := range sources(t) {
		rule, known := staircase[s.room]
		if !known {
			t.Errorf("%s: there is no room %s: put the file into one of design's rooms, or give the new one its line in staircase", s.name, s.room)
			continue
		}
		for _, spec := range s.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if allowed(s, rule.ours, rule.theirs, imported) {
				continue
			}
			t.Errorf("%s: %s may not import %s: move the code down to a room that may, or hand in what it needs as an argument", s.at(spec), s.room, imported)
		}
	}
}

func allowed(s source, ours, theirs []string, imported string) bool {
	if room, inside := strings.CutPrefix(imported, "weir/"); inside {
		// Tests stand outside their room, and may set up its neighbours below.
		extra := s.test && slices.Contains([]string{"store/storetest", "store/memory", "store/redis", "store/near"}, room)
		return slices.Contains(ours, room) || slices.Contains(ours, "*") || extra || s.test && room == s.room
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return under(imported, keyholders[s.name]) || slices.ContainsFunc(theirs, func(m string) bool { return under(imported, m) })
}

func under(imported, module string) bool {
	return module != "" && (imported == module || strings.HasPrefix(imported, module+"/"))
}

// Policy is pure: what it answers depends on nothing but what it is asked.
func TestPolicyIsPure(t *testing.T) {
	forbidden := []string{"os", "context", "sync", "sync/atomic", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "unsafe", "runtime", "io"}
	calls := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	for _, s := range sources(t) {
		if s.room != "policy" || s.test {
			continue
		}
		for _, spec := range s.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			network := strings.HasPrefix(imported, "net/") && imported != "net/http" && imported != "net/url" && imported != "net/netip"
			if slices.Contains(forbidden, imported) || network || imported == "net" {
				t.Errorf("%s: policy may not import %s: let the caller bring it in, as Moment does", s.at(spec), imported)
			}
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: policy starts no goroutine and waits for none: return a decision and let proxy act on it", s.at(n))
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(calls, n.Sel.Name) {
					t.Errorf("%s: policy has no clock: take the time from Moment instead of time.%s", s.at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
}

// The sizes that keep a file and a function readable, and those that may exceed them, with the reason.
const (
	functionLines, fileLines, parameters, results, packageFiles = 60, 400, 4, 3, 20
)

var oversized = map[string]string{
	"store/near.alone has more than 4 parameters":        "a take's own three, and the far store's answer with its error",
	"store/storetest.leaseChecks has more than 60 lines": "a table of cases",
	"store/storetest.noteChecks has more than 60 lines":  "a table of cases",
	"store/storetest.purgeChecks has more than 60 lines": "a table of cases",
	"store/storetest.signChecks has more than 60 lines":  "a table of cases",
	"store/storetest.waitChecks has more than 60 lines":  "a table of cases",
}

func TestSizes(t *testing.T) {
	files, used := map[string]int{}, map[string]bool{}
	tooMuch := func(where, what, remedy string) {
		used[what] = true
		if oversized[what] == "" {
			t.Errorf("%s: %s: %s; or list %[2]q in oversized with the reason", where, what, remedy)
		}
	}
	for _, s := range sources(t) {
		if s.test {
			continue // tables are long
		}
		files[s.room]++
		if s.lines > fileLines {
			tooMuch(s.name, fmt.Sprintf("%s has more than %d lines", s.name, fileLines), "split it by what a person looks for")
		}
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := s.room + "." + f.Name.Name
			if length := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; length > functionLines {
				tooMuch(s.at(f), fmt.Sprintf("%s has more than %d lines", name, functionLines), "give its steps names")
			}
			if f.Type.Params.NumFields() > parameters {
				tooMuch(s.at(f), fmt.Sprintf("%s has more than %d parameters", name, parameters), "some of them belong together: make them a type")
			}
			if f.Type.Results != nil && f.Type.Results.NumFields() > results {
				tooMuch(s.at(f), fmt.Sprintf("%s has more than %d results", name, results), "some of them belong together: make them a type")
			}
		}
	}
	for room, n := range files {
		if n > packageFiles {
			tooMuch(room, fmt.Sprintf("%s has more than %d files", room, packageFiles), "find the second room in it")
		}
	}
	for what := range oversized {
		if !used[what] {
			t.Errorf("oversized lists %q, which is no longer so: remove it", what)
		}
	}
}

// No bool parameters: at the call nobody can tell what true means.
func TestNoBoolParameters(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			for _, p := range f.Type.Params.List {
				if kind, ok := p.Type.(*ast.Ident); ok && kind.Name == "bool" {
					t.Errorf("%s: %s takes a bool: make it two functions, or a named type", s.at(p), f.Name.Name)
				}
			}
		}
	}
}

// Time that passes is not synchronisation. Inside a synctest bubble sleeping costs nothing and is exact.
// A room whose tests all begin in one helper's bubble need not import it in each file.
func TestNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && s.room != "e2e" && s.room != "store/storetest" {
			continue
		}
		bubbles := s.room == "store/near" || slices.ContainsFunc(s.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
		ast.Inspect(s.File, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && !bubbles && call.Sel.Name == "Sleep" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.Errorf("%s: time.Sleep: wait for a counter, a gate or a channel, or put the test into a synctest bubble", s.at(n))
				}
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	rooms, told := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		rooms[s.room] = true
		file := path.Base(s.name)
		if s.Doc != nil && (file == "doc.go" || s.room == "main" && file == "main.go") {
			told[s.room] = strings.HasPrefix(s.Doc.Text(), "Package "+path.Base(s.room)+" ") || s.room == "main"
		}
	}
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		if !told[room] {
			t.Errorf("%s: no doc.go that begins `// Package %s …`: say what the room is for and what its contract is", room, path.Base(room))
		}
	}
}

func TestEveryScenarioTellsItsStory(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		story, _, _ := strings.Cut(string(text), "\n\n")
		first, _, _ := strings.Cut(story, "\n")
		if !regexp.MustCompile(`^# [A-Z].{20,}`).MatchString(first) || !regexp.MustCompile(`(?m)^#.*[.!]$`).MatchString(story) {
			t.Errorf("%s: begin with a comment that tells in a sentence which behaviour it shows", file)
		}
	}
}

// What a machine of ours is called, or where something lay on it, means nothing to others.
func TestNoMachinePaths(t *testing.T) {
	// The letters in brackets keep this line from being what it looks for.
	machine := regexp.MustCompile(`/(work|roo[t])/[a-z]|/hom[e]/[a-z]|/tm[p]/[a-z]|prox[y]\.golang\.|su[m]\.golang\.|docke[r]\.io|registr[y]\.[a-z0-9]+\.|de[b]\.debian|/bash_job[s]`)
	walk(t, func(name string, text []byte) {
		if name == "e2e/rules_test.go" || path.Base(name) == "go.sum" {
			return
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if found := machine.Find(line); found != nil {
				t.Errorf("%s:%d: %s: a path or host of one machine: make it relative, or leave it to the environment", name, i+1, found)
			}
		}
	})
}

// Two replicas must fit into one process: no package keeps anything that changes.
func TestNoPackageState(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil {
				t.Errorf("%s: an init function: do it in New", s.at(f))
			}
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if !constant(v) && !embedded(g, v) && !slices.Contains(tables, s.room+"."+v.Names[0].Name) {
					t.Errorf("%s: package-level variable %s: keep it in the value that uses it; a table that nobody writes to is listed in tables", s.at(v), v.Names[0].Name)
				}
			}
		}
	}
}

// tables are package-level variables that are written once, where they stand.
var tables = []string{"policy.words", "proxy/telemetry.seconds"}

// constant tells what cannot change though Go has no constant of its type: errors, compiled patterns, interface guards.
func constant(v *ast.ValueSpec) bool {
	if v.Names[0].Name == "_" {
		return true
	}
	for _, value := range v.Values {
		call, ok := value.(*ast.CallExpr)
		if !ok {
			return false
		}
		fun := call.Fun
		if generic, ok := fun.(*ast.IndexExpr); ok {
			fun = generic.X
		}
		f, ok := fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, _ := f.X.(*ast.Ident)
		if pkg == nil || !slices.Contains([]string{"errors.New", "fmt.Errorf", "regexp.MustCompile", "redis.NewScript", "template.Must", "reflect.TypeFor", "reflect.TypeOf"}, pkg.Name+"."+f.Sel.Name) {
			return false
		}
	}
	return len(v.Values) > 0
}

func embedded(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	return false
}

// Every Reason is used, and README's table says what it means in the words of reason.go.
func TestReasons(t *testing.T) {
	all := sources(t)
	words := reasonWords(t, all)
	used := map[string]bool{}
	for _, s := range all {
		if s.test || s.name == "policy/reason.go" {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	var table strings.Builder
	table.WriteString("| reason | meaning |\n|---|---|\n")
	for _, w := range words {
		if !used[w.constant] && w.constant != "None" {
			t.Errorf("policy.%s is used nowhere: use it or remove it", w.constant)
		}
		fmt.Fprintf(&table, "| `%s` | %s |\n", w.name, w.meaning)
	}
	checkTable(t, table.String())
}

type reasonWord struct{ constant, name, meaning string }

func reasonWords(t *testing.T, all []source) (words []reasonWord) {
	t.Helper()
	i := slices.IndexFunc(all, func(s source) bool { return s.name == "policy/reason.go" })
	ast.Inspect(all[i].File, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isName := pair.Key.(*ast.Ident)
		value, isWord := pair.Value.(*ast.CompositeLit)
		if !isName || !isWord || len(value.Elts) < 2 {
			return true
		}
		w := reasonWord{constant: key.Name}
		for j, to := range []*string{&w.name, &w.meaning} {
			if text, ok := value.Elts[j].(*ast.BasicLit); ok {
				*to, _ = strconv.Unquote(text.Value)
			}
		}
		words = append(words, w)
		return true
	})
	if len(words) < 10 {
		t.Fatal("policy/reason.go: the table of names and meanings is not where this test looks for it")
	}
	return words
}

func checkTable(t *testing.T, table string) {
	const begin, end = "<!-- reasons -->\n", "<!-- /reasons -->"
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	is, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Errorf("README.md has no %s … %s for the table of reasons", strings.TrimSpace(begin), end)
	case is != table && *update:
		if err := os.WriteFile("../README.md", []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case is != table:
		t.Error("README.md's table of reasons is not what policy/reason.go says: go test ./e2e -run Reasons -update")
	}
}
