package fill

import (
	"sync/atomic"

	"weir/policy"
)

// refreshes bounds the fills that run with nobody waiting. One that finds no room is dropped and counted, not queued:
// the next request for the page asks again.
type refreshes struct {
	most    int64
	under   atomic.Int64
	dropped atomic.Int64
}

func (r *refreshes) begin() bool {
	if r.under.Add(1) > r.most {
		r.under.Add(-1)
		r.dropped.Add(1)
		return false
	}
	return true
}

func (r *refreshes) end() { r.under.Add(-1) }

// Refresh starts a fill behind an answer that was served, unless one runs, another replica has it, or too many run.
// It returns at once. While the upstream is sick, or too busy for what nobody waits for, it does not even ask the store.
func (t *Table) Refresh(ask Ask) {
	if t.find(t.name(ask.Plan)) != nil {
		return
	}
	if _, spared := t.options.Upstreams[ask.Plan.Route.Upstream].Spares(ask.Class(nil, policy.Moment{})); spared {
		t.refreshes.dropped.Add(1)
		return
	}
	t.running.Go(func() {
		_, _ = t.Take(t.ctx, ask) // nobody waits: the fill reports for itself
	})
}
