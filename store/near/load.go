package near

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

const (
	// small bodies come with their entry. Larger ones are fetched when they are read.
	small = 16 << 10
	// piece is how much of a body is read at once.
	piece = 1 << 20
	// atOnce is how many bodies are loaded at the same time; others are when they are next asked for.
	atOnce = 4
	// patience is how long one may take.
	patience = 30 * time.Second
)

// loads are the bodies that are on their way from the far store into copies.
type loads struct {
	mu      sync.Mutex
	running map[policy.Key]bool
	closed  bool
	work    sync.WaitGroup
}

// start loads in a goroutine, if there is room for one more.
func (l *loads) start(key policy.Key, load func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.running) == atOnce || l.running[key] {
		return
	}
	if l.running == nil {
		l.running = make(map[policy.Key]bool)
	}
	l.running[key] = true
	l.work.Go(func() {
		load()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, key)
	})
}

// stop waits for those that run.
func (l *loads) stop() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.work.Wait()
}

// known is the entry with the body that is here already, where it is the same.
func (s *Store) known(e *store.Entry) *store.Entry {
	held, _ := s.memory.Held(e.Key)
	if held == nil || held.Leased != e.Leased || held.Kind != e.Kind || held.Body == nil {
		return e
	}
	c := *e
	c.Body = held.Body
	return &c
}

// keep makes a copy of an entry, with its whole body, or none: what lies in pieces stays in the far store. A large body
// is loaded behind the answer's back.
func (s *Store) keep(e *store.Entry, a asked) {
	if _, here := e.Body.(store.Bytes); here || e.Body == nil {
		s.insert(e, a)
		return
	}
	size := e.Body.Size()
	if !s.memory.Fits(size) || size > 0 && !slices.Equal(e.Body.Spans(), []policy.Span{{Start: 0, End: size}}) {
		return
	}
	if size <= small {
		s.load(e, a)
		return
	}
	s.loads.start(e.Key, func() { s.load(e, a) })
}

func (s *Store) load(e *store.Entry, a asked) {
	ctx, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	body := store.Bytes{}
	for off, size := int64(0), e.Body.Size(); off < size; off += piece {
		p := make([]byte, min(piece, size-off))
		if n, _ := e.Body.ReadAt(ctx, p, off); n < len(p) {
			return
		}
		body = append(body, p)
	}
	c := *e
	c.Body = body
	s.insert(&c, a)
}
