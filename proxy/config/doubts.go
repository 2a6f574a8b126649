package config

import (
	"fmt"
	"reflect"
	"strings"

	"weir/policy"
)

// Warnings is what is suspicious in a Config that Load accepts.
func Warnings(s Source) (Problems, error) {
	c, set, err := s.layers()
	if err != nil {
		return nil, err
	}
	k := &checker{set: set, wrong: Problems{}}
	for _, p := range policy.Suspicious(c.Policy()) {
		k.complain(k.keyOf(p), "%s", p.Text)
	}
	rules, err := policy.New(c.Policy())
	for i, j := range c.Warm {
		if err == nil {
			k.room(fmt.Sprintf("warm[%d]", i), reflect.TypeOf(j), j.Doubts(rules))
		}
	}
	return sorted(k.wrong), nil
}

// Loosened is what a right file allows beyond the RFC's rules and our strict defaults. It is no fault; it is what to look
// at first when somebody saw what was not theirs.
func Loosened(s Source) (Problems, error) {
	c, set, err := s.layers()
	if err != nil {
		return nil, err
	}
	k := &checker{set: set, wrong: Problems{}}
	for i, r := range c.Routes {
		cache := r.Cache
		for _, loose := range []struct {
			is        bool
			key, says string
		}{
			{cache.ForceTTL > 0, "force_ttl", formatDuration(cache.ForceTTL) + ": kept whatever the answer says"},
			{len(cache.StaleDespite) > 0, "stale_despite", strings.Join(cache.StaleDespite, ", ") + ": stale answers are served all the same"},
			{cache.SetCookie == "strip" || cache.SetCookie == "keep", "set_cookie", cache.SetCookie + ": answers that set cookies are shared"},
			{len(cache.Ignore.Headers) > 0, "ignore.headers", strings.Join(cache.Ignore.Headers, ", ") + ": who asks by these makes no difference"},
			{len(cache.Ignore.Cookies) > 0, "ignore.cookies", strings.Join(cache.Ignore.Cookies, ", ") + ": who asks by these makes no difference"},
			{cache.ClientDirectives == "collapse" || cache.ClientDirectives == "ignore", "client_directives", cache.ClientDirectives + ": a reload need not reach the upstream"},
			{cache.Collapse == "all", "collapse", "all: those who wait share an answer with no-cache"},
			{cache.Invalidate == "soft" || cache.Invalidate == "off", "invalidate", cache.Invalidate + ": pages may outlive a change made through us"},
		} {
			if loose.is {
				k.complain(k.keyOf(policy.Problem{Route: i, Key: "cache." + loose.key}), "%s", loose.says)
			}
		}
	}
	return sorted(k.wrong), nil
}
