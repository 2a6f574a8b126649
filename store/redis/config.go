package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Config is how Redis is reached. config.yaml shows every key with its meaning.
type Config struct {
	Mode           string        `mapstructure:"mode"` // single | sentinel | cluster
	Addresses      []string      `mapstructure:"addresses"`
	Username       string        `mapstructure:"username"`
	Password       string        `mapstructure:"password"`
	DB             int           `mapstructure:"db"`
	SentinelMaster string        `mapstructure:"sentinel_master"`
	TLS            TLS           `mapstructure:"tls"`
	Prefix         string        `mapstructure:"prefix"`
	Timeout        time.Duration `mapstructure:"timeout"` // of one small command
	// What follows is main's to heed. Required: a Redis that is away at start is otherwise a warning.
	Required bool `mapstructure:"required"`
	// Near: a memory store stands in front; what it is filled with while Redis is away is fresh for AwayTTL at most.
	Near    bool          `mapstructure:"near"`
	AwayTTL time.Duration `mapstructure:"away_ttl"`
}

// TLS is how the connection is secured.
type TLS struct {
	Enabled bool   `mapstructure:"enabled"`
	CA      string `mapstructure:"ca"`
	Cert    string `mapstructure:"cert"`
	Key     string `mapstructure:"key"`
}

// Validate reports everything that is wrong, each by its key.
func (c Config) Validate() error {
	var all []error
	refuse := func(key, format string, args ...any) {
		all = append(all, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
	}
	switch c.Mode {
	case "single":
		if len(c.Addresses) != 1 {
			refuse("addresses", "mode single takes exactly one, not %d", len(c.Addresses))
		}
	case "sentinel":
		if c.SentinelMaster == "" {
			refuse("sentinel_master", "mode sentinel needs the master's name")
		}
	case "cluster":
		if c.DB != 0 {
			refuse("db", "a cluster has only database 0")
		}
	default:
		refuse("mode", "%q is none of single, sentinel, cluster", c.Mode)
	}
	if c.Mode != "sentinel" && c.SentinelMaster != "" {
		refuse("sentinel_master", "only mode sentinel has one")
	}
	if len(c.Addresses) == 0 {
		refuse("addresses", "none given")
	}
	for _, a := range c.Addresses {
		if !strings.HasPrefix(a, "/") && !strings.Contains(a, ":") {
			refuse("addresses", "%q is neither host:port nor the path of a socket", a)
		}
	}
	if c.DB < 0 {
		refuse("db", "%d is negative", c.DB)
	}
	// Braces would be the hash tag, bars delimit what lies under names.
	if c.Prefix == "" || strings.ContainsAny(c.Prefix, "{}| \t\r\n") {
		refuse("prefix", "%q: at least one character, and no brace, bar or space", c.Prefix)
	}
	if c.Timeout <= 0 {
		refuse("timeout", "%v is not positive", c.Timeout)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		refuse("tls", "cert and key belong together")
	}
	return errors.Join(all...)
}

// options are the client's, for small commands. The client library changes its defaults from release to release, so
// every time-out is written out; and it repeats what failed, which is ours to decide.
func (c Config) options() (*redis.UniversalOptions, error) {
	secure, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	o := &redis.UniversalOptions{
		// A cluster's client appends the nodes that it learns of: clipped, as two clients share the list.
		Addrs: slices.Clip(c.Addresses), DB: c.DB, Username: c.Username, Password: c.Password, TLSConfig: secure,
		// One address may be a cluster's, and two may be no cluster: the mode says it, not their number.
		IsClusterMode: c.Mode == "cluster", MasterName: c.SentinelMaster,
		// A cluster's client follows a slot that moves, at once: whom it cannot be had for yet fills alone.
		MinRetryBackoff: -1, MaxRetryBackoff: -1,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: c.Timeout,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout, ContextTimeoutEnabled: true,
		PipelinePoolSize: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	return o, nil
}

// bulk turns the options into those of large transfers. Their deadline goes by size, in the context, so the
// connection's own only must not be shorter.
func bulk(o redis.UniversalOptions) *redis.UniversalOptions {
	o.PoolSize = 8
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute
	return &o
}

func (t TLS) config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: no certificate in %s", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
