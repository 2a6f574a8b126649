package warm

import (
	"context"
	"math"
	"sync"
	"time"

	"weir/policy"
	"weir/proxy"
)

// End says what became of a page.
type End string

const (
	Fetched End = "fetched" // it was brought anew, whole or confirmed
	Fresh   End = "fresh"   // it was left alone
	Unkept  End = "unkept"  // it cannot be kept
	Failed  End = "failed"
)

func endOf(got proxy.Warmed, err error) End {
	switch {
	case err != nil || got.Fault.Kind != 0:
		return Failed
	case got.Fetched:
		return Fetched
	case got.Reason == policy.Fresh:
		return Fresh
	}
	return Unkept
}

// whyOf is why nothing new is kept; "" when something is.
func whyOf(got proxy.Warmed, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case got.Fetched:
		return ""
	}
	return got.Reason.Meaning()
}

// Page is what a run tells of each page.
type Page struct {
	URL   string
	End   End
	Why   string // it is unkept or failed
	Done  int    // pages so far, this one included
	Pages int    // of the job
}

// order brings every page anew, as many at once as the job may.
func (j *job) order(ctx context.Context, tell func(Page)) error {
	urls, err := j.config.pages(ctx, j.Handler)
	if err != nil {
		return err
	}
	var (
		slots   = make(chan struct{}, j.config.Concurrency)
		workers sync.WaitGroup
		telling sync.Mutex
		told    int
	)
	for _, url := range urls {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		workers.Go(func() {
			defer func() { <-slots }()
			got, err := j.bring(ctx, url, math.MaxUint64)
			if ctx.Err() != nil {
				return
			}
			j.count(endOf(got, err), time.Now())
			telling.Lock()
			defer telling.Unlock()
			told++
			tell(Page{url, endOf(got, err), whyOf(got, err), told, len(urls)})
		})
	}
	workers.Wait()
	return ctx.Err()
}
