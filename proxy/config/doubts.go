package config

import (
	"fmt"
	"reflect"

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
		for _, p := range r.Loosened() {
			p.Route = i
			k.complain(k.keyOf(p), "%s", p.Text)
		}
	}
	return sorted(k.wrong), nil
}
