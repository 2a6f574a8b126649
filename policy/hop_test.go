package policy

import (
	"maps"
	"slices"
	"testing"
)

func TestStripHop(t *testing.T) {
	eachScene(t, "hop.txt", func(t *testing.T, s scene) string {
		h := s.subjects[0].header
		StripHop(h)
		return printHeader(h)
	})
}

func TestOutgoing(t *testing.T) {
	eachScene(t, "outgoing.txt", func(t *testing.T, s scene) string {
		p, req := s.policy(t), s.request(t)
		before := maps.Clone(req.Header)
		h := p.Outgoing(p.Plan(req))
		if !maps.EqualFunc(before, req.Header, slices.Equal) {
			t.Errorf("the client's header was written to: %v", req.Header)
		}
		return printHeader(h)
	})
}

// The caller adds fields of its own to what Outgoing gives.
func TestOutgoingOfNoHeaderCanBeWrittenTo(t *testing.T) {
	s := scene{subjects: []subject{{words: []string{"GET", "/"}}}}
	p := s.policy(t)
	plan := p.Plan(s.request(t))
	plan.Request.Header = nil
	h := p.Outgoing(plan)
	if h.Set("Via", "1.1 weir"); len(h) != 1 {
		t.Fatalf("%v, and then Via", h)
	}
}
