package store

import (
	"context"
	"sync"
)

// Watchers are those who are told of a store's events.
type Watchers struct {
	mu   sync.Mutex
	list map[*watcher]struct{}
}

type watcher struct {
	obey  func(Event)
	calls sync.WaitGroup
}

// Tell returns when all have obeyed. They are called without a lock, so that they may use the store.
func (w *Watchers) Tell(e Event) {
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

// Watching is one who wants to be told, and what a store has to say of itself at the beginning.
type Watching struct {
	Obey  func(Event)
	Begin func() // runs once Obey is among those who are told
}

// Watch has one told of events until ctx ends or the store is closed, and returns when no call is under way.
func (w *Watchers) Watch(ctx context.Context, closed <-chan struct{}, who Watching) {
	one := &watcher{obey: who.Obey}
	w.mu.Lock()
	if w.list == nil {
		w.list = make(map[*watcher]struct{})
	}
	w.list[one] = struct{}{}
	w.mu.Unlock()
	defer one.calls.Wait()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.list, one)
	}()
	who.Begin()
	select {
	case <-ctx.Done():
	case <-closed:
	}
}
