package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"time"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

// pass is a request that goes straight through, by the standard reverse proxy: upgrades, 1xx, trailers, flushing and
// half-closed connections are already right there.
func pass(why policy.Reason) *state {
	return &state{"pass", func(x *exchange) *state {
		x.report.Action, x.report.Reason = policy.Pass, why
		up := x.h.upstreams[x.plan.Route.Upstream]
		(&httputil.ReverseProxy{
			Rewrite:        func(p *httputil.ProxyRequest) { x.rewrite(p, up) },
			Transport:      up,
			FlushInterval:  -1,
			ModifyResponse: x.passed,
			ErrorHandler:   x.notPassed,
			ErrorLog:       log.New(io.Discard, "", 0), // the report has it
		}).ServeHTTP(x.w, x.r)
		return nil
	}}
}

// rewrite aims the request, as it came, at the upstream. What it says of the client's side is our own view.
func (x *exchange) rewrite(p *httputil.ProxyRequest, up *upstream.Upstream) {
	target := policy.EscapedPath(x.r.URL)
	if x.r.URL.RawQuery != "" || x.r.URL.ForceQuery {
		target += "?" + x.r.URL.RawQuery
	}
	if err := up.Aim(p.Out, target); err != nil {
		x.report.Err = err // an escaped path that net/http has parsed unescapes
	}
	p.Out.Host = x.plan.Authority
	if x.h.trusted(x.r.RemoteAddr) {
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	p.Out.Header.Set("X-Forwarded-Host", x.plan.Authority)
	p.Out.Header.Set("X-Forwarded-Proto", x.plan.Request.Scheme)
	p.Out.Header.Add("Via", "1.1 weir")
	if strings.Contains(strings.ToLower(p.Out.Header.Get("Upgrade")), "h2c") {
		// A tunnel past every rule of ours. No client needs it any more (RFC 9113 §3.1).
		for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
			p.Out.Header.Del(name)
		}
	}
	if _, named := p.In.Header["User-Agent"]; !named {
		p.Out.Header["User-Agent"] = nil
	}
}

// passed is called with the upstream's head, before ours is sent: an unsafe method has invalidated by then (R13).
func (x *exchange) passed(res *http.Response) error {
	x.report.FwdStatus = res.StatusCode
	x.invalidate(res)
	keep := x.posted(res)
	x.dress(res.Header)
	res.Header.Add("Via", "1.1 weir")
	x.report.Status = res.StatusCode
	x.cacheStatus(res.Header)
	// Trailers come with the body's end, and are read where the body is: that one is not taken ahead.
	if !upstream.Endless(res) && (res.Body != http.NoBody || keep != nil) && len(res.Trailer) == 0 {
		up := x.h.upstreams[x.plan.Route.Upstream]
		res.Body = x.h.table.ReadAhead(res.Body, up.Config().IdleTimeout, keep)
	}
	return nil
}

// posted takes the right to store an answer to POST that GETs may be given (RFC 9110 §9.3.3), before its body comes:
// what a later write makes void must not be stored over it. nil: it is not to be stored.
func (x *exchange) posted(res *http.Response) (commit func(store.Body)) {
	now := time.Now()
	plan, adm := x.policy.AdmitPosted(x.plan, policy.Response{
		Status: res.StatusCode, Header: res.Header, Asked: x.report.Time, Arrived: now,
	}, x.moment())
	if adm.Keep <= 0 || len(res.Trailer) > 0 || x.report.StoreFault != "" {
		return nil
	}
	return x.storing(plan, adm, now)
}

// keepLease is how long it may take to store what no fill has brought. Nothing renews such a lease.
const keepLease = 10 * time.Second

// storing takes the right to store what no fill has brought, unless something is stored that is fresh until after at.
// Commit stores it with its body, or gives the right back when there is none.
func (x *exchange) storing(plan policy.Plan, adm policy.Admission, at time.Time) (commit func(store.Body)) {
	ctx := context.WithoutCancel(x.r.Context())
	taken, err := x.h.store.Take(ctx, adm.Key, store.Want{Token: rand.Text(), TTL: keepLease, At: at, Despite: true})
	if err != nil {
		x.report.StoreFault, x.report.Err = "take", err
	}
	if taken.Lease == nil {
		return nil
	}
	x.report.Stored = true
	return func(body store.Body) {
		if body == nil {
			if err := x.h.store.Release(ctx, *taken.Lease, store.Outcome{End: store.Lapsed}); err != nil {
				x.report.StoreFault, x.report.Err = "release", err
			}
			return
		}
		entry := &store.Entry{Stored: adm.Stored, Key: adm.Key, Body: body}
		entry.Header = adm.Shared
		w := store.Write{Entry: entry, Sign: plan.Page, Keep: adm.Keep}
		w.Key, w.Variant = x.policy.VariantOf(plan, adm.Stored)
		// Lost: made void meanwhile, which is no fault.
		if err := x.h.store.Commit(ctx, *taken.Lease, w); err != nil && !errors.Is(err, store.ErrLost) {
			x.report.StoreFault, x.report.Err = "commit", err
		}
	}
}

// headed acts on what an answer to HEAD tells of the answer to GET that is stored (RFC 9111 §4.3.5).
func (x *exchange) headed(head policy.Response) {
	adm, outdated := x.policy.Headed(x.plan, x.entry.Stored, head, x.moment())
	switch {
	case outdated:
		x.void(policy.Selector{Page: x.plan.Page.Primary}, store.MustValidate)
	case adm.Keep > 0:
		if commit := x.storing(x.plan, adm, x.entry.FreshUntil); commit != nil {
			commit(x.entry.Body)
		}
	}
}

func (x *exchange) invalidate(res *http.Response) {
	mode := store.MustValidate
	if x.plan.Route.Cache.Invalidate == "soft" {
		mode = store.Soft
	}
	for _, sel := range x.policy.Invalidates(x.plan, policy.Response{Status: res.StatusCode, Header: res.Header}) {
		x.void(sel, mode)
	}
}

// void purges on an exchange's own account. That it could not is the store's fault, and the client has its answer.
func (x *exchange) void(sel policy.Selector, mode store.Mode) {
	if _, err := x.h.store.Purge(context.WithoutCancel(x.r.Context()), sel, mode); err != nil {
		x.report.StoreFault, x.report.Err = "purge", err
	}
}

// notPassed is called when the upstream gave no answer.
func (x *exchange) notPassed(_ http.ResponseWriter, _ *http.Request, err error) {
	x.report.Err = err
	if x.gone() {
		panic(http.ErrAbortHandler)
	}
	x.fault = upstream.FaultOf(err)
	x.report.Action, x.report.Reason = policy.Refuse, policy.FaultReason(x.fault)
	x.problem(x.report.Reason, 0)
}

// cutField takes "Name: value" apart.
func cutField(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	return textproto.TrimString(name), textproto.TrimString(value), ok
}
