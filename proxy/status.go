package proxy

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"weir/policy"
)

// cacheStatus adds our member to Cache-Status (RFC 9211), behind what caches nearer to the upstream have said. It is
// the only writer of that field, and prints the report.
func (x *exchange) cacheStatus(h http.Header) {
	name := x.h.config.CacheStatus
	if name == "" || name == "off" {
		return
	}
	h.Add("Cache-Status", name+x.report.parameters())
}

// parameters prints a report as the parameters of a Cache-Status member.
func (r *Report) parameters() string {
	var b strings.Builder
	switch {
	case r.Hit:
		b.WriteString("; hit; ttl=")
		b.WriteString(strconv.Itoa(int(math.Floor(r.TTL.Seconds()))))
	case r.Reason.Forward() != "":
		b.WriteString("; fwd=" + r.Reason.Forward())
	case r.Reason == policy.StaleIfError || r.Reason == policy.SoftTimeout:
		b.WriteString("; fwd=stale")
	}
	if r.FwdStatus != 0 && r.FwdStatus != r.Status {
		b.WriteString("; fwd-status=" + strconv.Itoa(r.FwdStatus))
	}
	if r.Stored {
		b.WriteString("; stored")
	}
	if r.Collapsed {
		b.WriteString("; collapsed")
	}
	if detail := r.detail(); detail != policy.None {
		b.WriteString("; detail=" + detail.String())
	}
	return b.String()
}

// detail is what the standard parameters do not say.
func (r *Report) detail() policy.Reason {
	switch {
	case r.Detail != policy.None:
		return r.Detail
	case r.Action == policy.Refuse, r.Reason.Forward() == "miss", r.Reason == policy.StaleRefresh, r.Reason == policy.EarlyRefresh,
		r.Reason == policy.StaleAllowed, r.Reason == policy.SoftTimeout:
		return r.Reason
	}
	return r.StoreWhy
}
