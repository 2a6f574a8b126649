package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"weir/policy"
	"weir/proxy/fill"
)

// rescue is where a failed fetch ends: in a stale copy that may stand in, or in the upstream's own error for its asker
// and an error with its status for those who shared it (R27).
func rescue() *state {
	return &state{"rescue", func(x *exchange) *state {
		d := x.policy.Rescue(x.plan, storedOf(x.entry), x.fault, x.moment())
		if d.Action == policy.Serve || d.Action == policy.ServeAndRefresh {
			if !x.unasked {
				x.report.FwdStatus = x.fault.Status
			}
			x.report.Detail = policy.FaultReason(x.fault)
			x.leave()
			return deliver(d)
		}
		if x.fault.Kind == policy.Spared && x.fill != nil && !x.mine {
			return alone(x.missed()) // it was started by somebody who has a copy
		}
		if x.fill != nil && x.mine && x.fill.Result().Response.Status != 0 {
			return deliver(policy.Decision{Action: policy.Fetch, Reason: x.missed()})
		}
		x.report.Collapsed = x.fill != nil && !x.mine
		return refuse(d.Reason)
	}}
}

// small is what is waited for to its end where a stale copy could stand in if it broke off: once the head is out, none can.
const small = 64 << 10

// standsBy reports whether a copy is there that could.
func (x *exchange) standsBy() bool {
	return x.entry != nil && x.r.Method != http.MethodHead &&
		x.policy.Rescue(x.plan, &x.entry.Stored, policy.Fault{Kind: policy.Truncated}, x.moment()).Action == policy.Serve
}

// whole waits until an answer is here, or the first of a large one.
func whole(d policy.Decision) *state {
	return &state{"whole", func(x *exchange) *state {
		ctx, soft := x.r.Context(), x.plan.Route.Cache.SoftTimeout
		if soft > 0 {
			patient, cancel := context.WithTimeout(ctx, soft)
			defer cancel()
			ctx = patient
		}
		x.reader.Reach(ctx, small)
		err := x.reader.Broken()
		switch {
		case x.gone():
			return nil
		case err != nil:
			x.fault = policy.Fault{Kind: policy.Truncated}
			if errors.Is(err, fill.ErrStalled) {
				x.fault.Kind = policy.TimeoutAfter
			}
			x.report.Err = err
			return rescue()
		case ctx.Err() != nil:
			if s := x.tooSlow(); s != nil {
				return s
			}
		}
		return deliver(d)
	}}
}

// refuse answers with an error of ours.
func refuse(why policy.Reason) *state {
	return &state{"refuse", func(x *exchange) *state {
		x.report.Action, x.report.Reason = policy.Refuse, why
		status := 0
		if x.fault.Kind == policy.BadStatus {
			status = x.fault.Status
		}
		x.problem(why, status)
		return nil
	}}
}

// problem writes an RFC 9457 body; status 0: the reason's own.
func (x *exchange) problem(why policy.Reason, status int) {
	if status == 0 {
		status = why.Status()
	}
	if status == 0 {
		status = http.StatusBadGateway
	}
	if why == policy.BadRequest {
		x.w.last = true // nor does what lies behind it have one meaning
	}
	h := x.w.Header()
	clear(h)
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.Itoa(int(max(x.fault.RetryAfter, time.Second)/time.Second)))
	}
	body, err := json.Marshal(map[string]any{
		"title": http.StatusText(status), "status": status, "detail": why.Meaning(), "reason": why.String(),
	})
	if err != nil {
		panic(fmt.Sprint("a problem of strings: ", err))
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.head(status)
	if x.r.Method == "HEAD" {
		return
	}
	if _, err := x.w.Write(body); err != nil {
		x.report.Aborted, x.report.Err = true, err
	}
}
