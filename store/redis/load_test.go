package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// load is replicas that fill, read and purge a few pages as fast as they can, while something happens to Redis. Each
// body names its page.
type load struct {
	*testing.T
	replicas []*Store
	pages    int
	work     sync.WaitGroup
	stop     context.CancelFunc

	mu     sync.Mutex
	purged map[policy.Key]uint64 // when the last purge that was acknowledged was
	errors map[string]int
	done   atomic.Int64 // rounds that met no error
}

func startLoad(t *testing.T, pages int, replicas ...*Store) *load {
	l := &load{T: t, replicas: replicas, pages: pages, purged: make(map[policy.Key]uint64), errors: make(map[string]int)}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	l.stop = stop
	t.Cleanup(l.end)
	for n := range pages {
		for i, r := range replicas {
			l.work.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					l.round(ctx, r, fmt.Sprintf("%d/%d/%d", n, i, round))
				}
			})
		}
	}
	return l
}

// end stops it, and tells what it met.
func (l *load) end() {
	l.stop()
	l.work.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Logf("%d rounds without an error; errors: %v", l.done.Load(), l.errors)
}

// goesOn waits until every page was read, filled and purged again by somebody.
func (l *load) goesOn() {
	l.Helper()
	want := l.done.Load() + int64(20*l.pages*len(l.replicas))
	eventually(l, "the load goes on", func() bool { return l.done.Load() >= want })
}

// body is long enough for a segment on every other page.
func (l *load) body(name string) string {
	page, _, _ := strings.Cut(name, "/")
	if strings.HasSuffix(page, "1") {
		return strings.Repeat(name+" ", 2*inlineSize/len(name))
	}
	return name + " "
}

func (l *load) round(ctx context.Context, r *Store, name string) {
	n, _, _ := strings.Cut(name, "/")
	key := page(n)
	l.mu.Lock()
	purged := l.purged[key]
	l.mu.Unlock()
	got, err := r.Take(ctx, key, want(name))
	if got.Entry != nil {
		l.check(ctx, n, got.Entry)
		if got.Entry.Leased <= purged {
			l.Errorf("page %s, leased at %d, after its purge at %d was acknowledged", n, got.Entry.Leased, purged)
		}
	}
	if got.Lease != nil {
		err = errors.Join(err, r.Commit(ctx, *got.Lease, write(key, answer(l.body(name), long))))
	} else if got.Entry != nil && err == nil {
		var p store.Purged
		if p, err = r.Purge(ctx, policy.Selector{Page: key.Primary}, store.Hard); err == nil {
			l.mu.Lock()
			l.purged[key] = max(l.purged[key], p.At)
			l.mu.Unlock()
		}
	}
	l.met(ctx, err)
	<-time.After(time.Millisecond) // as an open breaker answers at once
}

// check: a body is its own page's, whole, or the reader is told that it cannot be had.
func (l *load) check(ctx context.Context, n string, e *store.Entry) {
	p := make([]byte, e.Body.Size())
	if got, err := e.Body.ReadAt(ctx, p, 0); got < len(p) {
		l.met(ctx, err)
		return
	}
	name, _, _ := strings.Cut(string(p), " ")
	if !strings.HasPrefix(name, n+"/") || string(p) != l.body(name) {
		l.Errorf("page %s has the body %.40q…", n, p)
	}
}

// met counts the errors that a user of the store may meet.
func (l *load) met(ctx context.Context, err error) {
	switch {
	case err == nil:
		l.done.Add(1)
		return
	case ctx.Err() != nil:
		return
	case !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrReadOnly) && !errors.Is(err, store.ErrLost) && !errors.Is(err, errGone):
		l.Errorf("met %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := err.Error()
	l.errors[text[:min(len(text), 400)]]++
}
