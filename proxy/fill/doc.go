// Package fill is one upstream fetch for everyone who needs it, and nobody's connection.
//
// A fill starts when the store grants a lease (or, with the store away, without one), and ends in exactly one of two
// ways: its lease is committed or released. Where another replica holds the lease, the fill here is a relay of its. Clients come and go meanwhile; the fill goes on.
//
//	take said lease ──► enter ──► ask ──► fault? ──► release(Failed)
//	                                 ├──► 304 ─────► freshen ──► commit
//	                                 └──► answer ──► admit ──┬─► stream ──► commit
//	                                                         ├─► marker committed at the head, body to the asker
//	                                                         └─► released at the head, body to those aboard
//	take said held  ──► relay: the holder's bytes while they come, and the end of its lease
//
// While the upstream is sick no lease is asked for where a copy can stand in: the store is only looked at (failure.go).
//
// Those who wait learn of the head when Head closes, and decide each for itself what the fill is to them
// (policy.May). The body grows in a [Spool] that many read at their own pace, in memory that all spools share ([Budget]).
// Where there is none for the whole, it is a window: who reads slower than [Pace] asks for, and holds up others, is cut.
package fill
