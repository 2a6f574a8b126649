package telemetry

import (
	"io"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	good := Config{Metrics: true, Log: Log{Level: "info", Format: "json", Access: true}, CacheStatus: "weir"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string // what the faults begin with
	}{
		{"the default", func(*Config) {}, nil},
		{"no name", func(c *Config) { c.CacheStatus = "" }, nil},
		{"a name with a host", func(c *Config) { c.CacheStatus = "weir.example.com:8080" }, nil},
		{"a star", func(c *Config) { c.CacheStatus = "*" }, nil},
		{"a digit first", func(c *Config) { c.CacheStatus = "1weir" }, []string{"cache_status: "}},
		{"a second member", func(c *Config) { c.CacheStatus = "weir, other" }, []string{"cache_status: "}},
		{"a line end", func(c *Config) { c.CacheStatus = "weir\n" }, []string{"cache_status: "}},
		{"no level", func(c *Config) { c.Log.Level = "" }, []string{"log.level: "}},
		{"all at once", func(c *Config) { *c = Config{Log: Log{Level: "INFO", Format: "xml"}, CacheStatus: "ä"} },
			[]string{"log.level: ", "log.format: ", "cache_status: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := good
			c.change(&config)
			err := config.Validate()
			var got []string
			if err != nil {
				if _, err := New(config, io.Discard); err == nil {
					t.Error("New takes what Validate refuses")
				}
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d faults, want %d: %v", len(got), len(c.want), err)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("fault %q, want it to begin with %q", got[i], c.want[i])
				}
			}
		})
	}
}
