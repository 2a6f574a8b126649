package config

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/admin"
	"weir/proxy/telemetry"
	"weir/proxy/upstream"
	"weir/proxy/warm"
	"weir/store/memory"
	"weir/store/redis"
)

// Config is everything a replica is told. It is read once and not changed: a reload makes another.
type Config struct {
	Listen         string            `mapstructure:"listen"`
	Admin          admin.Config      `mapstructure:"admin"`
	Peers          Peers             `mapstructure:"peers"`
	TrustedProxies []netip.Prefix    `mapstructure:"trusted_proxies"`
	Drain          Drain             `mapstructure:"drain"`
	Memory         Memory            `mapstructure:"memory"`
	Store          Store             `mapstructure:"store"`
	Upstreams      []upstream.Config `mapstructure:"upstreams"`
	Cache          policy.Cache      `mapstructure:"cache"` // what routes inherit
	Routes         []policy.Route    `mapstructure:"routes"`
	Warm           []warm.Config     `mapstructure:"warm"`
	Telemetry      telemetry.Config  `mapstructure:"telemetry"`
}

// Peers says where replicas that share a Redis read each other's running fills.
type Peers struct {
	Listen    string `mapstructure:"listen"`    // or off
	Advertise string `mapstructure:"advertise"` // host:port under which the others reach Listen; "": found out
}

// Drain says how a replica leaves (R32).
type Drain struct {
	LameDuck time.Duration `mapstructure:"lame_duck"` // not ready, still accepting
	Timeout  time.Duration `mapstructure:"timeout"`   // the whole, lame duck included
}

// Memory bounds what is under way (R25).
type Memory struct {
	Spool      Size `mapstructure:"spool"`
	MaxWaiting int  `mapstructure:"max_waiting"`
}

// Store says where entries are kept.
type Store struct {
	Kind    string       `mapstructure:"kind"`     // memory | redis
	MaxSize Size         `mapstructure:"max_size"` // of the memory store, or the near tier
	MaxBody Size         `mapstructure:"max_body"`
	Redis   redis.Config `mapstructure:"redis"`
}

// newUpstream is what an entry of upstreams starts from. The shipped config.yaml shows it, and a test holds them equal.
func newUpstream() upstream.Config {
	return upstream.Config{
		ConnectTimeout:  2 * time.Second,
		ResponseTimeout: 30 * time.Second,
		IdleTimeout:     30 * time.Second,
		FillTimeout:     10 * time.Minute,
		MaxConcurrent:   64,
		MaxStreams:      1000,
		Queue:           256,
		QueueTimeout:    5 * time.Second,
	}
}

// newWarm is what an entry of warm starts from; the same holds.
func newWarm() warm.Config {
	every, err := warm.ParseEvery("80%", parseDuration)
	if err != nil {
		panic(err) // it is a constant
	}
	return warm.Config{Every: every, Concurrency: 4}
}

// Policy is the part that decides.
func (c *Config) Policy() policy.Config {
	var names []string
	for _, u := range c.Upstreams {
		if u.Name != "" && !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
	}
	return policy.Config{Routes: c.Routes, Upstreams: names}
}

// Proxy is what the handler is told beside its policy.
func (c *Config) Proxy() proxy.Config {
	return proxy.Config{
		CacheStatus:    c.Telemetry.CacheStatus,
		TrustedProxies: c.TrustedProxies,
		Spool:          int64(c.Memory.Spool),
		MaxWaiting:     c.Memory.MaxWaiting,
		MaxBody:        c.maxBody(),
	}
}

// maxBody is what is kept of one body: the memory store takes no more than a sixteenth of itself (R34).
func (c *Config) maxBody() int64 {
	if c.Store.Kind == "memory" {
		return min(int64(c.Store.MaxBody), int64(c.Store.MaxSize)/16)
	}
	return int64(c.Store.MaxBody)
}

// MemoryStore is the memory store's part.
func (c *Config) MemoryStore() memory.Config { return memory.Config{MaxSize: int64(c.Store.MaxSize)} }

// TalksToPeers: there may be others, and this replica lets them read what it is filling.
func (c *Config) TalksToPeers() bool { return c.Store.Kind == "redis" && c.Peers.Listen != "off" }

// Required: without its store this replica does not want traffic.
func (c *Config) Required() bool { return c.Store.Kind == "redis" && c.Store.Redis.Required }

// Targets are the upstreams' URLs, by name.
func (c *Config) Targets() map[string][]string {
	all := map[string][]string{}
	for _, u := range c.Upstreams {
		all[u.Name] = u.URLs
		if u.URL != "" {
			all[u.Name] = append([]string{u.URL}, u.URLs...)
		}
	}
	return all
}

// WithoutLifetime names the routes that keep only what states its own lifetime.
func (c *Config) WithoutLifetime() (names []string) {
	for _, r := range c.Routes {
		if r.Cache.TTL == 0 && r.Cache.ForceTTL == 0 {
			names = append(names, r.Name)
		}
	}
	return names
}

// Settings are the upstreams and routes, hashed: what replicas under one prefix should have in common.
func (c *Config) Settings() string {
	said, err := json.Marshal([]any{c.Targets(), c.Routes})
	if err != nil {
		panic(err) // they are strings, numbers and lists
	}
	return fmt.Sprintf("%x", sha256.Sum256(said))
}

// Summary is the Config in one line.
func (c *Config) Summary() string {
	kept := fmt.Sprintf("memory (%s)", c.Store.MaxSize)
	if c.Store.Kind == "redis" {
		kept = "redis (" + strings.Join(c.Store.Redis.Addresses, ", ") + ")"
	}
	return fmt.Sprintf("listen %s, admin %s, store %s, upstreams %d, routes %d", c.Listen, c.Admin.Listen, kept, len(c.Upstreams), len(c.Routes))
}
