package policy

// requestDirectives is a request's Cache-Control (RFC 9111 §5.2.1), -1 where a number is absent.
type requestDirectives struct {
	noCache, noStore, onlyIfCached           bool
	maxAge, minFresh, maxStale, staleIfError int64 // seconds
	anyStale                                 bool  // max-stale without a value
}
