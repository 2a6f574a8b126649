package policy

import "time"

// Action is what to do next.
type Action uint8

const (
	Pass            Action = iota // straight through, nothing looked up or stored
	Lookup                        // ask the store (of May: look again, under a key of one's own)
	Serve                         // answer from what is at hand
	ServeAndRefresh               // the same, and one refresh behind it
	Validate                      // ask upstream whether the stored answer still holds (of May: board the next fill)
	Fetch                         // ask upstream for a whole answer (of May: alone, joined by nobody)
	Refuse                        // answer with an error of ours: Reason.Status()
)

// Health is what is known of the upstream.
type Health uint8

const (
	Well Health = iota
	Sick
	Frozen
)

// Moment is what a decision knows of the instant it is made in. Clock and dice are arguments.
type Moment struct {
	Now    time.Time
	Dice   float64 // in [0,1): early refresh, jitter
	Health Health
}

// Decision is policy's answer to a plan and what is stored.
type Decision struct {
	Action Action
	Reason Reason
	Age    time.Duration
	// Collapse is false behind a marker: the fetch is the exchange's own and nobody may join it.
	Collapse bool
}

// Order tells how a waiting exchange stands to the fill it waited for (R3).
type Order struct {
	Mine      bool // it is the fill's asker
	Later     bool // the fill was sent upstream after the exchange arrived
	Confirmed bool // the upstream answered 304
}

// Class says who waits for a fill, best first (R26).
type Class uint8

const (
	ClientWaits Class = iota
	ErrorWaits        // a client that could be answered stale if this fails
	StaleWaits        // nobody: a refresh of a stale answer
	EarlyWaits        // nobody: a refresh before expiry
	WarmWaits         // nobody: a warmer
)

// Decide answers what to do with what is stored under the plan's key; nil: nothing is.
func (p *Policy) Decide(plan Plan, stored *Stored, at Moment) Decision { panic("unbuilt") }

// May answers whether a waiting exchange may use what a fill brought (R1, R2, R3). Serve: use it. Lookup: another
// variant; look up again under its own key. Validate: board the next fill. Fetch: go alone, at once.
func (p *Policy) May(plan Plan, brought Admission, order Order, at Moment) Decision { panic("unbuilt") }
