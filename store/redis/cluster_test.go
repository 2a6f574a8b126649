package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
		srv := startServer(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus)
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
