// Package proxy is what is done for one client.
//
// An exchange is a small machine. A state acts and returns the next; the loop in exchange.go drives them, records the
// path and bounds the turns.
//
//	receive ──► pass ─────────────────► end
//	   │  └───► refuse ───────────────► end
//	   ▼
//	lookup ──fresh──► deliver ────────► end
//	   │  └──stale, may be refreshed──► deliver, and a fill starts behind it
//	   │  └──marker──► alone ─────────► wait (a fill of its own, joined by nobody)
//	   ▼ nothing usable
//	join ── asks the store and the table of fills ──► wait
//
//	wait ── parked until the fill's head is known; then policy.May says for each what the fill is to it
//	   ├──mine, or shared───────────────────────────────► deliver
//	   ├──the same, and a stale copy could stand in─────► whole (until a small one has ended) ──► deliver, or rescue
//	   ├──nobody's but its asker's──────────────────────► alone
//	   ├──another variant, or another replica has filled► lookup
//	   ├──a fill sent earlier does not do───────────────► next (until it is over) ──► lookup
//	   └──the upstream failed, or the wait took too long► rescue ──► deliver stale, or refuse
//
// The words: an exchange is a client's request being answered; a fill is an upstream fetch for all who need it; a plan,
// a decision and an admission are policy's three answers; a report is what happened, and Cache-Status, the access log
// and the metrics are its printers.
package proxy
