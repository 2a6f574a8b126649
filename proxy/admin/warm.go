package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Warmer is what admin asks to warm pages.
type Warmer interface {
	// Jobs is how those of this replica do, for /api/status.
	Jobs() any
	// Run brings every page of a job anew, of all jobs when its name is empty, and tells of each page, one at a time.
	// ErrNoJob: there is none of that name. ErrResting: this replica is leaving.
	Run(ctx context.Context, job string, tell func(Page)) error
}

// ErrNoJob and ErrResting are what a Warmer may answer with.
var (
	ErrNoJob   = errors.New("there is no such job")
	ErrResting = errors.New("this replica is leaving")
)

// Page is one line of the answer to /api/warm: what became of a page.
type Page struct {
	Job   string `json:"job"`
	URL   string `json:"url"`
	End   string `json:"end"`           // fetched, unkept or failed
	Why   string `json:"why,omitempty"` // it was not fetched
	Done  int    `json:"done"`          // pages of the job so far
	Pages int    `json:"pages"`         // of the job
}

// Warmed is the last line: how many pages ended how, or why it broke off.
type Warmed struct {
	Fetched int    `json:"fetched"`
	Unkept  int    `json:"unkept"`
	Failed  int    `json:"failed"`
	Fault   string `json:"fault,omitempty"`
}

func (w *Warmed) count(p Page) {
	switch p.End {
	case "fetched":
		w.Fetched++
	case "unkept":
		w.Unkept++
	default:
		w.Failed++
	}
}

// warmOrder is the body of /api/warm; without one all jobs are meant.
type warmOrder struct {
	Job string `json:"job"`
}

// lines writes JSON, one value to a line, each sent at once.
type lines struct {
	w     http.ResponseWriter
	begun bool
}

func (l *lines) say(v any) {
	control := http.NewResponseController(l.w)
	_ = control.SetWriteDeadline(time.Now().Add(askTime))
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
	}
	_ = json.NewEncoder(l.w).Encode(v) // who no longer reads has ended the request
	_ = control.Flush()
}

// warm tells of each page as it ends. It ends with its asker.
func (a *admin) warm(w http.ResponseWriter, r *http.Request) {
	var o warmOrder
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil && err != io.EOF {
		refuse(w, http.StatusBadRequest, fmt.Sprintf(`the body names no job (%v): send {"job": "…"}, or nothing for all of them`, err))
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it takes as long as the pages do
	out, sum := &lines{w: w}, Warmed{}
	err := a.Warmer.Run(r.Context(), o.Job, func(p Page) {
		sum.count(p)
		out.say(p)
	})
	switch {
	case out.begun || err == nil:
		if err != nil {
			sum.Fault = err.Error()
		}
		out.say(sum)
	case errors.Is(err, ErrNoJob):
		refuse(w, http.StatusNotFound, "no job is called "+o.Job+": see warm in the file, and /api/status")
	case errors.Is(err, ErrResting):
		refuse(w, http.StatusServiceUnavailable, "this replica is leaving: ask another")
	default:
		refuse(w, http.StatusBadGateway, "the pages cannot be read: "+err.Error())
	}
}

// Warm has a job's pages brought anew, or those of all jobs; tell is called with each as it ends.
func (c Client) Warm(ctx context.Context, job string, tell func(Page)) (sum Warmed, err error) {
	body, err := json.Marshal(warmOrder{job})
	if err != nil {
		return sum, err
	}
	r, err := c.question(ctx, http.MethodPost, "/api/warm", bytes.NewReader(body))
	if err != nil {
		return sum, err
	}
	res, err := c.send(r)
	if err != nil {
		return sum, err
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") != "application/x-ndjson" {
		return sum, understand(res, nil)
	}
	for d := json.NewDecoder(res.Body); ; {
		var line struct {
			Page
			*Warmed // made by any key of the last line
		}
		switch err := d.Decode(&line); {
		case err != nil:
			return sum, fmt.Errorf("the admin port's answer broke off (%w): is the replica still there? Warm again", err)
		case line.Warmed == nil:
			tell(line.Page)
		case line.Fault != "":
			return *line.Warmed, errors.New(line.Fault)
		default:
			return *line.Warmed, nil
		}
	}
}
