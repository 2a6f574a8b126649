package proxy

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"

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
		if x.r.Body != nil && x.r.Body != http.NoBody {
			x.r.Body = &patient{ReadCloser: x.r.Body, control: x.w.control}
		}
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
	target := x.r.URL.EscapedPath()
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
	if _, named := p.In.Header["User-Agent"]; !named {
		p.Out.Header["User-Agent"] = nil
	}
}

// passed is called with the upstream's head, before ours is sent: an unsafe method has invalidated by then (R13).
func (x *exchange) passed(res *http.Response) error {
	x.report.FwdStatus = res.StatusCode
	x.invalidate(res)
	x.dress(res.Header)
	res.Header.Add("Via", "1.1 weir")
	x.report.Status = res.StatusCode
	x.cacheStatus(res.Header)
	// Trailers come with the body's end, and are read where the body is: that one is not taken ahead.
	if !upstream.Endless(res) && res.Body != http.NoBody && len(res.Trailer) == 0 {
		up := x.h.upstreams[x.plan.Route.Upstream]
		res.Body = x.h.table.ReadAhead(res.Body, up.Config().IdleTimeout)
	}
	return nil
}

func (x *exchange) invalidate(res *http.Response) {
	mode := store.MustValidate
	if x.plan.Route.Cache.Invalidate == "soft" {
		mode = store.Soft
	}
	for _, page := range x.policy.Invalidates(x.plan, policy.Response{Status: res.StatusCode, Header: res.Header}) {
		if _, err := x.h.store.Purge(x.r.Context(), page, mode); err != nil {
			x.report.StoreFault, x.report.Err = "purge", err
		}
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
