// Package store is what is kept, and the right to fill it. It knows entries, leases and purges, and no rule of HTTP.
//
// # Leases
//
// There is no Put. Whoever wants to write under a key holds its lease: so a purge can revoke it, a dead replica's lease
// runs out, and "who may write this now" has one answer for all replicas. Take looks up and, in the same step, grants
// the lease when nothing is stored whose FreshUntil is later than Want.At, or says who holds it. Variants of a page have
// leases of their own; what one lease writes may lie under another key of the same page, as what an answer varies on is
// known only when it has come.
//
// The token is the holder's own choice, and every verb is idempotent by it: a take or a commit whose reply was lost can
// be sent again. Leases of a store are ordered by Taken, which it stamps from its own clock, strictly increasing; an
// entry bears that of the lease that brought it as Leased.
//
// A lease ends by Commit (Filled), by Release (as its outcome says), by running out (Lapsed), or by a purge (Revoked). Once
// it has ended otherwise than by its own commit, Renew and Commit are ErrLost and nothing is written. Where a store
// cannot tell a lease that ran out from one that it lost itself, the holder may have it again, as long as nobody else has
// taken it and no purge has come between (R14). Lost closes when the holder ought to know: revoked, or run out.
//
// # What is written
//
// Commit writes an Answer or a Part under its key, its line in the signpost, and ends the lease: all or nothing. The
// signpost lies under the page's key (or a keyed variant's), is merged line by line, is never stale, and is kept at least
// as long as any of its variants. An Answer under that very key replaces it, and it replaces an Answer.
//
// A Marker replaces another Marker, their marks added up, or lies where nothing is; to anything else it lends its marks
// and leaves the rest as it is, Leased included (R4). An Answer ends them.
//
// An entry that a store cannot hold (too large, unfit) is not stored, quietly: its lease ends Lapsed, which is what
// "nothing to keep" is called, and Commit does not fail.
//
// # What waiters learn
//
// Await returns when the lease with that token has ended, whatever way, or at once when it already has. Filled: look up
// again. Failed: the upstream did, with this fault. Lapsed: compete for the next lease. Revoked: the same, and who
// waited may be told so as often as somebody purges. How a lease ended is remembered for some seconds; after that, as of
// a lease unheard of, the answer is Lapsed. Taking up again is always right.
//
// A failure is remembered with its entry when Outcome.Remember says so, as long as the entry's RescueUntil lies ahead:
// Take then grants no lease and answers the copy with Failed (R23), unless Want.Despite names that failure, by the date of
// the lease that failed, or a later one: of those who find at once that a failure no longer counts, only one is granted the
// lease, though it fails again before the others come. Without such a copy Take grants. A commit ends the memory.
//
// # Purges
//
// A purge is a note with a date of the store's time: it is about what was leased at or before it (R8). One of a page is
// about every key under its Primary, one by prefix or host about keys that say so, one by tag or route about entries
// that do, and one of all about everything. It is written in one step, whatever it is about: nothing is looked for, and
// what is stored learns of it when it is looked at. Notes are kept as long as anything can live. Those by prefix are
// few: past Prefixes of them, one is about the prefix's whole host.
//
// In every mode, what was asked before a purge must not be stored after it: leases that it is about end Revoked, and
// their commits are ErrLost. Where the lease's key tells, or the entry that lies there, that is known at once; else when
// the commit brings the tags. Hard drops entries and signposts. Soft makes stale, and moves the windows in which
// something stale may be served to the moment of the purge, of the first where several are about an entry (Dates);
// MustValidate ends all three moments (Dated). A signpost stays as it is then, since it is no answer. Entries that were
// read stay as they were, as an entry is immutable.
//
// Watch tells every replica; Purge returns once the watchers have obeyed, or have had the time for it (R11). Functions
// given to Watch may be called from several goroutines at once, and are quick.
//
// # Failing
//
// A store that refuses writes still answers: Take's entry, with ErrReadOnly beside it where a lease would have been
// granted (R16).
//
// A store with memory of its own may answer a take although the shared store failed: Taken.Alone says so, and what such
// a lease brings is Unverified (R17).
//
// Errors wrap ErrLost, ErrReadOnly, ErrUnavailable, or the context's own. A user of a store treats them all as "go on
// without the shared store". A closed store is ErrUnavailable, for those who wait in it too.
package store
