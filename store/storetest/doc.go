// Package storetest is the store contract as tests, and a store that fails on command.
//
// Run holds any store.Store to the contract that package store's doc.go tells in prose. It works on two handles on one
// store, as two replicas have them: what one does, the other must see. A case never sleeps to let something happen: it
// waits for the store's counter of waiters, for an outcome, or for a lease's end. So the same cases run on fake time
// (testing/synctest) for a store in memory, and on the real clock for one behind a socket.
//
// Faulty wraps a store and makes verbs fail by rule, so that tests of what uses a store can run whole exchanges under
// each single fault.
package storetest
