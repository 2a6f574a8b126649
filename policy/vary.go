package policy

// Follow turns a plan for a page into a plan for the variant of it that the request selects (R5).
func (p *Policy) Follow(plan Plan, sign Stored) Plan { panic("unbuilt") }

// VariantOf is the signpost's line for an answer brought for plan, and the key the answer is kept under. An answer
// that varies on nothing is kept under the page's key and has no line (nil).
func (p *Policy) VariantOf(plan Plan, stored Stored) (Key, *Variant) { panic("unbuilt") }

// AddVariant returns the signpost with one line more (or replaced), the newest last, at most 64. Past that it returns a Marker.
func AddVariant(sign Stored, v Variant) Stored { panic("unbuilt") }
