package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"
)

// peer is another cache, as Debian packages it. Its files in peers.txtar have it do what it can for a crowd: collapse,
// serve stale where the response allows it, and stream to those who join.
type peer struct {
	name, folder, binary string
	argv                 []string // in whose words, as in the files, $DIR, $ADDRESS, $PORT and $UPSTREAM are filled in
}

func peers() []peer {
	return []peer{
		{"nginx", "nginx", "nginx", []string{"-c", "$DIR/nginx.conf", "-e", "$DIR/error.log"}},
		{"Varnish", "varnish", "varnishd", []string{"-F", "-j", "none", "-a", "$ADDRESS", "-f", "$DIR/default.vcl", "-n", "$DIR/run", "-s", "malloc,64m", "-p", "default_grace=0"}},
		{"Traffic Server", "trafficserver", "traffic_server", []string{"--run-root=$DIR/runroot.yaml"}},
		{"Squid", "squid", "squid", []string{"-N", "-n", "weir$PORT", "-f", "$DIR/squid.conf"}},
	}
}

// two are a fleet of theirs: each is a cache of its own.
func (p peer) two(t *testing.T) *world {
	w := worldOf(t)
	for _, name := range []string{"a", "b"} {
		address := freeAddress(t)
		r, err := launch(name, p.command(t, address, w.upstream.address)...)
		if err != nil {
			t.Fatal(err)
		}
		r.listen, w.replicas[name] = address, r
		t.Cleanup(func() { // some leave shared memory behind when they are killed
			r.signal(syscall.SIGTERM)
			r.exit()
		})
		if err := answers(address); err != nil {
			t.Fatalf("%s: %v\n%s", p.name, err, r.log())
		}
	}
	return w
}

func (p peer) command(t *testing.T, address, upstream string) []string {
	t.Helper()
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(address)
	fill := strings.NewReplacer("$DIR", dir, "$ADDRESS", address, "$PORT", port, "$UPSTREAM_PORT", upstream[strings.LastIndex(upstream, ":")+1:], "$UPSTREAM", upstream)
	archive, err := txtar.ParseFile("peers.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range archive.Files {
		name, its := strings.CutPrefix(file.Name, p.folder+"/")
		if !its {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(fill.Replace(string(file.Data))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	argv := []string{p.binary}
	for _, word := range p.argv {
		argv = append(argv, fill.Replace(word))
	}
	return argv
}
