package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
	"weir/store/storetest"
)

// cluster is some masters, each with its part of the slots.
type cluster struct {
	nodes     []*server
	addresses []string
}

const slots = 16384

func startCluster(t *testing.T, masters int) *cluster {
	t.Helper()
	c := &cluster{}
	for i := range masters {
		port, bus := freePort(t), freePort(t)
		srv := startServer(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus,
			"--repl-diskless-sync-delay", "0")
		c.nodes, c.addresses = append(c.nodes, srv), append(c.addresses, "127.0.0.1:"+port)
		raw := srv.client()
		defer func() { _ = raw.Close() }()
		first, last := i*slots/masters, (i+1)*slots/masters-1
		if err := raw.Do(t.Context(), "cluster", "addslotsrange", first, last).Err(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			raw := c.nodes[0].client()
			defer func() { _ = raw.Close() }()
			if err := raw.Do(t.Context(), "cluster", "meet", "127.0.0.1", port, bus).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, srv := range c.nodes {
		raw := srv.client()
		defer func() { _ = raw.Close() }()
		eventually(t, "the cluster is up", func() bool {
			info := raw.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprint("cluster_known_nodes:", masters))
		})
	}
	return c
}

// follow gives each master a replica, and answers them in the same order.
func (c *cluster) follow(t *testing.T) (replicas []*server) {
	t.Helper()
	ctx := t.Context()
	for _, master := range c.nodes {
		port, bus := freePort(t), freePort(t)
		srv := startServer(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus)
		replicas = append(replicas, srv)
		raw, above := srv.client(), master.client()
		defer func() { _, _ = raw.Close(), above.Close() }()
		id := above.Do(ctx, "cluster", "myid").Val()
		if err := above.Do(ctx, "cluster", "meet", "127.0.0.1", port, bus).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the replica knows its master", func() bool { return raw.Do(ctx, "cluster", "replicate", id).Err() == nil })
		eventually(t, "the replica follows", func() bool {
			return strings.Contains(above.Info(ctx, "replication").Val(), "state=online") &&
				strings.Contains(raw.Info(ctx, "replication").Val(), "master_link_status:up")
		})
	}
	for _, srv := range append(replicas, c.nodes...) {
		raw := srv.client()
		defer func() { _ = raw.Close() }()
		eventually(t, "all know who follows whom", func() bool {
			nodes := raw.ClusterNodes(ctx).Val()
			return strings.Count(nodes, "slave ")-strings.Count(nodes, "slave - ") == len(replicas)
		})
	}
	return replicas
}

func (c *cluster) config(prefix string) Config {
	config := c.nodes[0].config(clean(prefix))
	config.Mode, config.Addresses = "cluster", c.addresses
	return config
}

func clean(prefix string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("{}|", r) || r <= ' ' {
			return '_'
		}
		return r
	}, prefix)
}

// TestContractInACluster: three masters, which refuse scripts whose keys lie in more than one slot.
func TestContractInACluster(t *testing.T) {
	c := startCluster(t, 3)
	t.Run("", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (a, b storetest.Store) {
			config := c.config("weir-" + t.Name()[len("TestContractInACluster"):])
			return c.nodes[0].open(t, config), c.nodes[0].open(t, config)
		}, storetest.RealClock)
	})
}

// TestPurgeInACluster: the 256 tags are written together, and scripts that the servers have forgotten are taught.
func TestPurgeInACluster(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), startCluster(t, 3)
	b := &bench{T: t, srv: c.nodes[0], Store: c.nodes[0].open(t, c.config("weir"))}
	for range 2 {
		for i := range 20 {
			e := answer("one", long)
			e.Tags = []string{"all"}
			k := page(fmt.Sprint(i))
			b.must(b.Commit(ctx, b.lease(k, "t1"), write(k, e)))
		}
		b.must(b.client.(*redis.ClusterClient).ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.ScriptFlush(ctx).Err()
		}))
		trips := b.countTrips()
		b.purge(policy.Selector{Tag: "all"}, store.Hard)
		// At most: the notes twice, their script, the last note twice, the answer to the bell; and its line made anew.
		if got := trips.n.Load(); got > 8 {
			t.Errorf("it took %d round trips", got)
		}
		for i := range 20 {
			if e := b.taken(page(fmt.Sprint(i)), look()).Entry; e != nil {
				t.Errorf("%d is still there", i)
			}
		}
	}
}

// TestPurgeReachesTheReplicasInACluster: each master that took a note waits for a replica of its own.
func TestPurgeReachesTheReplicasInACluster(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), startCluster(t, 3)
	replicas := c.follow(t)
	b := &bench{T: t, srv: c.nodes[0], Store: c.nodes[0].open(t, c.config("weir"))}
	everywhere, sels := policy.Selector{Tag: "red"}, make(map[string]policy.Selector) // pages by their masters
	for n := 0; len(sels) < 3; n++ {
		key := page(fmt.Sprint(n))
		master, err := b.client.(*redis.ClusterClient).MasterForKey(ctx, b.of(key).page)
		b.must(err)
		sels[master.Options().Addr] = policy.Selector{Page: key.Primary}
	}
	// A replica that has just come takes a moment until it is sent anything.
	eventually(t, "a purge is taken", func() bool {
		_, err := b.Purge(ctx, everywhere, store.Hard)
		return err == nil
	})
	for i, replica := range replicas {
		replica.pause()
		b.replies = 500 * time.Millisecond // who does not answer costs all of it
		_, err := b.Purge(ctx, everywhere, store.Hard)
		b.fails(err, store.ErrUnavailable)
		for address, sel := range sels {
			var want error
			if address == c.addresses[i] {
				want = store.ErrUnavailable
			}
			_, err := b.Purge(ctx, sel, store.Soft)
			b.fails(err, want)
		}
		replica.resume()
		b.replies = 10 * time.Second
		b.purge(everywhere, store.Hard)
	}
}

// TestReshardingUnderLoad: the slot of a page moves from one master to the next while two replicas work. Bodies are whole
// and their pages' own, every purge that was acknowledged is obeyed, and the work goes on.
func TestReshardingUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	a, b := c.nodes[0].open(t, c.config("weir")), c.nodes[0].open(t, c.config("weir"))
	l := startLoad(t, 10, a, b)
	l.goesOn()
	for _, n := range []string{"0", "1"} {
		c.move(t, a.of(page(n)).head, l.goesOn)
		l.goesOn()
	}
}

// move gives the slot of a key to the next master, as redis-cli --cluster reshard does, and waits in the midst of it.
func (c *cluster) move(t *testing.T, key string, midst func()) {
	t.Helper()
	ctx := t.Context()
	raws, ids := make([]*redis.Client, len(c.nodes)), make([]any, len(c.nodes))
	for i, srv := range c.nodes {
		raws[i] = srv.client()
		defer func() { _ = raws[i].Close() }()
		ids[i] = raws[i].Do(ctx, "cluster", "myid").Val()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	slot := int(raws[0].ClusterKeySlot(ctx, key).Val())
	from := slices.IndexFunc(raws, func(raw *redis.Client) bool { return !redis.HasErrorPrefix(raw.Get(ctx, key).Err(), "MOVED") })
	to := (from + 1) % len(raws)
	host, port, _ := strings.Cut(c.addresses[to], ":")
	must(raws[to].Do(ctx, "cluster", "setslot", slot, "importing", ids[from]).Err())
	must(raws[from].Do(ctx, "cluster", "setslot", slot, "migrating", ids[to]).Err())
	for moved := 0; ; moved++ {
		keys, err := raws[from].ClusterGetKeysInSlot(ctx, slot, 1).Result()
		must(err)
		if len(keys) == 0 {
			break
		}
		must(raws[from].Do(ctx, "migrate", host, port, keys[0], 0, 5000).Err())
		if moved == 0 {
			midst()
		}
	}
	for _, i := range []int{to, from, (to + 1) % len(raws)} {
		must(raws[i].Do(ctx, "cluster", "setslot", slot, "node", ids[to]).Err())
	}
}
