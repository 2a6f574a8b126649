// Package near is a memory store in front of a far one that replicas share: what is asked for often is answered without
// a round trip, and while the far store is away this replica goes on alone.
//
// # Believing
//
// A copy is as good as what is heard of the others. It is answered by Peek while the line is whole, while it is fresh,
// and for a minute at most after the far store was asked, should something not have been heard all the same. What others
// replace or purge is dropped as it is heard, before the far store's Purge returns (R11). While the line is broken no
// copy is believed (R19); when it is whole again, each is checked by the next take of its key, which asks the far store
// anyway. So nothing is dropped in a heap, and no storm follows.
//
// Near never inserts the past (R10). Between the question and the answer something may be heard of the page: then the
// answer is handed on, and not kept; the same after a commit. Notes about more than a page are kept in the memory store,
// by the far store's dates.
//
// # Alone
//
// A take that finds the far store away looks at the copies that were good when the line was last whole, and grants
// leases of its own; so fills are collapsed and kept here (island.go, R17). What they bring is marked unverified: it is
// fresh for away_ttl at most, never peeked at, and not answered once the far store answers again. A far store that
// refuses writes is treated alike where nothing fresh is stored in it.
package near
