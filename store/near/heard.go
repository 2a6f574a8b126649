package near

import (
	"hash/maphash"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

// heard is what was lately heard of some pages.
type heard struct {
	mu   sync.Mutex
	n    uint64 // how often
	last [8]news
}

// news: of this page, what was leased before then is the past.
type news struct {
	page string
	at   uint64
}

func (h *heard) hear(n news) {
	h.last[h.n%uint64(len(h.last))] = n
	h.n++
}

// isPast reports whether something was heard since then that makes an entry the past, or so much that it is not known.
func (h *heard) isPast(since uint64, e *store.Entry) bool {
	if h.n-since > uint64(len(h.last)) {
		return true
	}
	for i := since; i < h.n; i++ {
		if n := h.last[i%uint64(len(h.last))]; n.page == e.Key.Primary && e.Leased < n.at {
			return true
		}
	}
	return false
}

// asked is the moment before the far store is asked for something, and what had been heard of its page by then (R10).
type asked struct {
	heard *heard
	n     uint64
	wide  uint64
	at    time.Time
	key   policy.Key
	full  bool // it answered, and takes nothing: what was filled here meanwhile is later than what it has
}

// wide is how often something was heard of more than a page. What is inserted meanwhile waits for it to be obeyed: the
// memory store may forget a note once it has held to it all that is there.
type wide struct {
	mu sync.RWMutex
	n  uint64
}

func (w *wide) count() uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.n
}

func (s *Store) page(key policy.Key) *heard {
	return &s.heard[maphash.String(s.seed, key.Primary)%stripes]
}

func (s *Store) ask(key policy.Key) asked {
	h := s.page(key)
	h.mu.Lock()
	defer h.mu.Unlock()
	return asked{heard: h, n: h.n, wide: s.wide.count(), at: time.Now(), key: key}
}

// insert keeps an answer, unless it is the past by now. While the lock is held nothing is heard of the page.
func (s *Store) insert(e *store.Entry, a asked) {
	a.heard.mu.Lock()
	defer a.heard.mu.Unlock()
	s.wide.mu.RLock()
	defer s.wide.mu.RUnlock()
	if s.wide.n != a.wide || a.heard.isPast(a.n, e) {
		return
	}
	if held, _ := s.memory.Held(e.Key); held != nil && held.Unverified && !e.Unverified && !a.full {
		s.memory.Drop(e.Key, always) // whatever its date: the far store's word counts
	}
	s.memory.Insert(e, a.at)
}

// forget drops a copy of what is not in the far store any more.
func (s *Store) forget(a asked) {
	a.heard.mu.Lock()
	defer a.heard.mu.Unlock()
	if a.heard.n == a.n {
		s.memory.Drop(a.key, always)
	}
}

// obey does what is heard, then tells those who watch.
func (s *Store) obey(e store.Event) {
	if e.Kind == store.Silence || e.Kind == store.Healed {
		s.telling.Lock()
		defer s.telling.Unlock()
	}
	s.counts.hear(e.Kind)
	s.hear(e)
	s.watchers.Tell(e)
}

func (s *Store) hear(e store.Event) {
	switch e.Kind {
	case store.Replaced:
		h := s.page(e.Key)
		h.mu.Lock()
		h.hear(news{e.Key.Primary, e.At})
		s.memory.Drop(e.Key, e.At)
		h.mu.Unlock()
	case store.PurgedNote:
		if e.Selector.Page == "" {
			s.wide.mu.Lock()
			s.wide.n++
			s.memory.Obey(e.Selector, e.Mode, e.At)
			s.wide.mu.Unlock()
			break
		}
		h := s.page(policy.Key{Primary: e.Selector.Page})
		h.mu.Lock()
		h.hear(news{e.Selector.Page, e.At + 1}) // at or before it
		s.memory.Obey(e.Selector, e.Mode, e.At)
		h.mu.Unlock()
	case store.Silence:
		s.line.Store(&line{since: s.line.Load().since})
	case store.Healed:
		s.line.Store(&line{whole: true, since: time.Now()})
	}
}
