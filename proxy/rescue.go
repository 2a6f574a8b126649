package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"weir/policy"
)

// rescue is where a failed fetch ends: in a stale copy that may stand in, or in the upstream's own error for its asker
// and an error with its status for those who shared it (R27).
func rescue() *state {
	return &state{"rescue", func(x *exchange) *state {
		d := x.policy.Rescue(x.plan, storedOf(x.entry), x.fault, x.moment())
		if d.Action == policy.Serve || d.Action == policy.ServeAndRefresh {
			x.report.FwdStatus = x.fault.Status
			x.report.Detail = policy.FaultReason(x.fault)
			x.leave()
			return deliver(d)
		}
		if x.fill != nil && x.mine && x.fill.Result().Response.Status != 0 {
			return deliver(policy.Decision{Action: policy.Fetch, Reason: x.missed()})
		}
		x.report.Collapsed = x.fill != nil && !x.mine
		return refuse(d.Reason)
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
