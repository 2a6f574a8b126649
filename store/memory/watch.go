package memory

import (
	"context"
	"fmt"
	"sync"

	"weir/store"
)

// watchers are those who are told of events.
type watchers struct {
	mu   sync.Mutex
	list map[*watcher]struct{}
}

type watcher struct {
	obey  func(store.Event)
	calls sync.WaitGroup
}

// tell returns when all have obeyed. They are called without a lock, so that they may use the store.
func (w *watchers) tell(e store.Event) {
	w.mu.Lock()
	told := make([]*watcher, 0, len(w.list))
	for one := range w.list {
		one.calls.Add(1)
		told = append(told, one)
	}
	w.mu.Unlock()
	for _, one := range told {
		one.obey(e)
		one.calls.Done()
	}
}

// Watch tells obey of events until ctx ends or the store is closed, and returns when no call of it is under way.
func (s *Store) Watch(ctx context.Context, obey func(store.Event)) error {
	one := &watcher{obey: obey}
	s.watchers.mu.Lock()
	if s.watchers.list == nil {
		s.watchers.list = make(map[*watcher]struct{})
	}
	s.watchers.list[one] = struct{}{}
	s.watchers.mu.Unlock()
	defer one.calls.Wait()
	defer func() {
		s.watchers.mu.Lock()
		defer s.watchers.mu.Unlock()
		delete(s.watchers.list, one)
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("watch: %w", ctx.Err())
	case <-s.closed:
		return fmt.Errorf("watch: %w", s.refused())
	}
}
