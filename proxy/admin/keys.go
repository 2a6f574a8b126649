package admin

import (
	"context"
	"net/http"
	"net/url"
)

// Keys is the answer to /api/keys: the pages that are hottest on this replica, by what was asked for.
type Keys struct {
	Sort string `json:"sort"`
	Keys []Key  `json:"keys"`
}

// Key is one page, and how it does; the figures are of about the last minute.
type Key struct {
	URL      string  `json:"url"`
	Upstream string  `json:"upstream"`
	Requests float64 `json:"requests_per_second"`
	HitShare float64 `json:"hit_share"`           // of the requests, from 0 to 1
	Misses   float64 `json:"misses_per_second"`   // requests that were not hits
	Busy     float64 `json:"upstream_time_share"` // seconds of fetching in each second: so many of the upstream's slots
}

func (a *admin) keys(w http.ResponseWriter, r *http.Request) {
	by := "hits"
	if q := r.URL.Query(); q.Has("sort") {
		by = q.Get("sort")
	}
	switch by {
	case "hits", "misses", "upstream_time":
		answer(w, http.StatusOK, Keys{by, a.Keys(by)})
	default:
		refuse(w, http.StatusBadRequest, "sort is one of hits, misses, upstream_time: ask for /api/keys?sort=misses")
	}
}

// Keys asks which pages are hottest; sort "" is by hits.
func (c Client) Keys(ctx context.Context, sort string) (k Keys, err error) {
	path := "/api/keys"
	if sort != "" {
		path += "?sort=" + url.QueryEscape(sort)
	}
	r, err := c.question(ctx, http.MethodGet, path, nil)
	if err != nil {
		return k, err
	}
	return k, c.ask(r, &k)
}
