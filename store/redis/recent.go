package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

const (
	// lag is how far behind a Redis may be that takes over from another.
	lag = time.Minute
	// mostRecent bounds what is remembered of purges; the oldest go first.
	mostRecent = 4096
	// longestFill is as long as anybody lets one run.
	longestFill = time.Hour
	// batch is how many steps are replayed in one go.
	batch = 1024
)

// recent are the purges of the last minute, and those that Redis did not take. One that comes back without them, as after a
// failover or from an older dump, is told them again before it is trusted (R11).
type recent struct {
	mu    sync.Mutex
	list  []past
	pages map[string]int // how many of them are about a page: of most pages there is none
}

type past struct {
	sel   policy.Selector
	mode  store.Mode
	at    uint64 // store time
	heard time.Time
	taken bool // by Redis
}

func (r *recent) add(p past) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.heard = time.Now()
	alike := func(old past) bool { return old.sel == p.sel && old.mode == p.mode && old.at <= p.at }
	dates := 0 // of soft purges of the same, before this
	for _, old := range r.list {
		if p.mode == store.Soft && old.at < p.at && alike(old) {
			dates++
		}
	}
	r.list = slices.DeleteFunc(r.list, func(old past) bool {
		same := alike(old)
		if same && p.mode == store.Soft && old.at < p.at { // an entry's windows begin with the first that is about it
			same = dates >= store.Softs
			dates--
		}
		// While Redis takes nothing, nothing that it may have lost is too old.
		goes := same || p.taken && old.taken && p.heard.Sub(old.heard) > lag
		if goes {
			r.count(old, -1)
		}
		return goes
	})
	if len(r.list) == mostRecent {
		r.count(r.list[0], -1)
		r.list = r.list[1:]
	}
	r.list = append(r.list, p)
	r.count(p, 1)
}

func (r *recent) count(p past, n int) {
	if p.sel.Page == "" {
		return
	}
	if r.pages == nil {
		r.pages = make(map[string]int)
	}
	if r.pages[p.sel.Page] += n; r.pages[p.sel.Page] == 0 {
		delete(r.pages, p.sel.Page)
	}
}

// about are those about a page.
func (r *recent) about(page string) (said []store.Said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pages[page] == 0 {
		return nil
	}
	for _, p := range r.list {
		if p.sel.Page == page {
			said = append(said, store.Says(p.mode, p.at))
		}
	}
	return said
}

// errForgotten: Redis answers what it would not if it remembered a purge.
var errForgotten = errors.New("its purge is forgotten")

// forgotten reports whether an entry was purged and Redis does not know: it came back without that, and this replica has
// not told it yet (R11). Such an entry counts as absent, whatever the mode: that costs a fetch.
func (s *Store) forgotten(e *store.Entry, r reply) bool {
	for _, said := range append(s.recent.about(e.Key.Primary), s.notes.About(e.Key, &e.Stored)) {
		switch {
		case e.Leased <= said.Hard:
			return true
		case e.Kind == policy.Signpost: // the other modes leave it
		case e.Leased <= said.Soft[0] && r.int(takenDated) == 0, e.Leased <= said.MustValidate && r.int(takenBound) == 0:
			return true
		}
	}
	return false
}

func (r *recent) all() []past {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// remember keeps a purge for a Redis that forgets it, and for fills that run.
func (s *Store) remember(p past) {
	s.recent.add(p)
	if p.sel.Page != "" {
		return // the lease tells
	}
	s.notes.Add(p.sel, p.mode, p.at)
	if s.notes.Len() > mostRecent {
		s.notes.Forget(s.Now() - uint64(longestFill.Microseconds()))
	}
}

// replay tells Redis the recent purges again, with the dates that they had. Those that are news to it are rung, too.
func (s *Store) replay(ctx context.Context) error {
	var calls []call
	for _, p := range s.recent.all() {
		calls = append(calls, s.again(p)...)
	}
	for part := range slices.Chunk(calls, batch) {
		_, err := s.pipe(ctx, part)
		if errors.Is(err, store.ErrReadOnly) {
			return nil // it is as good as it will be
		}
		if err != nil {
			return fmt.Errorf("purges told again: %w", err)
		}
	}
	return nil
}

// again are the steps that write a note once more.
func (s *Store) again(p past) (calls []call) {
	note := noteOf(p.sel, p.mode)
	ring := s.bell.message(message{Purge: &note})
	if p.sel.Page != "" {
		return []call{s.pageStep(note, p.at, ring)}
	}
	tags := s.everywhere()
	for i, n := range tags {
		if i < len(tags)-1 {
			calls = append(calls, s.noteStep(n, note, dating{at: p.at}, nil))
		} else {
			calls = append(calls, s.noteStep(n, note, dating{at: p.at}, ring))
		}
	}
	return calls
}
