//go:build race

package policy

// modelled is a tenth of what it is without the race detector, which makes each ten times as long, and finds nothing in
// what runs in one goroutine.
const modelled = 10_000

// combined: one in so many combinations is tried in a run.
const combined = 211
