// Package e2e looks at Weir from across the street: it builds the binary once, runs it as real processes and speaks
// HTTP, Redis and signals with it. It imports nothing of the product, so what it sees is what users see.
//
// Scenarios (scenarios/*.txt, one behaviour each) are written in a small language that README.md explains on one page.
// Nothing in them waits for time to pass: staleness is made by the upstream's Age, order by gates and counters.
// Beside them stand the public conformance suite, bounded load, real servers, and the house rules as tests.
package e2e
