package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/store"
)

// Warmed is what became of a page that a warmer asked for.
type Warmed struct {
	// Kept is what is stored by now; its Leased is 0 when nothing is.
	Kept policy.Stored
	// Page is what purges of the page name.
	Page string
	// Fetched: it was brought anew, by this replica or another.
	Fetched bool
	// Reason is Fresh for a page that was left alone, else why nothing new is kept.
	Reason policy.Reason
	// Fault is how the upstream failed; its Kind is 0 when it did not.
	Fault policy.Fault
}

// ErrNotWarmed: nothing came of it, and not by the upstream's doing. It may be tried again soon.
var ErrNotWarmed = errors.New("not warmed")

// Warm brings the page that r asks for, by a fill that nobody waits for but the caller. What is stored fresh is left
// alone when its Leased is later than known: 0 leaves alone all that is fresh, and the Leased of what the caller has seen
// all that has come since. An answer is never replaced by one that was asked for before it: the lease sees to that.
func (h *Handler) Warm(ctx context.Context, r *http.Request, known uint64) (Warmed, error) {
	p := h.policy.Load()
	ask := fill.Ask{Policy: p, Plan: p.Plan(h.request(r)), Arrived: h.table.Arrive(), Why: fill.Warm}
	if ask.Plan.Action != policy.Lookup {
		return Warmed{Reason: ask.Plan.Reason}, nil
	}
	w, err := h.warm(ctx, ask, known)
	w.Page = ask.Plan.Page.Primary
	return w, err
}

func (h *Handler) warm(ctx context.Context, ask fill.Ask, known uint64) (Warmed, error) {
	var err error
	p := ask.Policy
	if ask.Plan, ask.Prior, err = h.look(ctx, p, ask.Plan); err != nil {
		return Warmed{}, err
	}
	if e := ask.Prior; e != nil && e.Leased > known && p.Decide(ask.Plan, &e.Stored, h.still(ask.Plan)).Action == policy.Serve {
		return Warmed{Kept: e.Stored, Reason: policy.Fresh}, nil
	}
	w, err := h.fetch(ctx, ask)
	if err != nil {
		return w, err
	}
	_, e, err := h.look(ctx, p, ask.Plan)
	if err != nil {
		return w, err
	}
	if e != nil && e.Kind == policy.Answer {
		w.Kept, w.Fetched = e.Stored, ask.Prior == nil || e.Leased != ask.Prior.Leased
	}
	switch {
	case w.Fetched:
		w.Reason, w.Fault = policy.None, policy.Fault{}
	case w.Reason == policy.None:
		return w, fmt.Errorf("%w: it gave way to others, or was purged meanwhile", ErrNotWarmed)
	}
	return w, nil
}

// fetch starts a fill or finds one under way, and waits for its end.
func (h *Handler) fetch(ctx context.Context, ask fill.Ask) (w Warmed, err error) {
	taken, err := h.table.Take(ctx, ask)
	switch {
	case err != nil:
		return w, err
	case taken.Fill == nil && taken.Failed != nil:
		return failedBy(taken.Failed.Fault), nil
	case taken.Fill == nil && taken.StoreFault != "":
		return w, fmt.Errorf("%w: %s", ErrNotWarmed, taken.StoreWhy.Meaning())
	case taken.Fill == nil:
		return w, nil
	}
	select {
	case <-taken.Fill.Done():
	case <-ctx.Done():
		return w, ctx.Err()
	}
	switch r := taken.Fill.Result(); {
	case r.Fault != nil:
		return failedBy(*r.Fault), nil
	case r.Outcome != nil && r.Outcome.End == store.Failed:
		return failedBy(r.Outcome.Fault), nil
	default:
		w.Reason = r.Admission.Reason
	}
	return w, nil
}

func failedBy(f policy.Fault) Warmed { return Warmed{Reason: policy.FaultReason(f), Fault: f} }

// look is what is stored for a plan, and the plan of the variant that it was found under.
func (h *Handler) look(ctx context.Context, p *policy.Policy, plan policy.Plan) (policy.Plan, *store.Entry, error) {
	for range maxSigns {
		taken, err := h.store.Take(ctx, plan.Key, store.Want{At: time.Now()})
		if err != nil || taken.Entry == nil || taken.Entry.Kind != policy.Signpost {
			return plan, taken.Entry, err
		}
		plan = p.Follow(plan, taken.Entry.Stored)
	}
	return plan, nil, errors.New("signposts lead in a circle")
}

// still is this moment, without a throw of the dice.
func (h *Handler) still(plan policy.Plan) policy.Moment {
	return policy.Moment{Now: time.Now(), Dice: 1, Health: h.upstreams[plan.Route.Upstream].Health()}
}
