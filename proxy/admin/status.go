package admin

import (
	"context"
	"net/http"
	"time"

	"weir/proxy"
)

// checkTime bounds the question to the store, so that a probe has its answer before it gives up.
const checkTime = 900 * time.Millisecond

// storeState is how the store does.
type storeState struct {
	State    string `json:"state"` // well | away
	Required bool   `json:"required"`
	Fault    string `json:"fault,omitempty"`
}

func (a *admin) store(ctx context.Context) storeState {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if err := a.Store.Check(ctx); err != nil {
		return storeState{State: "away", Required: a.Required, Fault: err.Error()}
	}
	return storeState{State: "well", Required: a.Required}
}

// readyz answers for load balancers. A store that is away does not make a replica unready unless it is required:
// requests are answered without it.
func (a *admin) readyz(w http.ResponseWriter, r *http.Request) {
	if a.Draining() {
		refuse(w, http.StatusServiceUnavailable, "draining: this replica is shutting down, ask another")
		return
	}
	s := a.store(r.Context())
	if s.State == "away" && a.Required {
		refuse(w, http.StatusServiceUnavailable, "the store is away and store.redis.required is true: bring it back; /api/status says what is wrong")
		return
	}
	s.Fault = "" // it may name addresses, and anybody may ask this
	answer(w, http.StatusOK, map[string]any{"ready": true, "store": s})
}

// overview is the body of /api/status.
type overview struct {
	Version   string     `json:"version"`
	Uptime    float64    `json:"uptime_seconds"`
	Draining  bool       `json:"draining"`
	Store     storeState `json:"store"`
	Gauges    gauges     `json:"gauges"`
	Upstreams any        `json:"upstreams"`
	Warm      any        `json:"warm"` // its jobs
}

// gauges is proxy.Gauges in the words of the metrics.
type gauges struct {
	Exchanges      int64 `json:"exchanges_running"`
	WaitingLocal   int64 `json:"waiting_local"`
	WaitingRemote  int64 `json:"waiting_remote"`
	FillsRunning   int64 `json:"fills_running"`
	RefreshDropped int64 `json:"refresh_dropped"`
	SpoolBytes     int64 `json:"spool_bytes"`
}

func (a *admin) status(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, overview{
		Version:   a.Version,
		Uptime:    time.Since(a.began).Seconds(),
		Draining:  a.Draining(),
		Store:     a.store(r.Context()),
		Gauges:    inWords(a.Handler.Gauges()),
		Upstreams: a.Status(),
		Warm:      a.Warmer.Jobs(),
	})
}

func inWords(g proxy.Gauges) gauges {
	return gauges{g.Exchanges, g.WaitingLocal, g.WaitingRemote, g.FillsRunning, g.RefreshDropped, g.SpoolBytes}
}
