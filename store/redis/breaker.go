package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// breaker turns a dead Redis into an answer at once. It opens on faults in a row: commands that timed out, or never
// reached a server. It closes when a probe of its own got through; no request is ever the probe, so that none waits.
type breaker struct {
	probe func() error // one try, bounded in time
	every time.Duration

	mu     sync.Mutex
	faults int
	open   bool
}

// patience is how many faults in a row are still taken for chance.
const patience = 3

func (b *breaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

func (b *breaker) fine() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = 0
}

// mend closes it: Redis was heard on another line.
func (b *breaker) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults, b.open = 0, false
}

// fault reports whether it was the one too many: then the caller starts heal.
func (b *breaker) fault() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults++
	if b.open || b.faults < patience {
		return false
	}
	b.open = true
	return true
}

// heal probes until Redis answers or ctx ends. The pauses are jittered, so that a fleet does not come back as one.
func (b *breaker) heal(ctx context.Context) {
	for {
		select {
		case <-time.After(b.every/2 + rand.N(b.every)):
		case <-ctx.Done():
			return
		}
		if b.closed() {
			return
		}
		if b.probe() == nil {
			b.mend()
			return
		}
	}
}
