package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"weir/policy"
	"weir/store"
)

const (
	maxOrder  = 64 << 10         // bytes of a purge's body
	purgeTime = 10 * time.Second // a purge that takes longer was not taken
)

// order is the body of /api/purge: exactly one selector, and how.
type order struct {
	URL    string `json:"url,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Host   string `json:"host,omitempty"`
	Route  string `json:"route,omitempty"`
	All    bool   `json:"all,omitempty"`
	Soft   bool   `json:"soft,omitempty"`
}

// receipt is the answer to it.
type receipt struct {
	Entries  *int `json:"entries"`  // covered, about; null: unknown
	Replicas int  `json:"replicas"` // that have obeyed by now
	Soft     bool `json:"soft"`
}

func (a *admin) purge(w http.ResponseWriter, r *http.Request) {
	o, err := readOrder(http.MaxBytesReader(w, r.Body, maxOrder))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a purge names one thing, in at most %d bytes", maxOrder))
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if o.URL == "" && !o.All {
		refuse(w, http.StatusNotImplemented, "purging by tag, prefix, host or route does not work yet: purge by url, or all")
		return
	}
	// The purge goes on when its asker leaves: half of the replicas would be worse than all or none.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), purgeTime)
	defer cancel()
	done, err := a.carryOut(ctx, o)
	switch {
	case errors.Is(err, policy.ErrNoPage):
		refuse(w, http.StatusNotFound, "no route serves "+o.URL+": see routes in the file, and /api/explain")
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "the store did not take the purge ("+err.Error()+"): purge again when it is back")
	default:
		answer(w, http.StatusOK, receiptOf(done, o))
	}
}

func (a *admin) carryOut(ctx context.Context, o order) (store.Purged, error) {
	mode := store.Hard
	if o.Soft {
		mode = store.Soft
	}
	if o.All {
		return a.Store.Purge(ctx, policy.Selector{All: true}, mode)
	}
	return a.Handler.Purge(ctx, o.URL, mode)
}

func receiptOf(p store.Purged, o order) receipt {
	r := receipt{Replicas: p.Replicas, Soft: o.Soft}
	if p.Estimate >= 0 {
		r.Entries = &p.Estimate
	}
	return r
}

// readOrder is strict: a purge that is half understood purges the wrong thing.
func readOrder(body io.Reader) (order, error) {
	var o order
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf(`the body is no purge (%w): send {"url": "https://…"} and, if it may be served stale meanwhile, "soft": true`, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return o, errors.New("the body goes on after the purge: send one at a time")
	}
	named := 0
	for _, is := range []bool{o.URL != "", o.Tag != "", o.Prefix != "", o.Host != "", o.Route != "", o.All} {
		if is {
			named++
		}
	}
	if named != 1 {
		return o, errors.New("name exactly one of url, tag, prefix, host, route and all")
	}
	if o.URL != "" {
		if _, err := absolute(o.URL); err != nil {
			return o, err
		}
	}
	return o, nil
}
