package warm

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weir/policy"
	"weir/proxy"
)

const (
	// A file is read again so often, and a sitemap, which costs the upstream something.
	readFile    = time.Minute
	readSitemap = time.Hour
	// settled is how long after a purge the pages are looked at: purges come in numbers.
	settled = time.Second
)

// job keeps the pages of one list warm while this replica leads it.
type job struct {
	config Config
	Options

	stop  context.CancelFunc
	ended chan struct{}
	again chan struct{} // holds one: pages are doubted

	mu      sync.Mutex
	state   Job
	pages   map[string]*page
	queue   queue
	doubted map[string]bool // what was purged since pages were last looked at: pages by key; "" is all
	round   round
}

// round is the first of them, after which all pages are warm.
type round struct {
	began   time.Time
	listed  bool
	untried int
	over    bool
}

// manyDoubts are so many single pages purged at once that all may as well be looked at.
const manyDoubts = 1000

// begin takes part in the election until stop is called.
func begin(c Config, o Options) *job {
	ctx, stop := context.WithCancel(context.Background())
	j := &job{config: c, Options: o, stop: stop, ended: make(chan struct{}), again: make(chan struct{}, 1), state: Job{Name: c.Name}}
	go func() {
		defer close(j.ended)
		leader{store: o.Store, key: policy.Key{Primary: "warm:" + c.Name}, work: j.work}.run(ctx)
	}()
	return j
}

// end returns when nothing of the job runs any more.
func (j *job) end() {
	j.stop()
	<-j.ended
}

// work keeps the pages warm until ctx ends. Each is fetched when it is due, so many at once; a page that fails is due
// again when its pause is over.
func (j *job) work(ctx context.Context) {
	j.enter()
	defer j.leave()
	lists, done, running := make(chan []string), make(chan *page), 0
	var reader sync.WaitGroup
	reader.Go(func() { j.read(ctx, lists) })
	defer reader.Wait()
	for {
		var due <-chan time.Time
		if at, any := j.next(); any && running < j.config.Concurrency {
			due = time.After(time.Until(at))
		}
		select {
		case list := <-lists:
			j.list(list)
		case <-j.again:
			j.lookAgain()
		case <-due:
			running++
			p := j.take()
			go func() {
				j.warm(ctx, p)
				done <- p
			}()
		case p := <-done:
			running--
			j.put(p)
		case <-ctx.Done():
			for ; running > 0; running-- {
				<-done
			}
			return
		}
	}
}

func (j *job) enter() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Leads, j.pages, j.queue, j.doubted, j.round = true, map[string]*page{}, nil, nil, round{began: time.Now()}
}

func (j *job) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Leads, j.pages, j.queue = false, nil, nil
}

// read reads the list, and again from time to time where it may change.
func (j *job) read(ctx context.Context, lists chan<- []string) {
	next, failed := time.Duration(0), time.Duration(0)
	for ctx.Err() == nil {
		list, err := j.config.pages(ctx, j.Handler)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed == 0 {
				j.Log.Warn("the pages to warm cannot be read", "job", j.config.Name, "fault", err.Error())
			}
			failed = policy.Pause(policy.Fault{}, failed)
			next = failed
		default:
			failed, next = 0, readFile
			if j.config.Sitemap != "" {
				next = readSitemap
			}
			select {
			case lists <- list:
			case <-ctx.Done():
			}
			if j.config.Sitemap == "" && j.config.File == "" {
				return
			}
		}
		pause(ctx, next)
	}
}

// list takes over a list: what is new is due at once, in the order of the list, what is not on it is forgotten.
func (j *job) list(urls []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, first := j.pages, time.Now().Add(-time.Duration(len(urls)))
	j.pages = make(map[string]*page, len(urls))
	for i, url := range urls {
		p := before[url]
		if p == nil {
			p = &page{url: url, due: first.Add(time.Duration(i))}
			heap.Push(&j.queue, p)
			j.round.untried++
		}
		j.pages[url] = p
	}
	for url, p := range before {
		if j.pages[url] != nil {
			continue
		}
		if p.place >= 0 {
			heap.Remove(&j.queue, p.place)
		}
		j.tried(p)
	}
	if !j.round.listed {
		j.round.listed = true
		j.Log.Info("warming", "job", j.config.Name, "pages", len(j.pages))
	}
}

// tried counts a page of the first round that has been tried, or need not be any more. The caller holds the lock.
func (j *job) tried(p *page) {
	if p.tried {
		return
	}
	p.tried = true
	if j.round.untried--; j.round.untried == 0 && !j.round.over {
		j.round.over = true
		j.Log.Info("warm", "job", j.config.Name, "pages", len(j.pages), "failing", j.failing(), "took", time.Since(j.round.began).String())
	}
}

// purged notes what is to be looked at: a page by its key, or all ("").
func (j *job) purged(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.doubted == nil {
		j.doubted = map[string]bool{}
	}
	if len(j.doubted) >= manyDoubts {
		key = ""
	}
	j.doubted[key] = true
	select {
	case j.again <- struct{}{}:
	default: // it is to look already
	}
}

// lookAgain has the pages that may have been purged looked at soon: fetched, unless they are fresh. What was not kept
// anyway is left to its time, and what is being warmed may have been looked at before the purge.
func (j *job) lookAgain() {
	j.mu.Lock()
	defer j.mu.Unlock()
	soon := time.Now().Add(settled)
	for _, p := range j.pages {
		switch {
		case !j.doubted[""] && !j.doubted[p.key]:
		case p.place < 0:
			p.gone = true
		default:
			p.doubt(soon)
		}
	}
	j.doubted = nil
	heap.Init(&j.queue)
}

// doubt has a page looked at by then.
func (p *page) doubt(by time.Time) {
	if p.pause == 0 && p.known != 0 && p.due.After(by) {
		p.known, p.due = 0, by
	}
}

// next is when the first page is due.
func (j *job) next() (at time.Time, any bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		return at, false
	}
	return j.queue[0].due, true
}

func (j *job) take() *page {
	j.mu.Lock()
	defer j.mu.Unlock()
	return heap.Pop(&j.queue).(*page)
}

// put queues a page again, unless it was taken off the list meanwhile.
func (j *job) put(p *page) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.gone {
		p.gone = false
		p.doubt(time.Now().Add(settled))
	}
	if j.pages[p.url] == p {
		heap.Push(&j.queue, p)
	}
}

// warm brings one page.
func (j *job) warm(ctx context.Context, p *page) {
	got, err := j.bring(ctx, p.url, p.known)
	if ctx.Err() == nil { // else it was not the page's doing
		j.settle(p, got, err)
	}
}

// bring asks for a page. A fault of ours in it is this page's failure, and not the process's end.
func (j *job) bring(ctx context.Context, url string, known uint64) (got proxy.Warmed, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	r, err := request(ctx, url, j.config.header())
	if err != nil {
		return got, err
	}
	return j.Handler.Warm(ctx, r, known)
}

// settle says when the page is due next, and counts.
func (j *job) settle(p *page, got proxy.Warmed, err error) {
	now, end := time.Now(), endOf(got, err)
	j.count(end, now)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tell(p, got, err)
	if got.Page != "" {
		p.key = got.Page
	}
	switch end {
	case Failed:
		p.pause = policy.Pause(got.Fault, p.pause)
		p.due = now.Add(p.pause + rand.N(p.pause/4)) // pages that failed together do not come back together
	case Unkept:
		p.pause, p.known = 0, 0
		p.due = j.config.Every.after(policy.Stored{Response: policy.Response{Arrived: now}, FreshUntil: now}, rand.Float64())
	default:
		p.pause, p.known = 0, got.Kept.Leased
		p.due = j.config.Every.after(got.Kept, rand.Float64())
	}
	j.tried(p)
}

// tell logs what has changed: a page that fails, is well again, or turns out not to be kept.
func (j *job) tell(p *page, got proxy.Warmed, err error) {
	switch end := endOf(got, err); {
	case end == Failed && p.pause == 0:
		j.Log.Warn("a page is not warmed", "job", j.config.Name, "url", p.url, "fault", whyOf(got, err))
	case end == Unkept && p.why != got.Reason:
		j.Log.Warn("a page cannot be kept warm", "job", j.config.Name, "url", p.url, "reason", got.Reason.String())
	case end != Failed && p.pause > 0:
		j.Log.Info("a page is warmed again", "job", j.config.Name, "url", p.url)
	}
	p.why = got.Reason
}

func (j *job) count(end End, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch end {
	case Fetched:
		j.state.Fetched++
		j.state.LastSuccess = now
	case Failed:
		j.state.Failures++
	}
}

// now is how it does.
func (j *job) now() Job {
	at, any := j.next()
	j.mu.Lock()
	defer j.mu.Unlock()
	state := j.state
	state.Pages, state.Failing = len(j.pages), j.failing()
	if any {
		state.Next = at
	}
	return state
}

// failing is how many pages have failed when they were last tried. The caller holds the lock.
func (j *job) failing() (n int) {
	for _, p := range j.pages {
		if p.pause > 0 {
			n++
		}
	}
	return n
}
