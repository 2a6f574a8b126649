package proxy

import (
	"time"

	"weir/policy"
	"weir/proxy/fill"
)

// Report is what one exchange did. Cache-Status, log, metrics and trace are printers of it.
type Report struct {
	Time            time.Time
	Client          string // address
	Method          string
	Scheme, Host    string
	Path            string // path and query, as received
	Proto           string
	Route, Upstream string
	Page            string // what is looked up: policy.Key's Primary; "": nothing is

	Action    policy.Action
	Reason    policy.Reason
	Detail    policy.Reason // why an answer was not stored, or what failed; None when neither
	Status    int
	FwdStatus int  // the upstream's, when this exchange caused or shared a request to it
	Collapsed bool // it was answered by a fill that another exchange or replica began
	Stored    bool // what it brought is kept
	Hit       bool // answered from what was kept, fresh or stale
	Age       time.Duration
	TTL       time.Duration // lifetime left; negative when stale. Only of a Hit

	Bytes      int64
	FirstByte  time.Duration // from arrival to the first byte written
	Duration   time.Duration
	Waited     time.Duration // for a fill
	States     []string      // the states it went through, in order
	StoreFault string        // the store verb that failed; "" when none did
	StoreWhy   policy.Reason // how: away, or refusing writes
	Aborted    bool          // the answer was cut: upstream truncated, or the client left
	Err        error
}

// Observer is told of every exchange and every fill, once each, when it has ended. Its methods must not block.
type Observer interface {
	Exchange(Report)
	Fill(fill.Report)
}

// Gauges is what is going on at this moment.
type Gauges struct {
	WaitingLocal   int64 // exchanges waiting for a fill of this process
	WaitingRemote  int64 // exchanges waiting for another replica's fill
	FillsRunning   int64
	RefreshDropped int64 // refreshes not started because too many run: a counter
	SpoolBytes     int64 // of bodies under way (R25)
	Exchanges      int64 // under way
}
