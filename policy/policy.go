package policy

import (
	"errors"
	"time"
)

// Config is the part of the file that decides: the routes, in order, first match wins.
type Config struct {
	Routes    []Route
	Upstreams []string // the names routes may use
}

// Route is one rule of the file, complete: what it left out has been filled in from the top-level cache.
type Route struct {
	Name     string      `mapstructure:"name"`
	Match    Match       `mapstructure:"match"`
	Upstream string      `mapstructure:"upstream"`
	Bypass   BypassRules `mapstructure:"bypass"`
	Headers  Headers     `mapstructure:"headers"`
	Cache    Cache       `mapstructure:"cache"`
}

// Match says which requests a route takes. Empty fields take all.
type Match struct {
	Host    string   `mapstructure:"host"` // exact, or *.example.com
	Path    string   `mapstructure:"path"` // exact, or a prefix ending in *
	Methods []string `mapstructure:"methods"`
}

// BypassRules lists what makes a request pass.
type BypassRules struct {
	Cookies []string `mapstructure:"cookies"`
	Headers []string `mapstructure:"headers"`
	Query   []string `mapstructure:"query"`
}

// Headers changes responses on their way to the client.
type Headers struct {
	Set    []string `mapstructure:"set"` // "Name: value"
	Remove []string `mapstructure:"remove"`
}

// Cache is what a route says about keeping and waiting. config.yaml shows every key with its meaning.
type Cache struct {
	TTL              time.Duration `mapstructure:"ttl"`
	ForceTTL         time.Duration `mapstructure:"force_ttl"`
	Grace            time.Duration `mapstructure:"grace"`
	StaleIfError     time.Duration `mapstructure:"stale_if_error"`
	Keep             time.Duration `mapstructure:"keep"`
	Jitter           Percent       `mapstructure:"jitter"`
	EarlyRefresh     EarlyRule     `mapstructure:"early_refresh"`
	Negative         []Negative    `mapstructure:"negative"`
	UncacheableFor   time.Duration `mapstructure:"uncacheable_for"`
	Wait             Wait          `mapstructure:"wait"`
	Key              KeyRules      `mapstructure:"key"`
	Particular       []string      `mapstructure:"particular"`
	Ignore           Ignore        `mapstructure:"ignore"`
	SetCookie        string        `mapstructure:"set_cookie"`        // refuse | strip | keep
	ClientDirectives string        `mapstructure:"client_directives"` // honour | collapse | ignore
	Invalidate       string        `mapstructure:"invalidate"`        // rfc | soft | off
	Tags             Tags          `mapstructure:"tags"`
}

// Percent is a share, 0 to 1, written as "20%".
type Percent float64

// EarlyRule says when a fresh answer is refreshed before it expires.
type EarlyRule struct {
	Mode     string  `mapstructure:"mode"` // xfetch | power | off
	Beta     float64 `mapstructure:"beta"`
	Exponent float64 `mapstructure:"exponent"`
}

// Negative gives statuses a lifetime of their own.
type Negative struct {
	Status []int         `mapstructure:"status"`
	TTL    time.Duration `mapstructure:"ttl"`
}

// Wait bounds how long an exchange waits for a fill, and says what then.
type Wait struct {
	Max  time.Duration `mapstructure:"max"`  // 0: as long as the fill lives
	Then string        `mapstructure:"then"` // "503" | upstream
}

// KeyRules says what beside the URL tells answers apart.
type KeyRules struct {
	Query   QueryRules `mapstructure:"query"`
	Headers []string   `mapstructure:"headers"`
	Cookies []string   `mapstructure:"cookies"`
}

// QueryRules says which query parameters count. What does not count is not sent upstream on fills.
type QueryRules struct {
	Sort   bool     `mapstructure:"sort"`
	Ignore []string `mapstructure:"ignore"` // a name, or a prefix ending in *
	Only   []string `mapstructure:"only"`
}

// Ignore lists particular fields that do not change the answer; they are not sent upstream on fills.
type Ignore struct {
	Headers []string `mapstructure:"headers"`
	Cookies []string `mapstructure:"cookies"`
}

// Tags says where the upstream lists an answer's tags.
type Tags struct {
	Header []string `mapstructure:"header"`
}

// Policy is a compiled Config. It is immutable: a reload makes another.
type Policy struct {
	rules []rule
}

// New compiles a Config. Its error is every Problem at once.
func New(c Config) (*Policy, error) {
	if problems := check(c); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	p := &Policy{rules: make([]rule, len(c.Routes))}
	for i, r := range c.Routes {
		p.rules[i] = compile(r)
	}
	return p, nil
}
