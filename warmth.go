package main

import (
	"context"
	"errors"

	"weir/proxy/admin"
	"weir/proxy/telemetry"
	"weir/proxy/warm"
)

// warmer shows the admin port a Warmer: annexes do not know each other.
type warmer struct{ *warm.Warmer }

func (w warmer) Jobs() any { return w.Warmer.Jobs() }

func (w warmer) Run(ctx context.Context, name string, tell func(admin.Page)) error {
	names := []string{name}
	if name == "" {
		names = nil
		for _, j := range w.Warmer.Jobs() {
			names = append(names, j.Name)
		}
	}
	for _, job := range names {
		err := w.Warmer.Run(ctx, job, func(p warm.Page) {
			tell(admin.Page{Job: job, URL: p.URL, End: string(p.End), Why: p.Why, Done: p.Done, Pages: p.Pages})
		})
		switch {
		case errors.Is(err, warm.ErrNoJob):
			return admin.ErrNoJob
		case errors.Is(err, warm.ErrResting):
			return admin.ErrResting
		case err != nil:
			return err
		}
	}
	return nil
}

// warmth is how the jobs do, for the metrics.
func (r *replica) warmth() (jobs []telemetry.Job) {
	for _, j := range r.warmer.Jobs() {
		jobs = append(jobs, telemetry.Job{
			Name: j.Name, Leads: j.Leads, Pages: int64(j.Pages), Failing: int64(j.Failing), Fetched: j.Fetched, Failures: j.Failures,
		})
	}
	return jobs
}
