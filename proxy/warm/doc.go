// Package warm keeps listed pages warm: it fetches them at the start and brings each anew before it expires, asked for
// or not. A warmer is a client without a socket: it asks by [proxy.Handler.Warm] for an ordinary GET, is last in the
// upstream's queue (R26), and what it brings is kept by the rules that hold for everybody.
//
// Each job of the file takes part in an election: one lease on warm:<job> says which replica of those that share a store
// does it. Another takes over when that one leaves, at once, or dies, when its lease has run out. While the store is away
// nobody warms. The lease spares requests and is not what right answers hang on: should two replicas lead for a moment,
// each page still has a lease of its own, and is fetched once.
//
//	elected ──► list ──► look at each page: fetched, unless it is fresh
//	                        │
//	                        ▼ due: a share of its lifetime, a time, or the clock
//	                     fetch, by its validator ──► due again, by what is stored by now
//	                        │ failed
//	                        ▼
//	                     pause: 1 s, doubled up to a minute, no sooner than Retry-After (R23)
//
// When a page is due is told by what is stored: has a client's request brought it anew meanwhile, it is due later. After
// a purge, and after a line to the store that broke, all pages are looked at.
package warm
