package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Weir in front of servers that none of us wrote. By hand, or by `make real`, which installs what is missing.

var real = flag.Bool("real", false, "compare answers through Weir with the direct ones, of nginx and of Python's http.server")

const (
	realFolder = "/usr/share/doc" // on every Debian
	realPages  = 600
)

// original is a real server, and how it is reached.
type original struct {
	name, address string
	ignoresRange  bool // answers 200 to Range; a right 206 of ours counts
}

func TestReal(t *testing.T) {
	if !*real {
		t.Skip("asks servers of others: go test ./e2e -run Real -real")
	}
	nginx := original{name: "nginx", address: freeAddress(t)}
	python := original{name: "python", address: freeAddress(t), ignoresRange: true}
	startNginx(t, nginx.address)
	startPython(t, python.address)
	paths := realPaths(t)
	for _, o := range []original{nginx, python} {
		t.Run(o.name, func(t *testing.T) {
			compareCopies(t, o, paths)
		})
	}
}

// compareCopies asks for every path in every way: cold and warm from a cache that keeps for long, then from one whose
// copies have gone stale.
func compareCopies(t *testing.T, o original, paths []string) {
	r := realReplica(t, o, "1h")
	count := comparison{t: t, original: o, replica: r.listen, statuses: map[string]int{}}
	for _, phase := range []string{"cold", "warm"} {
		for _, path := range paths {
			for i, a := range waysToAsk(count.direct(path)) {
				if phase == "cold" && i > 0 {
					break // by now it is warm
				}
				count.compare(phase, path, a)
			}
		}
	}
	// The other ways of asking, each as the first that the cache hears of a page.
	r = realReplica(t, o, "1h")
	count.replica = r.listen
	for i, path := range paths {
		ways := waysToAsk(count.direct(path))
		count.compare("cold", path, ways[i%len(ways)])
		count.compare("warm", path, ask{method: http.MethodGet})
	}
	r = realReplica(t, o, "1s")
	count.replica = r.listen
	for _, path := range paths {
		count.compare("cold", path, ask{method: http.MethodGet})
	}
	<-time.After(1100 * time.Millisecond) // the last one is stale by now
	for i, path := range paths {
		ways := waysToAsk(count.direct(path))
		count.compare("stale", path, ways[i%len(ways)])
	}
	t.Logf("%s: %d URLs, %d comparisons, %d of them equal; %v", o.name, len(paths), count.all, count.equal, count.statuses)
	for _, seen := range []string{"warm hit", "stale fwd=stale"} {
		if count.statuses[seen] < len(paths)/2 {
			t.Errorf("only %d answers were %s: this has not tested what it is meant to", count.statuses[seen], seen)
		}
	}
}

// waysToAsk makes requests that fit an answer: whole, by HEAD, in ranges, and as clients do that have a copy.
func waysToAsk(direct *answer) []ask {
	size := len(direct.body)
	ways := []ask{{method: http.MethodGet}, {method: http.MethodHead}}
	with := func(pairs ...string) {
		ways = append(ways, ask{method: http.MethodGet, header: header(pairs...)})
	}
	for _, r := range []string{"0-0", fmt.Sprintf("%d-%d", size/3, size/2), fmt.Sprintf("%d-", size/2), "-7", fmt.Sprintf("%d-", size+10)} {
		with("Range", "bytes="+r)
	}
	if etag, there := direct.see("Etag"); there {
		with("If-None-Match", etag)
		with("If-None-Match", `"another"`)
		with("If-Range", etag, "Range", "bytes=1-2")
		with("If-Range", `"another"`, "Range", "bytes=1-2")
	}
	if modified, there := direct.see("Last-Modified"); there {
		with("If-Modified-Since", modified)
		with("If-Modified-Since", "Mon, 01 Jan 1990 00:00:00 GMT")
	}
	return ways
}

// comparison counts.
type comparison struct {
	t          *testing.T
	original   original
	replica    string
	all, equal int
	statuses   map[string]int
}

func (c *comparison) direct(path string) *answer {
	return c.fetch(c.original.address, path, ask{method: http.MethodGet})
}

func (c *comparison) fetch(address, path string, a ask) *answer {
	c.t.Helper()
	a.target = path
	a.header = append(fields{{"Host", "weir.test"}}, a.header...)
	got := send(address, a)
	if err := got.whole(30 * time.Second); err != nil {
		c.t.Fatalf("%s %s from %s: %v", a.method, path, address, err)
	}
	return got
}

func (c *comparison) compare(phase, path string, a ask) {
	c.t.Helper()
	a.target = path
	direct, ours := c.fetch(c.original.address, path, a), c.fetch(c.replica, path, a)
	c.all++
	status, _ := ours.see("Cache-Status")
	for _, word := range []string{"hit", "fwd=stale", "fwd=uri-miss"} {
		if strings.Contains(status, word) {
			c.statuses[phase+" "+word]++
		}
	}
	if why := c.differ(direct, ours, a); why != "" {
		c.t.Errorf("%s: %s %s %v: %s\n--- direct\n%s\n--- ours\n%s", phase, a.method, path, a.header, why, direct, ours)
		return
	}
	c.equal++
}

// differ tells in what, "" when in nothing that counts.
func (c *comparison) differ(direct, ours *answer, a ask) string {
	body := string(direct.body)
	_, ranged := a.header.get("Range")
	if ranged && c.original.ignoresRange && direct.status == http.StatusOK && ours.status != http.StatusOK {
		return rightPart(body, ours)
	}
	if direct.status != ours.status {
		return fmt.Sprintf("status %d, not %d", ours.status, direct.status)
	}
	if ours.status == http.StatusRequestedRangeNotSatisfiable { // its body is each server's own
		return rightPart(string(c.direct(a.target).body), ours)
	}
	if string(ours.body) != body {
		return fmt.Sprintf("a body of %d bytes, not %d, or other ones", len(ours.body), len(body))
	}
	// nginx says Accept-Ranges in a 200 and not in a 206; a cache makes either of them from the other.
	without := []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Age", "Via", "Cache-Status", "Date", "Accept-Ranges"}
	if ours.status == http.StatusNotModified {
		// A 304 need not repeat what describes the body (RFC 9110 §15.4.5).
		without = append(without, "Last-Modified", "Content-Type", "Content-Length", "Server")
	}
	for _, pair := range []struct {
		have, want fields
		how        string
	}{{ours.header, direct.header, "instead of"}, {direct.header, ours.header, "where ours has"}} {
		for _, line := range pair.want {
			if value, _ := pair.have.get(line.name); value != line.value && !slices.Contains(without, line.name) {
				return fmt.Sprintf("%s: %q %s %q", line.name, value, pair.how, line.value)
			}
		}
	}
	return ""
}

// rightPart judges a 206 or 416 by the whole body that the upstream sent in its place.
func rightPart(whole string, ours *answer) string {
	span, _ := ours.see("Content-Range")
	if ours.status == http.StatusRequestedRangeNotSatisfiable {
		if want := fmt.Sprintf("bytes */%d", len(whole)); span != want {
			return fmt.Sprintf("Content-Range: %q, not %q", span, want)
		}
		return ""
	}
	var first, last, total int
	if _, err := fmt.Sscanf(span, "bytes %d-%d/%d", &first, &last, &total); err != nil || ours.status != http.StatusPartialContent {
		return fmt.Sprintf("status %d with Content-Range: %q", ours.status, span)
	}
	if total != len(whole) || last >= total || first > last || string(ours.body) != whole[first:last+1] {
		return fmt.Sprintf("Content-Range: %q and %d bytes, of %d", span, len(ours.body), len(whole))
	}
	return ""
}

func realReplica(t *testing.T, o original, lifetime string) *replica {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	text := fmt.Sprintf("cache: { force_ttl: %s, early_refresh: { mode: \"off\" } }\ntelemetry: { log: { access: false } }\n", lifetime)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := launch(o.name, binary(t), "serve", "--config", file, "--upstream", "http://"+o.address, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.await(); err != nil {
		t.Fatal(err)
	}
	return r
}

// realPaths are files, folders, and what is not there.
func realPaths(t *testing.T) []string {
	t.Helper()
	paths := []string{"/no-such-page", "/", "/bash/"}
	err := filepath.WalkDir(realFolder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || len(paths) >= realPages || !d.Type().IsRegular() {
			return err
		}
		if about, err := d.Info(); err == nil && about.Size() > 0 {
			paths = append(paths, (&url.URL{Path: strings.TrimPrefix(file, realFolder)}).EscapedPath())
		}
		return nil
	})
	if err != nil || len(paths) < 500 {
		t.Fatalf("%s has only %d files (%v)", realFolder, len(paths), err)
	}
	return paths
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startNginx(t *testing.T, address string) {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log %[1]s/error.log; worker_processes 1;
events { worker_connections 256; }
http {
	access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
	uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server { listen %[2]s; root %[3]s; }
}`, dir, address, realFolder)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startOriginal(t, address, exec.Command("nginx", "-c", file, "-e", filepath.Join(dir, "error.log")))
}

func startPython(t *testing.T, address string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(address)
	startOriginal(t, address, exec.Command("python3", "-m", "http.server", "--bind", host, "--directory", realFolder, port))
}

func startOriginal(t *testing.T, address string, command *exec.Cmd) {
	t.Helper()
	command.SysProcAttr = dieWithParent()
	if err := command.Start(); err != nil {
		t.Fatalf("%v; `make real` installs it", err)
	}
	t.Cleanup(func() {
		command.Process.Signal(os.Interrupt)
		command.Wait()
	})
	if err := answers(address); err != nil {
		t.Fatal(err)
	}
}

// answers waits until somebody takes connections there.
func answers(address string) error {
	return poll(10*time.Second, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
}
