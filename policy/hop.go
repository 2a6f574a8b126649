package policy

import (
	"net/http"
	"slices"
	"strings"
)

// StripHop removes hop-by-hop fields (RFC 9110 §7.6.1), those that Connection names included, and those that belong to
// one proxy only (§11.7). Of a client's header this is done before anything is read from it: were Connection:
// Accept-Language obeyed only on the way upstream, the answer to no language would be filed under one.
func StripHop(h http.Header) {
	StripNamed(h)
	trailers := containsFold(members(h["Te"]), "trailers")
	for name := range h {
		if isHop(name) {
			delete(h, name)
		}
	}
	if trailers {
		h["Te"] = []string{"trailers"}
	}
}

// StripNamed removes what Connection names, but for the fields that StripHop knows by themselves. It reports whether
// there was any.
func StripNamed(h http.Header) (found bool) {
	for _, option := range members(h["Connection"]) {
		name := http.CanonicalHeaderKey(option)
		if _, has := h[name]; has && !isHop(name) && !isEndToEnd(name) {
			delete(h, name)
			found = true
		}
	}
	return found
}

// isHop names what is meant for the next one on the way only.
func isHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization":
		return true
	}
	return false
}

// isEndToEnd names fields that are meant for everyone on the way, which no sender may list in Connection (§7.6.1). To
// obey it for them would let a peer unsay what its message is, who asks, or that its answer is private.
func isEndToEnd(name string) bool {
	switch name {
	case "Host", "Content-Length", "Content-Type", "Content-Encoding", "Content-Range", "Content-Location", "Location",
		"Authorization", "Cookie", "Set-Cookie", "Cache-Control", "Pragma", "Expires", "Age", "Date", "Vary", "Etag",
		"Last-Modified", "Cdn-Cache-Control", "Surrogate-Control", "Range", "If-Range", "If-None-Match",
		"If-Modified-Since", "If-Match", "If-Unmodified-Since", "Via":
		return true
	}
	return false
}

// Outgoing is the header of a fill's request upstream: the client's, without what is the client's alone, since many
// are answered with what it brings (RFC 9111 §7.1). The caller adds Via, Host, forwarding fields and conditionals of
// its own. The URL likewise loses what is ignored.
func (p *Policy) Outgoing(plan Plan) http.Header {
	h := plan.Request.Header.Clone()
	if h == nil {
		return http.Header{}
	}
	StripHop(h)
	for name := range h {
		if !plan.rule.sends(name) {
			delete(h, name)
		}
	}
	if cookies := plan.Route.Cache.Ignore.Cookies; len(cookies) > 0 {
		kept := slices.DeleteFunc(cookiePairs(h), func(pair string) bool { return listed(cookies, cookieName(pair)) })
		delete(h, "Cookie")
		if len(kept) > 0 {
			h["Cookie"] = []string{strings.Join(kept, "; ")}
		}
	}
	// Whoever accepts stored answers only sends nothing upstream: this is a refresh behind it, and not bound by its terms.
	asked, ok := readDirectives(h["Cache-Control"])
	if _, only := asked.find("only-if-cached"); only || !ok {
		delete(h, "Cache-Control")
	}
	return h
}

// sends reports whether fills pass a client's field on, as far as its name tells: Connection may name any other. A
// forwarding field goes along where it tells who asks or is keyed.
func (r *rule) sends(name string) bool {
	told := r.tells(name) || slices.Contains(r.keyed, name)
	return !isHop(name) && !isClientsOwn(name) && (!isForwarding(name) || told) && !slices.Contains(r.ignored, name)
}

// isClientsOwn names what a fill does not pass on, in any spelling that a gateway interface takes for it (CGI and WSGI
// read X_Http_Method as X-Http-Method): conditions and ranges, which are met here; A-IM, by which the answer to our own
// condition would be a difference to a copy that the client has not (RFC 3229 §10.5.3); Expect and Te, which are of one
// connection's dialogue; Proxy, which CGI takes for the proxy to go through; and fields that make a GET another method
// behind us.
func isClientsOwn(name string) bool {
	switch name = spelling(name); name {
	case "a-im", "expect", "te", "proxy":
		return true
	}
	return asksOwn(name) || isOverride(name)
}

// asksOwn names conditions and ranges.
func asksOwn(name string) bool {
	switch strings.ToLower(name) {
	case "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range":
		return true
	}
	return false
}

// isOverride names fields that make a request one of another method to some frameworks.
func isOverride(name string) bool {
	switch spelling(name) {
	case "x-http-method-override", "x-method-override", "x-http-method":
		return true
	}
	return false
}

// isForwarding names fields by which servers learn under which name and path they were asked. They come from the
// proxy's own view or not at all: a page built from a client's would be everyone's.
func isForwarding(name string) bool {
	switch name = spelling(name); name {
	case "forwarded", "x-original-url", "x-rewrite-url", "x-original-host", "x-host", "x-url-scheme", "front-end-https",
		"x-real-ip", "true-client-ip", "x-client-ip", "client-ip", "x-cluster-client-ip", "cf-connecting-ip", "fastly-client-ip":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded-")
}

// misled reports whether a request that is passed on carries what may have it answered as another than its key says. What
// the proxy writes itself does not.
func misled(h http.Header) bool {
	for name := range h {
		switch name {
		case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
			continue
		}
		if isForwarding(name) || isOverride(name) {
			return true
		}
	}
	return false
}

// StripFalse removes from a request that is passed on what its client may not say: Proxy, which CGI takes for the proxy
// to go through, and forwarding fields in a spelling that gateway interfaces take for the one that the proxy writes.
func StripFalse(h http.Header) {
	for name := range h {
		if name == "Proxy" || strings.Contains(name, "_") && isForwarding(name) {
			delete(h, name)
		}
	}
}

// StripTrailers removes what may not follow a body: what frames, routes, controls or describes a message or tells who asks
// (RFC 9110 §6.5.1), what is of one connection, and what StripFalse's kind is about. Some servers merge it into the head.
func StripTrailers(h http.Header) {
	for name := range h {
		if name != "Etag" && isEndToEnd(name) || isHop(name) || isForwarding(name) || isOverride(name) || isOfHead(name) {
			delete(h, name)
		}
	}
}

// isOfHead names what else has a meaning before the body only.
func isOfHead(name string) bool {
	switch name {
	case "Expect", "Max-Forwards", "Trailer", "Www-Authenticate", "Retry-After", "Warning", "Proxy", "Cache-Status":
		return true
	}
	return false
}

func spelling(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// members cuts a list field at every comma: for fields whose members are tokens.
func members(lines []string) []string {
	var all []string
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			if member = strings.Trim(member, " \t"); member != "" {
				all = append(all, member)
			}
		}
	}
	return all
}

func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
