package fill

import (
	"slices"

	"weir/policy"
)

// note is what a purge by tag or route said while a fill was under way. Its lease is not revoked: which tags it has is
// not known before its head. Commit refuses what it brings, and those who came after the purge do not take it.
type note struct {
	selector policy.Selector
	at       uint64 // in the table's order of arrivals and departures
}

// Void tells the fills under way of a purge (R8, R13).
func (t *Table) Void(sel policy.Selector) {
	n := note{selector: sel, at: t.order.Add(1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.fills {
		f.notes = append(f.notes, n)
	}
}

// VoidFor reports whether what the fill has brought was purged before somebody came who arrived then. Its head is known.
func (f *Fill) VoidFor(arrived uint64) bool {
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	return slices.ContainsFunc(f.notes, func(n note) bool {
		s := n.selector
		return n.at < arrived && (s.Route != "" && s.Route == f.ask.Plan.Route.Name ||
			s.Tag != "" && slices.Contains(f.result.Admission.Stored.Tags, s.Tag))
	})
}
