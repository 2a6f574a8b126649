package hot

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"weir/proxy"
	"weir/proxy/fill"
)

const (
	// window is how long an amount counts: what was a minute ago counts for a third, what was five minutes ago for nothing.
	window = time.Minute
	// counted is how many pages each sketch counts: ten for each one that is shown.
	counted = 1000
	// longest: longer names are not counted. They would be most of the memory, and are nobody's idea of a hot page.
	longest = 1 << 10
)

// By says what makes a page hot.
type By string

const (
	Hits         By = "hits"
	Misses       By = "misses"
	UpstreamTime By = "upstream_time"
)

// Page is one page, and how it did of late. In what it is not among the first it may be told too low, down to 0.
type Page struct {
	Name   string  // policy.Key's Primary
	Hits   float64 // a second
	Misses float64 // a second: what was not answered from what is kept
	// Upstream is how many seconds of each its fetches took: as many of the upstream's slots it keeps busy.
	Upstream float64
}

// Pages finds the hot ones. It is a proxy.Observer, and safe for concurrent use.
type Pages struct {
	began                  time.Time
	hits, misses, upstream *tally
}

var _ proxy.Observer = (*Pages)(nil)

// New begins to count.
func New() *Pages {
	now := time.Now()
	return &Pages{now, newTally(now), newTally(now), newTally(now)}
}

// Exchange implements proxy.Observer. What went straight through, or was refused, is about no page.
func (p *Pages) Exchange(r proxy.Report) {
	switch {
	case r.Page == "" || len(r.Page) > longest:
	case r.Hit:
		p.hits.add(r.Page, 1)
	default:
		p.misses.add(r.Page, 1)
	}
}

// Fill implements proxy.Observer. What another replica has fetched, that one counts.
func (p *Pages) Fill(r fill.Report) {
	if r.Page != "" && len(r.Page) <= longest && r.Requests > 0 {
		p.upstream.add(r.Page, (r.Total - r.Queued).Seconds())
	}
}

// Top are the n pages of which there is most, the most first.
func (p *Pages) Top(by By, n int) []Page {
	now := time.Now()
	// A count's sum of weights is a rate's times this; less while nothing is as old as the window.
	seconds := window.Seconds() * -math.Expm1(-max(now.Sub(p.began), time.Second).Seconds()/window.Seconds())
	hits, misses, upstream := p.hits.sure(now), p.misses.sure(now), p.upstream.sure(now)
	most := map[By]map[string]float64{Hits: hits, Misses: misses, UpstreamTime: upstream}[by]
	names := slices.SortedFunc(maps.Keys(most), func(a, b string) int {
		return cmp.Or(cmp.Compare(most[b], most[a]), cmp.Compare(a, b))
	})
	var top []Page
	for _, name := range names[:min(n, len(names))] {
		top = append(top, Page{name, hits[name] / seconds, misses[name] / seconds, upstream[name] / seconds})
	}
	return top
}
