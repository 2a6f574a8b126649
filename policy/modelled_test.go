//go:build !race

package policy

// modelled is how many histories are held to the model.
const modelled = 100_000

// combined: one in so many combinations is tried in a run.
const combined = 23
