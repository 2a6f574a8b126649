package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"weir/policy"
)

const (
	// unreached is how often in a row it takes not to reach the upstream at all: one refused connection may be chance.
	unreached = 5
	// failing is the share of requests that fail, of at least sampled within sampling, which is no chance any more.
	failing  = 0.5
	sampled  = 20
	sampling = 30 * time.Second
	// pause lies between two tries while it is sick; each replica's is a little shorter or longer.
	pause  = time.Second
	spread = 0.25
	// remembered is of how many pages it is known that they failed lately.
	remembered = 1000
)

// Spared is the error of a request that was not sent, since the upstream as a whole does badly. It is our doing (R22).
type Spared struct {
	Name  string
	After time.Duration // until it is tried again, about
}

func (s *Spared) Error() string {
	return fmt.Sprintf("upstream %q is sick and spared for %v", s.Name, s.After)
}

// circuit knows how the upstream does as a whole (R23). It opens when the upstream could not be reached (refused, DNS,
// TLS) several times in a row: then it is down, and nobody asks. It opens, too, when many pages fail: then only those
// ask for whom no stale copy can stand in. What one page, or a request that is its client's own, met with counts for
// neither. One request at a time tries whether it is well again; its success closes the circuit.
type circuit struct {
	name    string
	sick    atomic.Bool // what every hit asks; the rest is asked when a request is to be sent
	refused atomic.Uint64

	mu      sync.Mutex
	breaker circuitbreaker.CircuitBreaker[any]
	faults  int                  // in a row, in which it could not be reached
	down    bool                 // they were too many
	trying  bool                 // the one request is under way
	failed  map[string]time.Time // when a page last counted as failed
}

func newCircuit(name string) *circuit {
	return &circuit{
		name: name, failed: map[string]time.Time{},
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureRateThreshold(failing, sampled, sampling).
			WithSuccessThreshold(1).
			WithDelay(pause).WithJitterFactor(spread).
			Build(),
	}
}

// enter answers whether a request may be sent, and whether it is the one that tries. Every one that tries must be
// recorded, or no other ever will.
func (c *circuit) enter(class policy.Class) (tries bool, err error) {
	if !c.sick.Load() {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.breaker.IsClosed():
		return false, nil
	case !c.trying && c.breaker.TryAcquirePermit():
		c.trying = true
		return true, nil
	case class == policy.ClientWaits && !c.down:
		return false, nil
	}
	c.refused.Add(1)
	return false, &Spared{c.name, c.breaker.RemainingDelay()}
}

// spares is what enter would say, without entering.
func (c *circuit) spares(class policy.Class) (after time.Duration, spared bool) {
	if !c.sick.Load() {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	after = c.breaker.RemainingDelay()
	mayTry := !c.trying && after == 0
	return after, !c.breaker.IsClosed() && !mayTry && (class != policy.ClientWaits || c.down)
}

// verdict is what a request tells of the upstream.
type verdict uint8

const (
	unknown     verdict = iota // nothing: it was given up
	answered                   // it answers
	its                        // it failed, on a page that is anybody's
	requests                   // it failed, perhaps by the request's own doing
	unreachable                // it could not be reached
)

func verdictOf(ctx context.Context, page string, res *http.Response, err error) verdict {
	ended := ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	switch {
	case err == nil:
		if _, failed := FaultOfStatus(res, time.Now()); !failed {
			return answered
		}
	case ended:
		return unknown
	case FaultOf(err).Kind == policy.Refused:
		return unreachable
	}
	if page == "" {
		return requests
	}
	return its
}

// record takes down how a request went; tried: it was the one that tries.
func (c *circuit) record(v verdict, tried *bool, page string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tries := *tried
	*tried = false
	if tries {
		c.trying = false
	}
	was := c.down
	switch v {
	case unknown:
	case unreachable:
		c.faults++
		c.down = c.down || c.faults >= unreached
	default:
		c.faults, c.down = 0, false
	}
	closed := c.breaker.IsClosed()
	switch {
	case closed && c.down:
		c.breaker.Open()
	case !closed && !tries:
		// It was sent before, or besides: only the one that tries decides.
	case v == answered, tries && was && (v == its || v == requests): // what was not reached before is reached
		c.breaker.RecordSuccess()
	case tries, v == its && c.counts(page):
		c.breaker.RecordFailure()
	}
	c.sick.Store(!c.breaker.IsClosed())
}

// counts reports whether a page's failure counts: once in a while, so that it takes many pages to make the upstream sick.
func (c *circuit) counts(page string) bool {
	now := time.Now()
	if last, known := c.failed[page]; known && now.Sub(last) < sampling {
		return false
	}
	if len(c.failed) >= remembered {
		clear(c.failed) // that is many pages
	}
	c.failed[page] = now
	return true
}

// state is the upstream's health in one word.
func (c *circuit) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.breaker.IsClosed():
		return "well"
	case c.down:
		return "down"
	}
	return "sick"
}
