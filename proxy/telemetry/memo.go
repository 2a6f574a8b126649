package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// memo remembers what was made for a key. Reading takes no lock and allocates nothing: a sync.Map would allocate the key.
// Writing copies the whole, which the first sight of a combination can afford.
type memo[K comparable, V any] struct {
	make  func(K) V
	limit int // what is beyond is made anew each time
	made  atomic.Pointer[map[K]V]
	mu    sync.Mutex // serialises writers
}

func newMemo[K comparable, V any](limit int, make func(K) V) *memo[K, V] {
	m := &memo[K, V]{make: make, limit: limit}
	m.made.Store(&map[K]V{})
	return m
}

func (m *memo[K, V]) of(k K) V {
	if v, ok := (*m.made.Load())[k]; ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.made.Load()
	v, ok := old[k]
	if ok {
		return v
	}
	v = m.make(k)
	if len(old) < m.limit {
		grown := maps.Clone(old)
		grown[k] = v
		m.made.Store(&grown)
	}
	return v
}
