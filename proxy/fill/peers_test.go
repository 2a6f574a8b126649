package fill

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A holder whose connections break is gone as long as a lease of its may be left; who holds leases after that is not.
func TestBrokenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		is := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Errorf("%s: gone %v, want %v", what, got, want)
			}
		}
		is("a stranger refuses", p.refused("a"), false)
		is("a stranger breaks off", p.broke("b"), true)
		is("and then refuses", p.refused("b"), true)
		p.meet("a")
		is("one that has answered refuses", p.refused("a"), true)
		time.Sleep(leaseTTL - 1)
		is("within its leases' time", p.refused("a"), true)
		is("likewise", p.broke("b"), true)
		time.Sleep(time.Nanosecond)
		is("after it", p.refused("a"), false)
		is("likewise", p.broke("a"), false)
		is("likewise", p.broke("b"), false)
		time.Sleep(time.Hour)
		is("much later", p.broke("b"), false)
		p.meet("b")
		is("it had answered again", p.broke("b"), true)
		for i := range 2 * maxPeers {
			p.meet(fmt.Sprint(i))
		}
		if n := len(p.known); n > maxPeers {
			t.Errorf("%d are remembered", n)
		}
	})
}
