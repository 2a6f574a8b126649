package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/proxy/admin"
)

const enough = 20 * time.Second // for anything that should take milliseconds

// run gives a command line and returns what it printed and whether it succeeded.
func run(t *testing.T, line ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := command()
	c.SetArgs(line)
	c.SetOut(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// inFolder starts the test in a folder with this weir.yaml.
func inFolder(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	put(t, text)
}

func put(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile("weir.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const small = `
upstreams: [{name: api, url: "http://127.0.0.1:9000"}]
routes:
  - {name: all, upstream: api, cache: {set_cookie: strip}}
`

func TestCheck(t *testing.T) {
	inFolder(t, small)
	out, err := run(t, "check", "--config", "weir.yaml")
	want := `ok: listen :8080, admin 127.0.0.1:8081, store memory (256MiB), upstreams 1, routes 1
loosened: weir.yaml:4: routes[0].cache.set_cookie: strip: answers that set cookies are shared
`
	if err != nil || out != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, out, want)
	}
	put(t, small+"cache: {uncacheable_for: 0s}\n")
	if out, err = run(t, "check", "--config", "weir.yaml"); err != nil || !strings.Contains(out, "\nwarning: weir.yaml:5: cache.uncacheable_for: of 0s lets") {
		t.Errorf("got %v\n%s", err, out)
	}
	put(t, small+"lisen: x\ncache: {ttl: 5}\n")
	out, err = run(t, "check", "--config", "weir.yaml")
	want = `weir.yaml:5: lisen: unknown key; did you mean listen?
weir.yaml:6: cache.ttl: 5 needs a unit: write 5s, 5m, 5h or 5d
`
	if err == nil || out != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, out, want)
	}
}

// Of a route's times, what cannot be, what contradicts itself and what is suspicious are told with file, line and remedy.
func TestCheckOfTimes(t *testing.T) {
	const head = "upstreams: [{name: api, url: \"http://127.0.0.1:9000\", response_timeout: 30s}]\nroutes:\n- name: all\n  upstream: api\n  cache:\n"
	inFolder(t, "")
	for _, c := range []struct{ line, want string }{
		{"jitter: 100%", "jitter: 100% is out of range: from 0% to less than 100%"},
		{"jitter: 0.2", `jitter: "0.2" is not a percentage: write 20%`},
		{"ttl: 5", "ttl: 5 needs a unit: write 5s, 5m, 5h or 5d"},
		{"ttl: -5m", "ttl: must not be negative, is -5m"},
		{"negative: [{status: [none], ttl: 10s}]", `negative[0].status[0]: "none" is not a whole number`},
		{"negative: [{status: [200], ttl: 10s}]", "negative: 200 is no error, and not empty: use ttl for the others"},
		{"negative: [{status: [416], ttl: 10s}]", "negative: 416 is about the one request that earned it, and would be served to all (R27): drop it"},
		{"negative: [{status: [404, 404], ttl: 10s}]", "negative: 404 has two lifetimes: drop one"},
		{"negative: [{status: [404], ttl: 0s}]", "negative: a ttl of 0s keeps nothing: write one above 0s, or drop the entry"},
		{"grace: {well: 1h, sick: 1m}", "grace: 1m0s for a sick upstream is less than 1h0m0s for a well one: write the longer one under sick"},
		{"{force_ttl: 5m, set_cookie: keep}", "force_ttl: would hand one client's cookies to all, as set_cookie is keep: write set_cookie: strip, or drop force_ttl"},
		{"soft_timeout: 30s", `soft_timeout: 30s is no shorter than response_timeout (30s) of upstream "api": write less`},
		{"client_directives: honor", `client_directives: "honor" is none of honour, collapse, ignore`},
		{"collapse: none", `collapse: "none" is none of rfc, all`},
		{"stale_despite: [no-store]", `stale_despite: "no-store" is none of must-revalidate, proxy-revalidate, s-maxage, no-cache`},
		{"early_refresh: {mode: always}", `early_refresh.mode: "always" is none of xfetch, power, off`},
		{"early_refresh: {mode: power, exponent: 0}", "early_refresh.exponent: 0: write a number above 0, 3 when in doubt"},
		{"wait: {then: stale}", `wait.then: "stale" is none of 503, upstream`},
	} {
		put(t, head+"    "+c.line+"\n")
		out, err := run(t, "check", "--config", "weir.yaml")
		if want := "weir.yaml:6: routes[0].cache." + c.want + "\n"; err == nil || out != want {
			t.Errorf("%s: got %v\n%swant\n%s", c.line, err, out, want)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"early_refresh: {mode: power}", "early_refresh.mode: power refreshes a page that lives 1m0s and is asked for 1000 times a second about 12 times in its life"},
		{"{force_ttl: 5m, ignore: {cookies: [_ga]}}", "force_ttl: keeps what is answered to requests whose cookies"},
		{"{force_ttl: 5m, set_cookie: strip}", "force_ttl: shares what sets a cookie, without the cookie"},
		{"{ttl: 5m, jitter: 0%}", "jitter: of 0% lets pages that were stored together expire together: write 20%"},
		{"ttl: 60d", "ttl: of 1440h0m0s is longer than anything is kept: write 30d or less"},
	} {
		put(t, head+"    "+c.line+"\n")
		out, err := run(t, "check", "--config", "weir.yaml")
		if want := "\nwarning: weir.yaml:6: routes[0].cache." + c.want; err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: got %v\n%swant%s", c.line, err, out, want)
		}
	}
}

func TestCheckJSON(t *testing.T) {
	inFolder(t, small)
	var said struct {
		OK       bool
		Problems []struct {
			Source, Key, Message string
			Line                 int
		}
	}
	out, err := run(t, "check", "--json", "--config", "weir.yaml")
	if json.Unmarshal([]byte(out), &said) != nil || err != nil || !said.OK || said.Problems == nil || len(said.Problems) > 0 {
		t.Errorf("got %v %s", err, out)
	}
	put(t, small+"lisen: x\n")
	out, err = run(t, "check", "--json", "--config", "weir.yaml")
	if json.Unmarshal([]byte(out), &said) != nil || err == nil || said.OK || len(said.Problems) != 1 {
		t.Fatalf("got %v %s", err, out)
	}
	if p := said.Problems[0]; p.Source != "weir.yaml" || p.Line != 5 || p.Key != "lisen" || p.Message != "unknown key; did you mean listen?" {
		t.Errorf("got %+v", p)
	}
}

func TestConfig(t *testing.T) {
	inFolder(t, small+"admin: {token: hush}\n")
	out, err := run(t, "config", "--config", "weir.yaml", "--listen", ":7000")
	for _, line := range []string{"listen: \":7000\"", "  token: \"********\"", "      keep: 1h", "    set_cookie: \"strip\""} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, out)
		}
	}
	if err != nil || strings.Contains(out, "hush") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// Without routes it shows the defaults; what is wrong all the same is refused.
func TestConfigWithoutRoutes(t *testing.T) {
	inFolder(t, "cache: {grace: 1m}\n")
	out, err := run(t, "config", "--config", "weir.yaml")
	for _, line := range []string{"listen: \":8080\"", "  grace: 1m", "  stale_if_error: 24h", "upstreams: []", "routes: []"} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, out)
		}
	}
	if err != nil {
		t.Error(err)
	}
	put(t, "listen: nowhere\n")
	if out, err = run(t, "config", "--config", "weir.yaml"); err == nil || out != "" {
		t.Errorf("got %v\n%s", err, out)
	}
	if out, err = run(t, "check", "--config", "weir.yaml"); err == nil || strings.Count(out, "\n") != 2 {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestVersion(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "weir ") {
		t.Errorf("got %v %q", err, out)
	}
	var said map[string]string
	out, err = run(t, "version", "--json")
	if json.Unmarshal([]byte(out), &said) != nil || err != nil || !strings.HasPrefix(said["go"], "go1.") {
		t.Errorf("got %v %q", err, out)
	}
}

func TestWhatIsRefusedSaysWhatToDo(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]string{
		"":                                    "no upstreams and no routes; to start, name one: weir serve --upstream http://127.0.0.1:9000",
		"serve":                               "no upstreams and no routes; to start, name one: weir serve --upstream http://127.0.0.1:9000",
		"serv":                                `unknown command "serv" for "weir"`,
		"serve --upstream":                    "flag needs an argument: --upstream",
		"serve extra":                         `unknown command "extra" for "weir serve"`,
		"purge":                               "name exactly one of url, tag, prefix, host, route and all",
		"check --config absent.yaml":          "absent.yaml: cannot be read: no such file or directory",
		"config --ttl 5m":                     "--ttl: belongs to --upstream; without it, write ttl in the file",
		"healthcheck --admin 127.0.0.1:1":     "is weir running there, and is that its admin.listen?",
		"purge http://a/ --admin 127.0.0.1:1": "is weir running there, and is that its admin.listen?",
		"top --admin 127.0.0.1:1":             "is weir running there, and is that its admin.listen?",
		"warm --admin 127.0.0.1:1":            "is weir running there, and is that its admin.listen?",
	} {
		out, err := run(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(out+err.Error(), want) {
			t.Errorf("weir %s: got %v %s, want %s", line, err, out, want)
		}
	}
}

// binary is the program, built once, under the race detector.
var binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "weir")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "weir")
	if out, err := exec.Command("go", "build", "-race", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	_, err := binary() // before a test changes the working folder
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	path, _ := binary()
	os.RemoveAll(filepath.Dir(path))
	os.Exit(code)
}

// process is the program, running.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan map[string]any // of its log; closed at its end
	told  []map[string]any
	url   string // where clients come in
	admin string
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(path, args...), lines: make(chan map[string]any, 1000)}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			line := map[string]any{}
			if json.Unmarshal(s.Bytes(), &line) != nil {
				line["msg"] = s.Text()
			}
			p.lines <- line
		}
	}()
	return p
}

// served starts it with free ports and waits until it listens.
func served(t *testing.T, args ...string) *process {
	t.Helper()
	p := start(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	line := p.until("listening")
	p.url, p.admin = "http://"+line["listen"].(string), line["admin"].(string)
	return p
}

// until reads the log up to a line with this message.
func (p *process) until(msg string) map[string]any {
	p.t.Helper()
	late := time.After(enough)
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				p.t.Fatalf("it ended before it said %q, after %v", msg, p.told)
			}
			p.told = append(p.told, line)
			if strings.Contains(line["msg"].(string), msg) {
				return line
			}
		case <-late:
			p.t.Fatalf("it did not say %q, only %v", msg, p.told)
		}
	}
}

// exit waits for its end.
func (p *process) exit() int {
	p.t.Helper()
	late := time.After(enough)
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				_ = p.cmd.Wait()
				return p.cmd.ProcessState.ExitCode()
			}
			p.told = append(p.told, line)
		case <-late:
			p.t.Fatalf("it is still running, after %v", p.told)
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// counting answers with the number of the request.
func counting(t *testing.T) *httptest.Server {
	var mu sync.Mutex
	asked := 0
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		fmt.Fprint(w, asked)
	}))
	t.Cleanup(u.Close)
	return u
}

// The life of a replica, as an operator sees it: a page, its purge, its health, a reload, its end.
func TestServe(t *testing.T) {
	u := counting(t)
	file := func(ttl string) string {
		return fmt.Sprintf("upstreams: [{name: api, url: %q}]\nroutes:\n  - {name: all, upstream: api, cache: {ttl: %s}}\n", u.URL, ttl)
	}
	inFolder(t, file("0s"))
	p := served(t, "--config", "weir.yaml")
	if hint := p.until("lifetime"); !slices.Equal(hint["routes"].([]any), []any{"all"}) {
		t.Errorf("hint: %v", hint)
	}
	page := p.url + "/page"
	get(t, page)
	if _, body := get(t, page); body != "2" {
		t.Errorf("without a lifetime a page was kept: %s", body)
	}

	put(t, file("5"))
	p.signal(syscall.SIGHUP)
	if line := p.until("reload refused"); line["problem"] != "weir.yaml:3: routes[0].cache.ttl: 5 needs a unit: write 5s, 5m, 5h or 5d" {
		t.Errorf("reload of a bad file: %v", line)
	}
	put(t, strings.Replace(file("1h"), "[", "[{name: new, url: http://127.0.0.1:9}, ", 1)+"  - {name: other, upstream: new}\n")
	p.signal(syscall.SIGHUP)
	if line := p.until("reload refused"); !strings.HasSuffix(line["problem"].(string), "(other upstreams need a restart)") {
		t.Errorf("reload with another upstream: %v", line)
	}
	put(t, file("1h")+"store: {max_size: 1GiB}\n")
	p.signal(syscall.SIGHUP)
	if line := p.until("reloaded"); !slices.Equal(line["restart_needed_for"].([]any), []any{"store.max_size"}) {
		t.Errorf("reload: %v", line)
	}
	get(t, page)
	if res, body := get(t, page); body != "3" || !strings.Contains(res.Header.Get("Cache-Status"), "hit") {
		t.Errorf("after the reload: %s, %v", body, res.Header)
	}

	out, err := run(t, "purge", page, "--admin", p.admin)
	if err != nil || !strings.HasPrefix(out, "purged "+page) {
		t.Errorf("purge: %v %s", err, out)
	}
	if _, body := get(t, page); body != "4" {
		t.Errorf("after the purge: %s", body)
	}
	if _, err := run(t, "healthcheck", "--admin", p.admin); err != nil {
		t.Errorf("healthcheck: %v", err)
	}
	p.signal(syscall.SIGTERM)
	p.until("draining")
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A file that changes is read by itself, and several times within a second once: a new one in its place, or the same
// written over.
func TestReloadsByItself(t *testing.T) {
	file := func(ttl string) string {
		return fmt.Sprintf("upstreams: [{name: api, url: %q}]\nroutes:\n  - {name: all, upstream: api, cache: {ttl: %s}}\n", "http://127.0.0.1:9", ttl)
	}
	inFolder(t, file("1s"))
	p := served(t, "--config", "weir.yaml")
	put(t, file("2"))
	p.until("reload refused")
	if err := os.WriteFile("new", []byte(file("2s")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("new", "weir.yaml"); err != nil {
		t.Fatal(err)
	}
	p.until("reloaded")
	for range 20 { // the first is obeyed at once, or merges like all others with that before
		p.signal(syscall.SIGHUP)
	}
	p.until("reloaded")
	put(t, file("3"))
	p.until("reload refused")
	reloads := 0
	for _, line := range p.told {
		if line["msg"] == "reloaded" {
			reloads++
		}
	}
	if reloads > 3 { // one of the file, and of the signals one or two
		t.Errorf("reloaded %d times", reloads)
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGTERM)
	p.exit()
}

// In the lame duck time: not ready, still answering, closing connections. A second signal ends it at once.
func TestLameDuck(t *testing.T) {
	inFolder(t, "drain: {lame_duck: 1h, timeout: 2h}")
	p := served(t, "--config", "weir.yaml", "--upstream", counting(t).URL)
	get(t, p.url)
	p.signal(syscall.SIGTERM)
	p.until("draining")
	if res, _ := get(t, "http://"+p.admin+"/readyz"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz: %s", res.Status)
	}
	if res, _ := get(t, p.url); res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("in the lame duck time: %s, close %v", res.Status, res.Close)
	}
	asks, _ := http.NewRequest(http.MethodGet, p.url, nil)
	asks.Header.Set("Upgrade", "websocket") // in vain: Connection does not name it
	if res, err := http.DefaultClient.Do(asks); err != nil || !res.Close || res.Body.Close() != nil {
		t.Errorf("who asks for another protocol: %v, %v", res, err)
	}
	if _, err := run(t, "healthcheck", "--admin", p.admin); err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("healthcheck: %v", err)
	}
	p.signal(os.Interrupt)
	if code := p.exit(); code != 0 {
		t.Errorf("exit %d after %v", code, p.told)
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Chdir(t.TempDir())
	address := l.Addr().String()
	for flag, key := range map[string]string{"--listen": "listen", "--admin": "admin.listen"} {
		other := map[string]string{"--listen": "--admin", "--admin": "--listen"}[flag]
		p := start(t, "--upstream", "http://127.0.0.1:9", flag, address, other, "127.0.0.1:0")
		line := p.until("in use")
		if want := "weir: " + key + ": " + address + " is in use: end what listens there, or choose another (" + flag + ")"; line["msg"] != want {
			t.Errorf("got %v, want %s", line, want)
		}
		if code := p.exit(); code != 1 {
			t.Errorf("exit %d", code)
		}
	}
}

// HTTP/2 without TLS, by prior knowledge.
func TestHTTP2(t *testing.T) {
	t.Chdir(t.TempDir())
	p := served(t, "--upstream", counting(t).URL)
	speaks := new(http.Protocols)
	speaks.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: speaks}}
	res, err := client.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
		t.Errorf("%s %s", res.Proto, res.Status)
	}
}

// What is hot stays in memory, and top shows it: what this replica answers most: nine of ten from what is kept. The last is told of when its exchange has ended.
func TestTop(t *testing.T) {
	p := served(t, "--upstream", counting(t).URL, "--ttl", "5m")
	for range 10 {
		get(t, p.url+"/hot")
	}
	get(t, p.url+"/cold")
	var k admin.Keys
	for late := time.After(enough); len(k.Keys) != 2 || k.Keys[0].HitShare < .895; {
		select {
		case <-late:
			t.Fatalf("%+v", k)
		case <-time.After(10 * time.Millisecond):
		}
		out, err := run(t, "top", "--admin", p.admin, "--json", "--sort", "misses")
		if err == nil {
			err = json.Unmarshal([]byte(out), &k)
		}
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(k.Keys, func(a, b admin.Key) int { return int(b.HitShare*100) - int(a.HitShare*100) })
	}
	if hot := k.Keys[0]; hot.URL != p.url+"/hot" || hot.Upstream != "default" || hot.Busy <= 0 || k.Keys[1].HitShare != 0 {
		t.Errorf("%+v", k)
	}
	out, err := run(t, "top", "--admin", p.admin, "--most", "1")
	if err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, p.url+"/hot") || !strings.Contains(out, "90%") {
		t.Errorf("got %v\n%s", err, out)
	}
	none := regexp.MustCompile(`(?m)^weir_store_pinned_bytes(\{.*\})? 0$`) // within a second or two what is hot is pinned
	for late := time.After(enough); ; {
		if _, text := get(t, "http://"+p.admin+"/metrics"); strings.Contains(text, "\nweir_store_pinned_bytes") && !none.MatchString(text) {
			break
		}
		select {
		case <-late:
			t.Fatal("nothing is pinned")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := run(t, "top", "--admin", p.admin, "--sort", "size"); err == nil || !strings.Contains(err.Error(), "hits, misses, upstream_time") {
		t.Errorf("by size: %v", err)
	}
	p.signal(syscall.SIGKILL)
}
