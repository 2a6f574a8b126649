package proxy

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"weir/policy"
)

func receive() *state {
	return &state{"receive", func(x *exchange) *state {
		req := x.h.request(x.r)
		x.plan = x.policy.Plan(req)
		x.begin(req)
		if why := odd(x.r); why != policy.None {
			return refuse(why)
		}
		switch x.plan.Action {
		case policy.Refuse:
			return refuse(x.plan.Reason)
		case policy.Pass:
			return pass(x.plan.Reason)
		}
		return lookup()
	}}
}

// mostHops is how often a request may come through here: tiers of Weir are few, a loop is endless (RFC 9110 §7.6.3).
const mostHops = 8

// odd finds what is no request to a reverse proxy, whatever the routes say.
func odd(r *http.Request) policy.Reason {
	hops := 0
	for _, line := range r.Header["Via"] {
		hops += strings.Count(line, " weir")
	}
	switch {
	case hops >= mostHops:
		return policy.LoopDetected
	case r.URL.User != nil:
		return policy.BadRequest // whose name it carries is nobody's to pass on (RFC 9110 §4.2.4)
	case strings.Contains(r.RequestURI, "#"):
		return policy.BadRequest // a target has no fragment (RFC 9112 §3.2): what it is cut to differs from server to server
	}
	return policy.None
}

// begin opens the report.
func (x *exchange) begin(req policy.Request) {
	x.report.Client, x.report.Method, x.report.Proto = x.h.client(x.r), x.r.Method, x.r.Proto
	x.report.Scheme, x.report.Host, x.report.Path = req.Scheme, req.Host, x.r.URL.RequestURI()
	x.report.Page = x.plan.Page.Primary
	if x.plan.Route != nil {
		x.report.Route, x.report.Upstream = x.plan.Route.Name, x.plan.Route.Upstream
	}
}

// request is the request as policy sees it, with what trusted proxies say of its scheme and host.
func (h *Handler) request(r *http.Request) policy.Request {
	req := policy.Request{
		Method: r.Method, Scheme: "http", Host: r.Host, URL: r.URL, Header: r.Header,
		HasBody: r.ContentLength != 0,
	}
	if r.TLS != nil {
		req.Scheme = "https"
	}
	if h.trusted(r.RemoteAddr) {
		if s := strings.ToLower(last(r.Header, "X-Forwarded-Proto")); s == "http" || s == "https" {
			req.Scheme = s
		}
		if host := last(r.Header, "X-Forwarded-Host"); host != "" {
			req.Host = host
		}
	}
	return req
}

// client is the address of the one who asks: the last in X-Forwarded-For that no trusted proxy has.
func (h *Handler) client(r *http.Request) string {
	client := address(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && h.trusted(client); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		client = hop.Unmap().String()
	}
	return client
}

func (h *Handler) trusted(remote string) bool {
	if len(h.config.TrustedProxies) == 0 {
		return false
	}
	a, err := netip.ParseAddr(address(remote))
	if err != nil {
		return false
	}
	for _, p := range h.config.TrustedProxies {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

func address(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}

// last is the last member of a list field: what the proxy next to us has written.
func last(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) == 0 {
		return ""
	}
	v := values[len(values)-1]
	return strings.TrimSpace(v[strings.LastIndexByte(v, ',')+1:])
}
