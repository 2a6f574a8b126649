package policy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Request is what decisions know of a client's request. Nothing in it is written to.
type Request struct {
	Method       string
	Scheme, Host string // as believed: what trusted proxies say, else the connection's own
	URL          *url.URL
	Header       http.Header
	HasBody      bool
	BodyDigest   string // only for methods keyed by their body
}

// Plan is policy's answer to a request alone, before anything stored is looked at.
type Plan struct {
	Request    Request
	Route      *Route   // the matched route; nil when Action is Refuse
	Key        Key      // of the page, or of a keyed variant of it; Follow turns it into a Vary variant's
	Page       Key      // the key a signpost lies under: Key before Follow
	Target     string   // path and query as they go upstream on fills, byte for byte what the key says
	Authority  string   // the Host as it goes upstream on fills: lower case, without trailing dot and default port
	Vary       []string // the selecting names Key.Variant stands for, after Follow
	Particular []string // the fields by which the request tells who asks (R1)
	Action     Action   // Pass, Lookup or Refuse
	Reason     Reason   // why Pass or Refuse; Refuse's status is Reason.Status()

	directives requestDirectives
	rule       *rule
}

// Plan answers what can be told from the request alone.
func (p *Policy) Plan(req Request) Plan {
	plan := Plan{Request: req, Action: Refuse}
	host, port, ok := authority(req.Scheme, req.Host)
	path := pathOf(req.URL)
	switch {
	case !ok, path[0] != '/', req.Method == http.MethodConnect, req.URL.User != nil:
		// We are no forward proxy: a target that is a host or a star has no page (RFC 9112 §3.2). One that names a user is
		// somebody's bait (RFC 9110 §4.2.4).
		plan.Reason = BadRequest
		return plan
	case req.URL.Scheme != "" && req.URL.Scheme != req.Scheme:
		plan.Reason = UnknownAuthority // https asked for in the clear (RFC 9110 §7.4), or no web address at all
		return plan
	}
	r, reason := p.route(req.Method, host, port, path)
	if r == nil {
		plan.Reason = reason
		return plan
	}
	plan.rule, plan.Route = r, &r.Route
	plan.Authority = joinHost(req.Scheme, host, port)
	_, plan.Target = r.target(req.URL)
	if reason = r.passes(&req); reason != None {
		plan.Action, plan.Reason = Pass, reason
		return plan
	}
	plan.Action = Lookup
	plan.Request.Header = withoutHop(req.Header)
	plan.Particular = r.particularFields(plan.Request.Header)
	plan.Page = Key{r.primary(req.Scheme, plan.Authority, plan.Target), r.variant(&plan.Request)}
	plan.Key = plan.Page
	plan.directives = requestDirectives{maxAge: -1, minFresh: -1, maxStale: -1, staleIfError: -1}
	if r.Cache.ClientDirectives != "ignore" {
		plan.directives = parseRequest(req.Header)
	}
	return plan
}

// passes is R6 and the route's bypass rules: what goes straight through, nothing looked up.
func (r *rule) passes(req *Request) Reason {
	switch {
	case upgrades(req.Header):
		return Upgrade
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return Method
	case req.HasBody:
		return RequestBody
	case wantsEvents(req.Header):
		return EventStream
	case r.bypasses(req):
		return Bypass
	}
	return None
}

// upgrades reports whether the client asks for another protocol, which it does by naming Upgrade in Connection (RFC 9110
// §7.8). HTTP/2 is none: clients ask for it by the way, and it is not granted.
func upgrades(h http.Header) bool {
	another := func(name string) bool { return !strings.EqualFold(name, "h2c") }
	return slices.ContainsFunc(members(h["Upgrade"]), another) && containsFold(members(h["Connection"]), "upgrade")
}

func wantsEvents(h http.Header) bool {
	for media := range weighted(strings.Join(h["Accept"], ",")) {
		if media == "text/event-stream" {
			return true
		}
	}
	return false
}

func (r *rule) bypasses(req *Request) bool {
	b := &r.Bypass
	for _, name := range b.Headers {
		if has(req.Header, http.CanonicalHeaderKey(name)) {
			return true
		}
	}
	if len(b.Cookies) > 0 {
		for _, pair := range cookiePairs(req.Header) {
			if listed(b.Cookies, cookieName(pair)) {
				return true
			}
		}
	}
	if len(b.Query) > 0 {
		for param := range strings.SplitSeq(unreserve(req.URL.RawQuery), "&") {
			if name, _, _ := strings.Cut(param, "="); listed(b.Query, name) {
				return true
			}
		}
	}
	return false
}

// withoutHop is the header as the upstream will see it: a field that Connection names must select nothing, since the
// upstream answers without it. The request's own is left alone.
func withoutHop(h http.Header) http.Header {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if has(h, http.CanonicalHeaderKey(strings.Trim(name, " \t"))) {
				h = h.Clone()
				StripHop(h)
				return h
			}
		}
	}
	return h
}

// LookOnly reports whether the client accepts stored answers only (only-if-cached, RFC 9111 §5.2.1.7).
func (p Plan) LookOnly() bool { return p.directives.onlyIfCached }

// Key names what is stored. Primary is one page (R5): upstream, scheme, host, port, path, query. Variant
// selects one of its forms: "" for a page that has only one.
type Key struct{ Primary, Variant string }

// IsPage reports whether the key is the page's own, under which a signpost may lie.
func (k Key) IsPage() bool { return k.Variant == "" }
