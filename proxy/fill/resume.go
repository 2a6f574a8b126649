package fill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/policy"
)

// Lack is what an answer that is being sent lacks: the store has lost it (R12).
type Lack struct {
	Policy *policy.Policy
	Plan   policy.Plan
	Stored policy.Stored
	Span   policy.Span // of the whole answer
	Total  int64       // the whole's length
}

// errNotTheRest: what the upstream has there cannot follow what the client has.
var errNotTheRest = errors.New("the upstream does not go on where the store broke off")

// Resume asks the upstream for just those bytes, in a slot like any other. Nobody joins: who was in mid-body lacks
// something else each.
func (t *Table) Resume(ctx context.Context, l Lack) (body *Ahead, err error) {
	up := t.options.Upstreams[l.Plan.Route.Upstream]
	r := reportOf(l.Plan, Rest)
	r.End, r.Reason = Unstored, policy.BodyLost
	defer func() {
		r.Total = time.Since(r.Started)
		if r.Err = err; err != nil {
			r.End = Failed
		}
		t.options.Observe(r)
	}()
	fields, ok := policy.Rest(l.Stored, l.Span)
	if !ok {
		return nil, fmt.Errorf("%w: no strong validator", errNotTheRest)
	}
	req, err := (&Fill{ask: Ask{Policy: l.Policy, Plan: l.Plan}, up: up, ctx: ctx}).request(fields)
	if err != nil {
		return nil, err
	}
	r.Requests++
	res, err := up.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	r.Head, r.Status = time.Since(r.Started), res.StatusCode
	if !policy.Continues(l.Stored, l.Span, l.Total, policy.Response{Status: res.StatusCode, Header: res.Header}) {
		res.Body.Close()
		return nil, fmt.Errorf("%w: status %d", errNotTheRest, res.StatusCode)
	}
	return t.ReadAhead(res.Body, up, nil), nil
}
