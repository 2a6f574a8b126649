package warm

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"weir/policy"
	"weir/proxy"
	"weir/store"
)

// Handler is what warmers ask: a client's door, and their own.
type Handler interface {
	http.Handler
	Warm(ctx context.Context, r *http.Request, known uint64) (proxy.Warmed, error)
}

// Store is where replicas agree on who warms.
type Store interface {
	Take(ctx context.Context, key policy.Key, want store.Want) (store.Taken, error)
	Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (policy.Class, error)
	Release(ctx context.Context, lease store.Lease, out store.Outcome) error
	Await(ctx context.Context, held store.Lease) (store.Outcome, error)
	Watch(ctx context.Context, obey func(store.Event)) error
}

// Options is everything a Warmer needs.
type Options struct {
	Handler Handler
	Store   Store
	Log     *slog.Logger
}

// Job is how a job does on this replica.
type Job struct {
	Name        string    `json:"name"`
	Leads       bool      `json:"leads"` // this replica warms it
	Pages       int       `json:"pages"` // on the list; 0 where it does not lead
	Failing     int       `json:"failing"`
	Fetched     int64     `json:"fetched"` // since the start, as are failures
	Failures    int64     `json:"failures"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	Next        time.Time `json:"next,omitzero"` // when a page is due
}

// ErrNoJob: the file has no job of that name.
var ErrNoJob = errors.New("no job has this name")

// ErrResting: this replica is leaving.
var ErrResting = errors.New("warmers rest")

// Warmer keeps the pages of its jobs warm.
type Warmer struct {
	options Options
	life    context.Context // ends with Close
	close   context.CancelFunc
	work    sync.WaitGroup

	using    sync.Mutex // one Use or Close at a time
	watching bool       // guarded by using

	mu   sync.Mutex // never held while a job ends: the store's own line may wait for it in heed
	jobs []*job
}

// New makes a Warmer without jobs; Close ends it.
func New(o Options) *Warmer {
	w := &Warmer{options: o}
	w.life, w.close = context.WithCancel(context.Background())
	return w
}

// Use replaces the jobs: those that stay as they were go on, and none runs twice meanwhile.
func (w *Warmer) Use(configs []Config) {
	w.using.Lock()
	defer w.using.Unlock()
	if w.life.Err() != nil {
		return
	}
	jobs, ending := make([]*job, len(configs)), []*job{}
	for _, j := range w.running() {
		if i := slices.IndexFunc(configs, func(c Config) bool { return reflect.DeepEqual(c, j.config) }); i >= 0 {
			jobs[i] = j
		} else {
			j.stop()
			ending = append(ending, j)
		}
	}
	for _, j := range ending {
		j.end()
	}
	for i, c := range configs {
		if jobs[i] == nil {
			jobs[i] = begin(c, w.options)
		}
	}
	w.run(jobs)
	if len(jobs) > 0 && !w.watching {
		w.watching = true
		w.work.Go(func() { _ = w.options.Store.Watch(w.life, w.heed) })
	}
}

func (w *Warmer) run(jobs []*job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = jobs
}

func (w *Warmer) running() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs
}

// heed: after a purge, and after a time in which one may have been missed, pages are fetched before somebody asks.
func (w *Warmer) heed(e store.Event) {
	if e.Kind != store.PurgedNote && e.Kind != store.Healed {
		return
	}
	for _, j := range w.running() {
		j.purged(e.Selector.Page)
	}
}

// Close ends the jobs, and gives back what this replica leads. Fills that they have begun go on.
func (w *Warmer) Close() {
	w.close()
	w.using.Lock()
	defer w.using.Unlock()
	jobs := w.running()
	for _, j := range jobs {
		j.stop()
	}
	for _, j := range jobs {
		j.end()
	}
	w.run(nil)
	w.work.Wait()
}

// Jobs is how they do.
func (w *Warmer) Jobs() []Job {
	all := []Job{}
	for _, j := range w.running() {
		all = append(all, j.now())
	}
	return all
}

// Run brings every page of a job anew, fresh or not, from this replica, whoever leads: pages have leases of their own,
// and who leads sees what has come since. Tell is called after each page, by one at a time.
func (w *Warmer) Run(ctx context.Context, name string, tell func(Page)) error {
	jobs := w.running()
	i := slices.IndexFunc(jobs, func(j *job) bool { return j.config.Name == name })
	switch {
	case w.life.Err() != nil:
		return ErrResting
	case i < 0:
		return ErrNoJob
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	err := jobs[i].order(ctx, tell)
	if w.life.Err() != nil {
		return ErrResting
	}
	return err
}
