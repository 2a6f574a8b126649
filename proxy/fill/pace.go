package fill

import (
	"time"

	"weir/proxy/upstream"
)

const (
	// minimum is what a client reads at least. Where slow clients are to be let be, memory is the remedy.
	minimum = upstream.LeastRate
	// patience is how far behind that a client may be who holds up other readers, or memory that is short.
	patience = 10 * time.Second
	// hurry is how far, while somebody queues for the upstream's slot that it holds: well below queue_timeout, or those
	// who queue would gain nothing.
	hurry = time.Second
	// burst is how much it can be ahead: sockets take a piece at once, and then nothing for as long as that lasts.
	burst = 2 * time.Second
	// glance is how often it is looked at whether somebody is held up.
	glance = 100 * time.Millisecond
)

// Pace compares a client with the minimum rate, over the time in which it is the client who is waited for.
type Pace struct {
	due time.Time // what has moved would last so long at the minimum rate; zero: others are waited for
}

// Moved notes bytes that were taken by the client.
func (p *Pace) Moved(n int, now time.Time) {
	if p.due.IsZero() {
		p.due = now
	}
	worth := time.Duration(n) * time.Second / minimum
	p.due = p.due.Add(worth)
	if most := now.Add(max(burst, worth)); p.due.After(most) {
		p.due = most
	}
}

// Rests notes that others are waited for.
func (p *Pace) Rests() { p.due = time.Time{} }

// Behind is how far the client is behind the minimum rate.
func (p *Pace) Behind(now time.Time) time.Duration {
	if p.due.IsZero() {
		return 0
	}
	return max(now.Sub(p.due), 0)
}
