package policy

import "net/http"

// StripHop removes hop-by-hop fields (RFC 9110 §7.6.1), those that Connection names included.
func StripHop(h http.Header) { panic("unbuilt") }

// Outgoing is the header of a fill's request upstream: the client's, without hop-by-hop fields, conditionals,
// Range, and what the route ignores; the caller adds Via, Host and forwarding fields. The URL likewise loses what is ignored.
func (p *Policy) Outgoing(plan Plan) http.Header { panic("unbuilt") }
