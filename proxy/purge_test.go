package proxy

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

// purge fails the test when the store does not take it.
func (w *world) purge(sel policy.Selector, mode store.Mode) {
	w.t.Helper()
	if _, err := w.store.Purge(w.t.Context(), sel, mode); err != nil {
		w.t.Fatal(err)
	}
}

var pageP = policy.Selector{Page: "api http://example.com/p"}

// dawdler is a store whose waiters learn a moment late how a lease has ended: somebody else has the next one by then.
type dawdler struct{ store.Store }

func (d dawdler) Await(ctx context.Context, held store.Lease) (store.Outcome, error) {
	out, err := d.Store.Await(ctx, held)
	time.Sleep(time.Millisecond)
	return out, err
}

// R21: who waits while the page is purged again and again has its answer in the end: such turns do not count.
func TestTurnsThatAPurgeEndsDoNotCount(t *testing.T) {
	for mode := range store.MustValidate + 1 {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			inWorld(t, setup{replicas: 2, store: func(s store.Store) store.Store { return dawdler{s} }}, func(w *world) {
				w.up.on("/p", after(10*time.Second, respond(200, "Cache-Control: max-age=60")))
				others := []<-chan result{w.client(0, "GET", "/p")}
				synctest.Wait()
				patient := w.client(1, "GET", "/p")
				for range 5 {
					time.Sleep(time.Second)
					w.purge(pageP, mode)
					others = append(others, w.client(0, "GET", "/p"))
				}
				r := <-patient
				w.want("who waited", r, 200, "*", "collapsed")
				for _, c := range others {
					w.want("the others", <-c, 200, "*", "")
				}
				w.want("stored", w.get("/p"), 200, r.Body.String(), "hit")
			})
		})
	}
}
