package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
)

// Config says what is told, and how.
type Config struct {
	Metrics     bool   `mapstructure:"metrics"` // GET /metrics on the admin port
	Log         Log    `mapstructure:"log"`
	CacheStatus string `mapstructure:"cache_status"` // the name in Cache-Status; "" or "off": no such header
}

// Log says what is logged.
type Log struct {
	Level  string `mapstructure:"level"`  // debug | info | warn | error
	Format string `mapstructure:"format"` // json | text
	Access bool   `mapstructure:"access"` // one line per exchange, whatever the level
}

// token is what RFC 9211 §2 lets a cache be called, less the quoted form (RFC 9651 §3.3.4).
var token = regexp.MustCompile(`^[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_|~` + "`" + `-]*$`)

// Validate reports every fault, each beginning with its key.
func (c Config) Validate() error {
	var faults []error
	if _, err := level(c.Log.Level); err != nil {
		faults = append(faults, fmt.Errorf("log.level: %w", err))
	}
	if f := c.Log.Format; f != "json" && f != "text" {
		faults = append(faults, fmt.Errorf("log.format: %q is neither json nor text", f))
	}
	if n := c.CacheStatus; n != "" && !token.MatchString(n) {
		faults = append(faults, fmt.Errorf("cache_status: %q is no name for a cache: begin with a letter, go on without spaces or quotes, such as weir; or off", n))
	}
	return errors.Join(faults...)
}

func level(word string) (slog.Level, error) {
	switch word {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is none of debug, info, warn, error", word)
}
