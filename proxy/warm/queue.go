package warm

import (
	"time"

	"weir/policy"
)

// page is a URL that is kept warm.
type page struct {
	url   string
	due   time.Time
	known uint64        // the Leased of what was seen of it last; 0: it is only to be looked at, should it be fresh
	pause time.Duration // after its last try, which failed; 0: it did not
	why   policy.Reason // it is not kept
	key   string        // what purges of it name; "": it has not been looked at
	gone  bool          // it was purged while it was being warmed
	tried bool
	place int // in the queue; -1: it is being warmed
}

// queue is a heap of pages, by when they are due (container/heap).
type queue []*page

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *queue) Push(p any) {
	p.(*page).place = len(*q)
	*q = append(*q, p.(*page))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	p.place, (*q)[last] = -1, nil
	*q = (*q)[:last]
	return p
}
