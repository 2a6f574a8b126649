package policy

import (
	"math"
)

const (
	// costShare of the lifetime bounds what early refresh takes an upstream's time to be: one slow fetch must not make
	// every hit a refresh (R26).
	costShare = 10
	// leastDice is the least that a throw can be told from nought by; the logarithm of nought is no number.
	leastDice = 1.0 / (1 << 53)
)

// refreshesEarly reports whether the dice order a refresh of a fresh answer, so that a busy page is renewed before it
// expires, by one request, and not when it expires, for all. Never for an error, which should end as soon as it may,
// nor for what cannot change, nor when the upstream is to be spared.
func (r *rule) refreshesEarly(s *Stored, at Moment) bool {
	rule, lifetime := &r.Cache.EarlyRefresh, s.Lifetime()
	if r.Cache.isNegative(s.Status) || s.Immutable || at.Health != Well || lifetime <= 0 {
		return false
	}
	switch rule.Mode {
	case "xfetch": // Vattani, Chierichetti, Lowenstein, VLDB 2015
		delta := min(s.Cost, lifetime/costShare)
		gap := float64(delta) * rule.Beta * -math.Log(max(at.Dice, leastDice))
		return gap >= float64(s.FreshUntil.Sub(at.Now)) && delta > 0
	case "power":
		spent := float64(max(0, at.Now.Sub(s.Arrived))) / float64(lifetime)
		return at.Dice < math.Pow(spent, rule.Exponent)
	}
	return false
}

// powerRefreshes is how often the power rule refreshes a page in each of its lifetimes, about, when a lifetime sees that
// many requests. Each of them refreshes with probability (age/lifetime)^exponent, so with k = exponent + 1 the share of
// lifetimes that reach a part x of their length is exp(-requests x^k / k), whose mean is Γ(1+1/k) (k/requests)^(1/k).
func powerRefreshes(requests, exponent float64) float64 {
	k := exponent + 1
	return max(1, math.Pow(requests/k, 1/k)/math.Gamma(1+1/k))
}
