// Package redis is the store that replicas share, on Redis or what speaks its language: alone, behind Sentinel, or as a
// Cluster.
//
// Every verb is one atomic step, a Lua script in scripts/, whose keys all lie in one slot; layout.go has every name and
// format. A look-up, with the lease where one is due, is one round trip, and a commit another. Bodies over 16 KiB lie
// in segments beside their entry and never go through a script: their first segment costs a look-up one round trip
// more, and each further one is fetched when a reader comes to it.
//
// Redis' own clock dates everything, and each replica knows how far its own is from that (clock.go). A purge writes a
// dated note, which take and commit heed; so it is O(1), reaches every variant, and fills under way too (notes.go). A
// Redis that comes back without the last of them is told again, and what it has forgotten is not believed until then
// (recent.go).
// What other replicas do is heard by one subscription; as a message may be lost, whoever waits also looks for himself
// now and then (bell.go).
//
// Redis may forget anything at any time: a lease that is merely absent may be retaken by its holder, an entry one of
// whose segments is gone is a miss, and whatever cannot be read counts as absent. A Redis that does not answer costs a
// few time-outs, then nothing (breaker.go). One that refuses writes is asked on, since it still answers.
package redis
