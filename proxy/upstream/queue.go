package upstream

import (
	"slices"
	"sync"
	"sync/atomic"

	"weir/policy"
)

// queue hands out an upstream's slots: to the best class that waits, and within a class in order of arrival (R26). When
// it is full, a better one takes the place of the last of the worst.
type queue struct {
	most int

	mu      sync.Mutex
	free    int
	waiting []*Place // in order of arrival
}

// Place is somebody's place in the queue; it is for one Enter.
type Place struct {
	best atomic.Uint32 // class
	turn chan bool     // true: it has a slot; false: it gave way
}

// At is a place of that class.
func At(class policy.Class) *Place {
	p := &Place{turn: make(chan bool, 1)}
	p.best.Store(uint32(class))
	return p
}

// Raise moves a place forward, as somebody better waits for it now. It may be called at any time, and never moves it back.
func (p *Place) Raise(class policy.Class) {
	for now := p.best.Load(); uint32(class) < now; now = p.best.Load() {
		if p.best.CompareAndSwap(now, uint32(class)) {
			return
		}
	}
}

// Class is the best so far.
func (p *Place) Class() policy.Class { return policy.Class(p.best.Load()) }

// take gets a slot now, or has the place wait for its turn, or neither: then the queue is full.
func (q *queue) take(p *Place) (now, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free > 0 {
		q.free--
		return true, false
	}
	if p.Class() == policy.EarlyWaits {
		return false, false // dropped, not queued
	}
	if len(q.waiting) >= q.most {
		last := q.pick(func(than, of policy.Class) bool { return of >= than })
		if last < 0 || q.waiting[last].Class() <= p.Class() {
			return false, false
		}
		q.call(last).turn <- false
	}
	q.waiting = append(q.waiting, p)
	return false, true
}

// release gives a slot to whose turn it is.
func (q *queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.pick(func(than, of policy.Class) bool { return of < than }); first >= 0 {
		q.call(first).turn <- true
		return
	}
	q.free++
}

// leave ends a wait; a slot that came meanwhile goes to the next.
func (q *queue) leave(p *Place) {
	q.mu.Lock()
	i := slices.Index(q.waiting, p)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 && <-p.turn {
		q.release()
	}
}

// pick finds the one that goes before all others, told by their classes; -1: nobody waits.
func (q *queue) pick(before func(than, of policy.Class) bool) (at int) {
	at = -1
	for i, p := range q.waiting {
		if at < 0 || before(q.waiting[at].Class(), p.Class()) {
			at = i
		}
	}
	return at
}

// call takes one out of the queue.
func (q *queue) call(i int) *Place {
	p := q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return p
}
