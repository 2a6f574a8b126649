package upstream

// Upstream is one server behind us, or several that answer alike.
type Upstream struct{}

// Stats is what an upstream has been asked so far, and what is under way.
type Stats struct {
	Requests uint64 // sent, retries included
	Failures uint64
	Running  int64 // slots taken
	Queued   int64
	Streams  int64 // upgrades and event streams
}

// New makes an Upstream; its errors name the key.
func New(c Config) (*Upstream, error) { panic("unbuilt") }

// Stats is a snapshot.
func (u *Upstream) Stats() Stats { panic("unbuilt") }

// Close drops idle connections.
func (u *Upstream) Close() { panic("unbuilt") }
