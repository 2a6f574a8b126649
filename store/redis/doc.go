// Package redis is the store that replicas share, on Redis or what speaks its language, alone, behind Sentinel or as a
// Cluster.
//
// Every verb is one atomic step: a Lua script (scripts/), whose keys all lie in one slot (layout.go). Redis' own clock
// dates everything (clock.go). A look-up, with the lease if there is none to be had otherwise, is one round trip, a
// commit another.
package redis
