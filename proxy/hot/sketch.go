package hot

import (
	"container/heap"
	"math"
	"time"
)

// renewed: after so many windows the weights begin again at 1. A float64 would hold seven times that.
const renewed = 100

// sketch counts pages by Space-Saving (Metwally, Agrawal, El Abbadi 2005): when all its counters are taken, a new page
// gets the least one and goes on from its count, which is kept as what the page may have too much. So no page's count
// is too low; whatever makes up more than one part in size of all is there; and without what it may have too much, no
// count is too high.
//
// Counts decay with the window: they are what came in, each amount by exp(-age/window). Instead of all counts shrinking
// as time goes by, what comes later is given more weight (forward decay: Cormode and others 2009).
type sketch struct {
	size   int
	window time.Duration
	epoch  time.Time // when the weight was 1
	least  counters
	of     map[string]*counter
}

type counter struct {
	page  string
	count float64 // weighted, as over is
	over  float64 // at most so much of the count is another page's
	place int
}

func newSketch(size int, window time.Duration, now time.Time) sketch {
	return sketch{size: size, window: window, epoch: now, of: make(map[string]*counter, size)}
}

// weight is what 1 counts for now. It begins again before it is too much.
func (s *sketch) weight(now time.Time) float64 {
	w := math.Exp(float64(now.Sub(s.epoch)) / float64(s.window))
	if now.Sub(s.epoch) < renewed*s.window {
		return w
	}
	for _, c := range s.least {
		c.count /= w
		c.over /= w
	}
	s.epoch = now
	return 1
}

func (s *sketch) add(page string, amount float64, now time.Time) {
	amount *= s.weight(now)
	c := s.of[page]
	switch {
	case c != nil:
	case len(s.least) < s.size:
		c = &counter{page: page}
		s.of[page] = c
		heap.Push(&s.least, c)
	default:
		c = s.least[0]
		delete(s.of, c.page)
		c.page, c.over = page, c.count
		s.of[page] = c
	}
	c.count += amount
	heap.Fix(&s.least, c.place)
}

// sure is how much of each page there was for certain, of late.
func (s *sketch) sure(now time.Time) map[string]float64 {
	w := s.weight(now)
	all := make(map[string]float64, len(s.of))
	for page, c := range s.of {
		all[page] = (c.count - c.over) / w
	}
	return all
}

// counters are a heap, the least first.
type counters []*counter

func (c counters) Len() int           { return len(c) }
func (c counters) Less(i, j int) bool { return c[i].count < c[j].count }

func (c counters) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].place, c[j].place = i, j
}

// Push is for container/heap.
func (c *counters) Push(x any) {
	n := x.(*counter)
	n.place = len(*c)
	*c = append(*c, n)
}

// Pop is for container/heap; no counter is ever given back.
func (c *counters) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
