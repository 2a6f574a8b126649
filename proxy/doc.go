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
//	   │  └──marker──► a fill of its own, joined by nobody
//	   ▼ nothing usable
//	join ── starts or joins a fill, waits for its head ── policy.May ──┐
//	   ▲                                                               │
//	   │  another variant, another replica has filled, the next fill   │
//	   └────── lookup ◄────────────────────────────────────────────────┤
//	                    the upstream failed ──► rescue ──► deliver ◄───┘ mine, or shared
//
// The words: an exchange is a client's request being answered; a fill is an upstream fetch for all who need it; a plan,
// a decision and an admission are policy's three answers; a report is what happened, and Cache-Status, the access log
// and the metrics are its printers.
package proxy
