package policy

import (
	"net/http"
	"net/url"
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

// LookOnly reports whether the client accepts stored answers only (only-if-cached, RFC 9111 §5.2.1.7).
func (p Plan) LookOnly() bool { return p.directives.onlyIfCached }

// Key names what is stored. Primary is one page (R5): upstream, scheme, host, port, path, query. Variant
// selects one of its forms: "" for a page that has only one.
type Key struct{ Primary, Variant string }

// IsPage reports whether the key is the page's own, under which a signpost may lie.
func (k Key) IsPage() bool { return k.Variant == "" }
