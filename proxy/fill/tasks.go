package fill

import "sync"

// tasks counts what runs. Unlike a WaitGroup it may be waited for while more begins: a drain does not stop the world.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closes when n falls to 0; nil: nobody waits
}

// Go runs f.
func (t *tasks) Go(f func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.end()
		f()
	}()
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Idle closes when nothing runs.
func (t *tasks) Idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	if t.n == 0 {
		close(t.idle)
		t.idle = nil
	}
	return idle
}
