package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
	"weir/store/storetest"
)

// rights are those that README names for a user of Redis.
func rights(t *testing.T) []any {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "ACL SETUSER weir on >secret ")
	if !ok {
		t.Fatal("README names no rights")
	}
	rest, _, _ = strings.Cut(rest, "\n\n")
	user := []any{"acl", "setuser", "weir", "on", ">secret"}
	for _, right := range strings.Fields(rest) {
		user = append(user, right)
	}
	return user
}

// TestContractOfAUser: the rights that README names are enough for all that the store does.
func TestContractOfAUser(t *testing.T) {
	srv := startServer(t)
	raw := srv.client()
	defer func() { _ = raw.Close() }()
	if err := raw.Do(t.Context(), rights(t)...).Err(); err != nil {
		t.Fatal(err)
	}
	var stores atomic.Int64
	t.Run("", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
			c := srv.config(fmt.Sprintf("weir:%d", stores.Add(1)))
			c.Username, c.Password = "weir", "secret"
			return srv.open(t, c), srv.open(t, c)
		}, storetest.RealClock)
	})
	log := raw.ACLLog(t.Context(), 10).Val()
	for _, denied := range log {
		t.Errorf("denied: %s %s", denied.Reason, denied.Object)
	}
}

// TestUserOfACluster: with what README adds for a Cluster, they are enough there too.
func TestUserOfACluster(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, more, _ := strings.Cut(string(text), "in a Cluster also\n`")
	more, _, _ = strings.Cut(more, "`")
	cluster, user := startCluster(t, 3), rights(t)
	for _, right := range strings.Fields(more) {
		user = append(user, right)
	}
	raws := make([]*redis.Client, len(cluster.nodes))
	for i, srv := range cluster.nodes {
		raws[i] = srv.client()
		defer func() { _ = raws[i].Close() }()
		if err := raws[i].Do(t.Context(), user...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster.config("weir")
	c.Username, c.Password = "weir", "secret"
	b := &bench{T: t, srv: cluster.nodes[0], Store: cluster.nodes[0].open(t, c)}
	for i := range 20 {
		name := fmt.Sprint(i)
		b.seed(page(name), name+strings.Repeat("x", 2*inlineSize), long)
		b.holds(page(name), name+strings.Repeat("x", 2*inlineSize))
	}
	if got := b.purge(policy.Selector{Tag: "red"}, store.Hard); got.Replicas != 1 {
		t.Errorf("purged %+v", got)
	}
	cluster.move(t, b.of(page("0")).head, func() {}) // so that it is asked for there
	b.holds(page("0"), "0"+strings.Repeat("x", 2*inlineSize))
	for _, raw := range raws {
		for _, denied := range raw.ACLLog(t.Context(), 10).Val() {
			t.Errorf("denied: %s %s", denied.Reason, denied.Object)
		}
	}
}

// TestRefusedConnections: a Redis that does not let us in is away: it is asked by the breaker's probe alone.
func TestRefusedConnections(t *testing.T) {
	srv := startServer(t, "--requirepass", "right")
	for what, spoil := range map[string]func(c *Config){
		"WRONGPASS": func(c *Config) { c.Password = "wrong" },
		"NOAUTH":    func(c *Config) { c.Password = "" },
		"DB index":  func(c *Config) { c.DB = 99 },
	} {
		c := srv.config("weir")
		c.Password = "right"
		spoil(&c)
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		b := &bench{T: t, srv: srv, Store: s}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("check: %v, want it to say %s", err, what)
		}
		b.opens()
	}
}

// TestLoading: a Redis that reads its dump answers, but nothing of use: it is away until it has read all, and then has
// what it had.
func TestLoading(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.seed(page("y"), "one", long)
	for i := range 1000 {
		b.must(b.raw.Set(ctx, fmt.Sprint("other:", i), "", 0).Err())
	}
	b.must(b.raw.Save(ctx).Err())
	b.srv.kill()
	b.srv.args = append(b.srv.args, "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
	b.srv.start()
	if err := b.raw.Get(ctx, "other:1").Err(); err == nil || !strings.HasPrefix(err.Error(), "LOADING") {
		t.Fatalf("it is not loading: %v", err)
	}
	b.opens()
	eventually(t, "the breaker closes", b.breaker.closed)
	b.holds(page("y"), "one")
}

// TestBrokenDisk: a Redis that cannot save takes no writes. What is stored is answered.
func TestBrokenDisk(t *testing.T) {
	b := newBench(t, "--enable-protected-configs", "yes")
	ctx := t.Context()
	b.seed(page("stale"), "one", -time.Second)
	b.seed(page("fresh"), "one", long)
	l := b.lease(page("running"), "t1")
	gone := filepath.Join(b.srv.dir, "gone")
	b.must(os.Mkdir(gone, 0o700))
	b.must(b.raw.ConfigSet(ctx, "dir", gone).Err())
	b.must(b.raw.ConfigSet(ctx, "save", "3600 1").Err())
	b.must(os.Remove(gone))
	eventually(t, "saving fails", func() bool {
		_ = b.raw.BgSave(ctx).Err()
		return strings.Contains(b.raw.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	b.holds(page("fresh"), "one")
	got, err := b.Take(ctx, page("stale"), want("t2"))
	b.fails(err, store.ErrReadOnly)
	if got.Entry == nil || got.Lease != nil {
		t.Errorf("taken = %+v, want the entry", got)
	}
	b.fails(b.Commit(ctx, l, write(page("running"), answer("one", long))), store.ErrReadOnly)
	_, err = b.Purge(ctx, policy.Selector{Page: page("fresh").Primary}, store.Hard)
	b.fails(err, store.ErrReadOnly)
	if !b.breaker.closed() {
		t.Error("the breaker took a refusal for an outage")
	}
	b.must(b.raw.ConfigSet(ctx, "save", "").Err())
	b.seed(page("new"), "one", long)
}

// TestEviction: a full Redis drops heads and segments as it likes. What is left is whole or a miss, and nothing that
// nobody finds any more stays for ever.
func TestEviction(t *testing.T) {
	b := newBench(t, "--maxmemory", "16mb", "--maxmemory-policy", "allkeys-random")
	ctx := t.Context()
	held, broken := 0, 0
	for i := range 40 {
		name := fmt.Sprint(i)
		b.must(b.Commit(ctx, b.lease(page(name), name), write(page(name), answer(string(noise(mib+mib/2, byte(i))), long))))
	}
	for i := range 40 {
		e := b.taken(page(fmt.Sprint(i)), look()).Entry
		if e == nil {
			continue
		}
		p := make([]byte, e.Body.Size())
		n, err := e.Body.ReadAt(ctx, p, 0)
		switch {
		case string(p[:n]) != string(noise(mib+mib/2, byte(i)))[:n]:
			t.Errorf("%d: other bytes came back", i)
		case n < len(p):
			b.fails(err, errGone)
			broken++
		default:
			held++
		}
	}
	if held == 0 || held == 40 {
		t.Errorf("%d pages are whole, and %d in part", held, broken)
	}
	for _, key := range b.raw.Keys(ctx, "*").Val() {
		if ttl := b.raw.PTTL(ctx, key).Val(); ttl < 0 && ttl != -2 {
			t.Errorf("%s stays for ever", key)
		}
	}
}

// TestSlowRedis: one that takes 200 ms for each command is used as long as the timeout allows for it, and is away where it
// does not: a question then costs the timeout, and soon nothing.
func TestSlowRedis(t *testing.T) {
	b := newBench(t)
	between := startLine(t, b.srv)
	c := b.srv.config("weir")
	c.Addresses = []string{between.socket}
	patient := &bench{T: t, srv: b.srv, Store: b.srv.open(t, c)}
	c.Timeout = 150 * time.Millisecond
	hasty := &bench{T: t, srv: b.srv, Store: b.srv.open(t, c)}
	b.seed(page("big"), string(noise(3*mib, 1)), long)
	body := hasty.taken(page("big"), look()).Entry.Body

	between.slow(200 * time.Millisecond)
	patient.seed(page("y"), "one", long)
	patient.holds(page("y"), "one")
	if !patient.breaker.closed() {
		t.Error("the breaker took slowness for an outage")
	}
	if slowest := hasty.opens(); slowest > 5*hasty.timeout { // on loaded cores
		t.Errorf("a question took %v", slowest)
	}
	hasty.costsNothing(body)
	between.slow(0)
	eventually(t, "the breaker closes", hasty.breaker.closed)
	hasty.holds(page("y"), "one")
}

// TestResetConnections: a connection that breaks under a question costs nobody anything but the question asked again.
func TestResetConnections(t *testing.T) {
	b := newBench(t)
	l := startLoad(t, 5, b.Store, b.srv.open(t, b.srv.config("weir")))
	for range 20 {
		l.goesOn()
		b.must(b.raw.Do(t.Context(), "client", "kill", "type", "normal").Err())
	}
	l.end()
	for text, n := range l.errors {
		if strings.Contains(text, store.ErrUnavailable.Error()) { // a lease may be lost to another's purge
			t.Errorf("%d times: %s", n, text)
		}
	}
}
