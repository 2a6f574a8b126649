package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Config is one upstream of the file.
type Config struct {
	Name            string        `mapstructure:"name"`
	URL             string        `mapstructure:"url"`
	URLs            []string      `mapstructure:"urls"`
	ConnectTimeout  time.Duration `mapstructure:"connect_timeout"`
	ResponseTimeout time.Duration `mapstructure:"response_timeout"` // to the response's head
	IdleTimeout     time.Duration `mapstructure:"idle_timeout"`     // between bytes
	FillTimeout     time.Duration `mapstructure:"fill_timeout"`     // a whole fill
	MaxConcurrent   int           `mapstructure:"max_concurrent"`   // counted before dialling
	MaxStreams      int           `mapstructure:"max_streams"`      // upgrades, event streams and slow uploads
	Queue           int           `mapstructure:"queue"`
	QueueTimeout    time.Duration `mapstructure:"queue_timeout"`
}

// Validate reports every fault at once, each by the name of its key.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("upstream %q: "+format, append([]any{c.Name}, args...)...))
	}
	if c.URL != "" && len(c.URLs) > 0 {
		fault("url and urls exclude each other: keep one")
	}
	if len(c.all()) == 0 {
		fault("url is missing: write url: http://host:port")
	}
	for _, raw := range c.all() {
		m, err := url.Parse(raw)
		switch {
		case err != nil || m.Scheme != "http" && m.Scheme != "https" || m.Host == "":
			fault("url %q: write http://host:port or https://host:port", raw)
		case m.Port() != "" && !fitPort(m.Port()):
			fault("url %q: %s is no port: write a number from 1 to 65535", raw, m.Port())
		case m.User != nil || m.RawQuery != "" || m.Fragment != "":
			fault("url %q: only scheme, host, port and a base path belong here", raw)
		}
	}
	for key, d := range map[string]time.Duration{
		"connect_timeout": c.ConnectTimeout, "response_timeout": c.ResponseTimeout, "idle_timeout": c.IdleTimeout,
		"fill_timeout": c.FillTimeout, "queue_timeout": c.QueueTimeout,
	} {
		if d <= 0 {
			fault("%s must be longer than 0s", key)
		}
	}
	if c.MaxConcurrent < 1 {
		fault("max_concurrent must be at least 1")
	}
	if c.MaxStreams < 0 || c.Queue < 0 {
		fault("max_streams and queue must not be negative")
	}
	return errors.Join(faults...)
}

func fitPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func (c Config) all() []string {
	if c.URL != "" {
		return append([]string{c.URL}, c.URLs...)
	}
	return c.URLs
}
