// Package memory is the store in this process: the whole store where there is no Redis.
//
// Entries lie in shards, each a map under a lock of its own; all variants of a page share a shard, so that a page is
// purged, and a variant written with its signpost, under one lock. The bound in bytes is one for all shards: queue
// decides over all entries what goes when it is passed. A hit takes a shard's read lock and sets a word; only admissions
// and evictions touch the queue.
//
// Lock order: a shard, then the queue. Nobody holds two shards.
//
// What is pinned (copy.go) makes no room for others. Who pins knows better than a count of hits what is wanted, and
// has a quarter of the store for it.
//
// Nothing runs in the background but the timers of leases. What nobody asks for any more goes by sweeping a few pages
// at every commit, or when its place is needed.
package memory
