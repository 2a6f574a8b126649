package redis

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/store/storetest"
)

// server is a redis-server of the test's own, on a socket in a folder of its own.
type server struct {
	t      testing.TB
	dir    string
	args   []string
	cmd    *exec.Cmd
	socket string
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	// Not t.TempDir: a socket's path holds about a hundred bytes.
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, args: args, socket: filepath.Join(dir, "redis.sock")}
	t.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(dir)
	})
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("these tests need a real Redis: apt-get install redis-server (%v)", err)
	}
	args := append([]string{"--port", "0", "--unixsocket", s.socket, "--dir", s.dir, "--save", "", "--appendonly", "no"}, s.args...)
	s.cmd = exec.Command(path, args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := s.client()
	defer func() { _ = c.Close() }()
	eventually(s.t, "redis-server answers", func() bool {
		err := c.Ping(s.t.Context()).Err()
		return err == nil || redis.IsAuthError(err) || redis.IsLoadingError(err)
	})
}

// kill ends this server, and none but this.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// pause stops the process: connections stay, and nothing answers.
func (s *server) pause() { s.signal(syscall.SIGSTOP) }

func (s *server) resume() { s.signal(syscall.SIGCONT) }

func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// client is a plain one, to look into the server from outside.
func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.socket, MaxRetries: -1, DialerRetries: 1, PipelinePoolSize: -1, DisableIdentity: true})
}

func (s *server) config(prefix string) Config {
	return Config{Mode: "single", Addresses: []string{s.socket}, Prefix: prefix, Timeout: 3 * time.Second}
}

// open is a store whose bell is up.
func (s *server) open(t testing.TB, c Config) *Store {
	t.Helper()
	st, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	// Under the race detector two cores are slow: what a purge waits for is shown, how long it has the patience is not.
	st.replies = 10 * time.Second
	eventually(t, "the bell is heard", st.bell.hears)
	return st
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestContract(t *testing.T) {
	srv := startServer(t)
	var stores atomic.Int64
	storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
		c := srv.config(fmt.Sprintf("weir-%d", stores.Add(1)))
		return srv.open(t, c), srv.open(t, c)
	}, storetest.RealClock)
}
