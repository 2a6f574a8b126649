package policy

// Admit answers whether an upstream's answer may be kept and shared, how long, and under which tags.
func (p *Policy) Admit(plan Plan, prior *Stored, res Response, at Moment) Admission { panic("unbuilt") }
