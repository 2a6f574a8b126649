// Package policy decides what may be reused, stored, shared and forwarded. It touches nothing: no clock, no dice, no
// file, no network, no goroutine. What time it is and how the dice fell come in as a [Moment], so every decision can
// be written down as a line of a table (testdata/*.txt), asked again for an explanation, and replayed.
//
// It answers these questions, in the order in which a request meets them:
//
//	Plan       what can be told from the request alone: its route, its key, whether it passes, who it says is asking
//	Follow     which variant of a page the request selects, when a signpost lies under the page's key
//	Decide     what to do with what is stored: serve it, serve and refresh it, validate it, fetch another, refuse
//	Outgoing   what the upstream is sent by a fill; Validators: with which conditions
//	Admit      whether the upstream's answer is kept, for how long, and who else may have it; Freshen: the same for a 304
//	May        whether one who waited may use what a fill brought
//	Rescue     whether a stale copy stands in for a failed upstream
//	NotModified, Ranges   how much of a stored answer the client is sent
//	Invalidates, Pages    what an unsafe request, or a purge, makes void
//
// A page of a slow shop says
//
//	Cache-Control: max-age=60, stale-while-revalidate=30
//
// Admit keeps it until 90 s after its arrival. For the first 60 s, less the age it came with, Decide says Serve, Fresh.
// Between 60 and 90 s it says ServeAndRefresh, StaleRefresh: the client has its answer at once, and one fill runs
// behind it. After that it says Fetch, StaleEntry; had the page a tag, Validate. If the upstream then fails and the
// route has stale_if_error, the answer is kept longer, and Rescue says Serve, StaleIfError.
//
// Three moments carry all this, set once by Admit and compared by everyone: FreshUntil, RefreshUntil, RescueUntil.
// Nothing in a stored head is parsed again when it is served.
//
// A request is particular when it carries a field that tells who asks. What such requests may share is narrower at
// every step ([Audience]); Plan.Particular is the only place where it is found out.
package policy
