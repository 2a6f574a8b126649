package upstream

import "time"

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
	MaxStreams      int           `mapstructure:"max_streams"`      // upgrades and event streams
	Queue           int           `mapstructure:"queue"`
	QueueTimeout    time.Duration `mapstructure:"queue_timeout"`
}
