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

// Order is the body of /api/purge: exactly one selector, and how.
type Order struct {
	URL    string `json:"url,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Prefix string `json:"prefix,omitempty"` // of URLs, with a scheme or without: both schemes are meant
	Host   string `json:"host,omitempty"`   // without a port: all ports are meant
	Route  string `json:"route,omitempty"`  // its name in the file
	All    bool   `json:"all,omitempty"`
	Soft   bool   `json:"soft,omitempty"` // it may be served while it is refreshed, as grace allows
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
	// The purge goes on when its asker leaves: half of the replicas would be worse than all or none.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), purgeTime)
	defer cancel()
	done, err := a.carryOut(ctx, o)
	switch {
	case errors.Is(err, policy.ErrNoPage):
		refuse(w, http.StatusNotFound, "no route serves "+o.URL+": see routes in the file, and /api/explain")
	case errors.Is(err, policy.ErrNoRoute):
		refuse(w, http.StatusNotFound, "no route is called "+o.Route+": see routes in the file")
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "the store did not take the purge ("+err.Error()+"): purge again when it is back")
	default:
		answer(w, http.StatusOK, receiptOf(done, o))
	}
}

func (a *admin) carryOut(ctx context.Context, o Order) (store.Purged, error) {
	mode := store.Hard
	if o.Soft {
		mode = store.Soft
	}
	switch {
	case o.URL != "":
		return a.Handler.Purge(ctx, o.URL, mode)
	case o.Route != "":
		return a.Handler.PurgeRoute(ctx, o.Route, mode)
	}
	sel, err := o.selector()
	if err != nil {
		return store.Purged{}, err
	}
	return a.Store.Purge(ctx, sel, mode)
}

// selector is what the order names, if that can be told without asking the policy.
func (o Order) selector() (policy.Selector, error) {
	switch {
	case o.Prefix != "":
		return policy.PrefixOf(o.Prefix)
	case o.Host != "":
		return policy.HostOf(o.Host)
	}
	return policy.Selector{Tag: o.Tag, All: o.All}, nil
}

func receiptOf(p store.Purged, o Order) receipt {
	r := receipt{Replicas: p.Replicas, Soft: o.Soft}
	if p.Estimate >= 0 {
		r.Entries = &p.Estimate
	}
	return r
}

// readOrder is strict: a purge that is half understood purges the wrong thing.
func readOrder(body io.Reader) (Order, error) {
	var o Order
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf(`the body is no purge (%w): send {"url": "https://…"}, or tag, prefix, host, route or all instead, and, if it may be served stale meanwhile, "soft": true`, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return o, errors.New("the body goes on after the purge: send one at a time")
	}
	return o, o.check()
}

// check reports what is wrong with an order, before anybody is asked.
func (o Order) check() error {
	named := 0
	for _, is := range []bool{o.URL != "", o.Tag != "", o.Prefix != "", o.Host != "", o.Route != "", o.All} {
		if is {
			named++
		}
	}
	if named != 1 {
		return errors.New("name exactly one of url, tag, prefix, host, route and all")
	}
	if o.URL != "" {
		_, err := absolute(o.URL)
		return err
	}
	_, err := o.selector()
	return err
}

// String is what the order names.
func (o Order) String() string {
	for kind, value := range map[string]string{"tag ": o.Tag, "prefix ": o.Prefix, "host ": o.Host, "route ": o.Route} {
		if value != "" {
			return kind + value
		}
	}
	if o.All {
		return "all"
	}
	return o.URL
}
