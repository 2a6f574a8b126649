package policy

// Reason says why an exchange went the way it did. The list is closed: header, log, metrics and
// tests print the same word, and README's table is generated from the meanings here.
type Reason uint8

// Reasons an answer came from what is kept.
const (
	None            Reason = iota
	Fresh                  // within its lifetime
	StaleRefresh           // within grace; one refresh runs behind
	EarlyRefresh           // fresh, and the dice ordered a refresh before expiry
	StaleAllowed           // stale, and the client said max-stale
	StaleIfError           // the upstream failed; the last good copy stands in
	SoftTimeout            // the upstream takes longer than soft_timeout; a stale copy answers
	Validated              // the upstream confirmed the stored answer (304)
	CollapsedAnswer        // brought by a fill that others shared

	// Reasons a request went upstream.
	URIMiss          // nothing is stored for the URL
	VaryMiss         // the page is stored, but no variant of it matches
	StaleEntry       // what is stored is stale and must be validated or fetched
	RequestDirective // the client's Cache-Control asked for it
	PartialMiss      // what is stored does not cover the range asked for
	KnownUncacheable // a marker remembers that answers are not shared
	Unacceptable     // what is stored is coded in a way the client does not accept
	Method           // the method is not one that is answered from the cache
	Bypass           // the route's bypass rule names something the request carries
	Upgrade          // the request asks for another protocol
	EventStream      // the client asks for an event stream
	RequestBody      // a GET or HEAD that carries a body
	WarmUp           // a warmer asked

	// Reasons an answer was not stored or not shared.
	NoStore         // no-store
	Private         // private
	SetCookie       // it sets a cookie and the route refuses to share those
	VaryStar        // Vary: *
	NoValidator     // no-cache without a validator: could never be used
	Authorized      // an answer to Authorization without public, s-maxage or must-revalidate
	ParticularAsker // an answer to a particular request whose own headers state no lifetime
	StatusRefused   // this status is not kept
	NoLifetime      // nothing names a lifetime and the route gives none
	UselessStale    // stale on arrival, with neither validator nor grace
	PartialRefused  // a 206 that is not kept
	TooLarge        // larger than max_body
	StreamType      // a content type that never ends
	CloseDelimited  // its end cannot be told from a broken connection
	BadHeader       // a field name or value that is not fit to be stored
	GoodCopyKept    // an error does not replace a usable copy
	Mismatched      // a 304 that is about another answer than the stored one
	MethodUnstored  // answers to this method are not stored
	Purged          // purged while it was being fetched
	LeaseLost       // another replica holds the right to fill by now
	StoreReadOnly   // the store refuses writes

	// Reasons an exchange failed or was refused.
	UpstreamRefused   // the upstream could not be reached (refused, DNS, TLS)
	UpstreamReset     // the upstream closed the connection before its answer
	UpstreamTimeout   // the upstream did not answer in time
	UpstreamTruncated // the upstream's body ended short
	UpstreamGarbage   // what the upstream sent is not HTTP
	UpstreamStatus    // the upstream answered with an error
	UpstreamBusy      // the upstream's queue is full or took too long
	WaitersFull       // max_waiting exchanges wait already
	WaitTimeout       // waited for a fill as long as the route allows
	TurnsSpent        // looked up as often as an exchange may
	OnlyIfCached      // the client accepts only a stored answer, and there is none
	UnknownAuthority  // no route serves this host
	NoRoute           // no route serves this path or method
	Draining          // this replica is shutting down
	StoreUnavailable  // the shared store is away; this replica collapses alone
	ClientGone        // the client left before its answer
	Panicked          // a fault of ours; see the log
	LoopDetected      // the request has been through this proxy already
	BadRequest        // the request has more than one meaning
	StaleForbidden    // the upstream failed, and must-revalidate or its like forbids a stale answer
	reasons           // how many there are
)
