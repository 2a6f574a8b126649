package redis

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"weir/store/storetest"
)

// startGuarded starts a master, a replica of it, and a Sentinel that guards them; and answers the master, and how all
// are reached.
func startGuarded(t *testing.T) (master *server, c Config) {
	t.Helper()
	ctx, port, next := t.Context(), freePort(t), freePort(t)
	master = startServer(t, "--port", port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
	startServer(t, "--port", next, "--bind", "127.0.0.1", "--replicaof", "127.0.0.1 "+port)
	guard := startSentinel(t, freePort(t), port)
	sentinel, raw := redis.NewSentinelClient(&redis.Options{Addr: guard}), master.client()
	defer func() { _, _ = sentinel.Close(), raw.Close() }()
	eventually(t, "Sentinel knows the replica", func() bool {
		known, err := sentinel.Replicas(ctx, "weir").Result()
		return err == nil && len(known) == 1
	})
	// One that has just come takes a moment until it is sent anything.
	eventually(t, "the replica follows", func() bool {
		raw.Set(ctx, "hello", "", 0)
		return raw.Wait(ctx, 1, 0).Val() == 1
	})
	c = master.config("weir")
	c.Mode, c.Addresses, c.SentinelMaster = "sentinel", []string{guard}, "weir"
	return master, c
}

// startSentinel starts one that guards the master at a port, and answers its own address.
func startSentinel(t *testing.T, port, master string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "port " + port + "\nbind 127.0.0.1\nsentinel monitor weir 127.0.0.1 " + master + " 1\n" +
		"sentinel down-after-milliseconds weir 500\nsentinel failover-timeout weir 5000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return "127.0.0.1:" + port
}

func TestContractBehindSentinel(t *testing.T) {
	master, c := startGuarded(t)
	t.Run("", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
			c := c
			c.Prefix = clean("weir-" + t.Name()[len("TestContractBehindSentinel"):])
			return master.open(t, c), master.open(t, c)
		}, storetest.RealClock)
	})
}

// TestFailoverUnderLoad: the master dies while two replicas work. The one that takes over has every purge that was
// acknowledged, bodies are whole and their pages' own, and the work goes on, with the bell heard again.
func TestFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	master, c := startGuarded(t)
	a, b := master.open(t, c), master.open(t, c)
	l := startLoad(t, 10, a, b)
	l.goesOn()
	master.kill()
	eventually(t, "the replica has taken over", func() bool { return a.Check(t.Context()) == nil })
	eventually(t, "the bell is heard", func() bool { return a.bell.hears() && b.bell.hears() })
	l.goesOn()
}
