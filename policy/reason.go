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
	RequestDirective // the client asked for it, by Cache-Control or a condition
	PartialMiss      // what is stored does not cover the range asked for
	KnownUncacheable // a marker remembers that answers are not shared
	Unacceptable     // what is stored is coded in a way the client does not accept
	Method           // the method is not one that is answered from the cache
	Bypass           // the route's bypass rule names something the request carries
	Upgrade          // the request asks for another protocol
	EventStream      // the client asks for an event stream
	RequestBody      // a GET or HEAD that carries a body

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
	UpstreamTruncated // the upstream's body ended short, or the replica that passed it on is gone
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
	BadRequest        // the request has more than one meaning
	StaleForbidden    // the upstream failed, and must-revalidate or its like forbids a stale answer
	UpstreamSick      // the upstream fails as a whole, and is spared for a moment
	Trailers          // trailers follow its body: they are its asker's
	LoopDetected      // the request has been through here too often
	LastHop           // Max-Forwards is used up
	BodyLost          // the store has lost part of a body that was being sent
	NoRoom            // memory.spool had none left for the body
	TooSlow           // the client is too slow with its request, or in reading what others wait for
	reasons           // how many there are
)

// word is how a Reason is spoken of.
type word struct {
	name, meaning string
	forward       string // the fwd token of RFC 9211 §2.2
	status        int    // of our own answer, where it refuses one
}

func (r Reason) word() word {
	if r >= reasons {
		return word{name: "unknown", meaning: "a later version's reason"}
	}
	return words[r]
}

// String is the reason's name in headers, logs and metrics.
func (r Reason) String() string { return r.word().name }

// Meaning is the reason in words.
func (r Reason) Meaning() string { return r.word().meaning }

// Status is the status of the answer that refuses a request for this reason; 0: it is no reason to refuse one.
func (r Reason) Status() int { return r.word().status }

// Forward is the reason as RFC 9211 §2.2 has it for a request that went upstream; "": it did not for this reason.
func (r Reason) Forward() string { return r.word().forward }

// Reasons lists all of them, in order.
func Reasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// words is never written to.
var words = [reasons]word{
	None:              {"none", "nothing to say", "", 0},
	Fresh:             {"fresh", "within its lifetime", "", 0},
	StaleRefresh:      {"stale-refresh", "within grace; one refresh runs behind", "", 0},
	EarlyRefresh:      {"early-refresh", "fresh, and the dice ordered a refresh before expiry", "", 0},
	StaleAllowed:      {"stale-allowed", "stale, and the client said max-stale", "", 0},
	StaleIfError:      {"stale-if-error", "the upstream failed; the last good copy stands in", "", 0},
	SoftTimeout:       {"soft-timeout", "the upstream takes longer than soft_timeout; a stale copy answers", "", 0},
	Validated:         {"validated", "the upstream confirmed the stored answer (304)", "", 0},
	CollapsedAnswer:   {"collapsed-answer", "brought by a fill that others shared", "", 0},
	URIMiss:           {"uri-miss", "nothing is stored for the URL", "uri-miss", 0},
	VaryMiss:          {"vary-miss", "the page is stored, but no variant of it matches", "vary-miss", 0},
	StaleEntry:        {"stale-entry", "what is stored is stale and must be validated or fetched", "stale", 0},
	RequestDirective:  {"request-directive", "the client asked for it, by Cache-Control or a condition", "request", 0},
	PartialMiss:       {"partial-miss", "what is stored does not cover the range asked for", "partial", 0},
	KnownUncacheable:  {"known-uncacheable", "a marker remembers that answers are not shared", "miss", 0},
	Unacceptable:      {"unacceptable", "what is stored is coded in a way the client does not accept", "miss", 0},
	Method:            {"method", "the method is not one that is answered from the cache", "method", 0},
	Bypass:            {"bypass", "the route's bypass rule names something the request carries", "bypass", 0},
	Upgrade:           {"upgrade", "the request asks for another protocol", "bypass", 0},
	EventStream:       {"event-stream", "the client asks for an event stream", "bypass", 0},
	RequestBody:       {"request-body", "a GET or HEAD that carries a body", "bypass", 0},
	NoStore:           {"no-store", "no-store", "", 0},
	Private:           {"private", "private", "", 0},
	SetCookie:         {"set-cookie", "it sets a cookie and the route refuses to share those", "", 0},
	VaryStar:          {"vary-star", "Vary: *", "", 0},
	NoValidator:       {"no-validator", "no-cache without a validator: could never be used", "", 0},
	Authorized:        {"authorized", "an answer to Authorization without public, s-maxage or must-revalidate", "request", 0},
	ParticularAsker:   {"particular-asker", "an answer to a particular request whose own headers state no lifetime", "request", 0},
	StatusRefused:     {"status-refused", "this status is not kept", "", 0},
	NoLifetime:        {"no-lifetime", "nothing names a lifetime and the route gives none", "", 0},
	UselessStale:      {"useless-stale", "stale on arrival, with neither validator nor grace", "", 0},
	PartialRefused:    {"partial-refused", "a 206 that is not kept", "", 0},
	TooLarge:          {"too-large", "larger than max_body", "", 0},
	StreamType:        {"stream-type", "a content type that never ends", "", 0},
	CloseDelimited:    {"close-delimited", "its end cannot be told from a broken connection", "", 0},
	BadHeader:         {"bad-header", "a field name or value that is not fit to be stored", "", 0},
	GoodCopyKept:      {"good-copy-kept", "an error does not replace a usable copy", "", 0},
	Mismatched:        {"mismatched", "a 304 that is about another answer than the stored one", "", 0},
	MethodUnstored:    {"method-unstored", "answers to this method are not stored", "", 0},
	Purged:            {"purged", "purged while it was being fetched", "", 0},
	LeaseLost:         {"lease-lost", "another replica holds the right to fill by now", "", 0},
	StoreReadOnly:     {"store-read-only", "the store refuses writes", "", 0},
	UpstreamRefused:   {"upstream-refused", "the upstream could not be reached (refused, DNS, TLS)", "", 502},
	UpstreamReset:     {"upstream-reset", "the upstream closed the connection before its answer", "", 502},
	UpstreamTimeout:   {"upstream-timeout", "the upstream did not answer in time", "", 504},
	UpstreamTruncated: {"upstream-truncated", "the upstream's body ended short, or the replica that passed it on is gone", "", 502},
	UpstreamGarbage:   {"upstream-garbage", "what the upstream sent is not HTTP", "", 502},
	UpstreamStatus:    {"upstream-status", "the upstream answered with an error", "", 502},
	UpstreamBusy:      {"upstream-busy", "the upstream's queue is full or took too long", "", 503},
	WaitersFull:       {"waiters-full", "max_waiting exchanges wait already", "", 503},
	WaitTimeout:       {"wait-timeout", "waited for a fill as long as the route allows", "", 503},
	TurnsSpent:        {"turns-spent", "looked up as often as an exchange may", "", 503},
	OnlyIfCached:      {"only-if-cached", "the client accepts only a stored answer, and there is none", "", 504},
	UnknownAuthority:  {"unknown-authority", "no route serves this host", "", 421},
	NoRoute:           {"no-route", "no route serves this path or method", "", 404},
	Draining:          {"draining", "this replica is shutting down", "", 503},
	StoreUnavailable:  {"store-unavailable", "the shared store is away; this replica collapses alone", "", 503},
	ClientGone:        {"client-gone", "the client left before its answer", "", 0},
	Panicked:          {"panicked", "a fault of ours; see the log", "", 502},
	Trailers:          {"trailers", "trailers follow its body: they are its asker's", "", 0},
	LoopDetected:      {"loop-detected", "the request has been through here too often: does an upstream's url lead back to Weir?", "", 508},
	BadRequest:        {"bad-request", "the request has more than one meaning", "", 400},
	StaleForbidden:    {"stale-forbidden", "the upstream failed, and must-revalidate or its like forbids a stale answer", "", 504},
	LastHop:           {"last-hop", "Max-Forwards is used up: this is the last to answer", "", 0},
	UpstreamSick:      {"upstream-sick", "the upstream fails as a whole, and is spared for a moment", "", 503},
	BodyLost:          {"body-lost", "the store has lost part of a body that was being sent; the upstream was asked for the rest", "", 0},
	NoRoom:            {"no-room", "memory.spool had no room for the body; it streams to those who were there, and is not kept", "", 0},
	TooSlow:           {"too-slow", "the client was too slow with its request, or in reading what others waited for", "", 408},
}
