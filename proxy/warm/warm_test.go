package warm

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

// A page is fetched at the start, and anew when four fifths of its lifetime are over, or up to a tenth of that before.
func TestShareOfTheLifetime(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		w.replica(hot(t, "80%", home))
		time.Sleep(5 * time.Minute)
		got := w.site.times(home)
		if got[0] != 0 {
			t.Errorf("first fetched after %v", got[0])
		}
		each := [2]time.Duration{72 * time.Second, 80 * time.Second}
		gaps(t, got[:4], each, each, each)
	})
}

func TestEachTime(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		w.replica(hot(t, "30s", home))
		time.Sleep(61 * time.Second)
		each := [2]time.Duration{27 * time.Second, 30 * time.Second}
		gaps(t, w.site.times(home)[:3], each, each)
	})
}

// The clock's moments are exact.
func TestByTheClock(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		time.Sleep(2 * time.Minute)
		w.replica(hot(t, "*/5 * * * *", home))
		time.Sleep(14 * time.Minute)
		want := []time.Duration{2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}
		if got := w.site.times(home); !slices.Equal(got, want) {
			t.Errorf("fetched at %v, want %v", got, want)
		}
	})
}

// What was fetched together at the start does not come back together.
func TestGroupIsSpread(t *testing.T) {
	pages := many(200)
	inBubble(t, newSite(pages...), func(w *world) {
		w.replica(hot(t, "80%", pages...))
		time.Sleep(85 * time.Second)
		seconds := map[time.Duration]int{}
		for _, p := range pages {
			times := w.site.times(p)
			gaps(t, times, [2]time.Duration{72 * time.Second, 80 * time.Second})
			seconds[times[1]/time.Second]++
		}
		for at, n := range seconds {
			if n > 60 { // 25 on average; 60 by chance is out of the question
				t.Errorf("%d of %d pages were fetched in second %d", n, len(pages), at)
			}
		}
	})
}

// However many pages are cold, no more are fetched at once than the job may.
func TestColdStartIsBounded(t *testing.T) {
	pages := many(100)
	s := newSite(pages...)
	s.took = time.Second
	inBubble(t, s, func(w *world) {
		w.replica(hot(t, "80%", pages...))
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if s.most != 4 || w.said("msg=warm ") != 1 {
			t.Errorf("%d at once, want 4; said to be warm %d times after 25s, want once:\n%s", s.most, w.said("msg=warm "), w.log.String())
		}
		for i, p := range pages { // in the order of the list
			if got := s.times(p); !slices.Equal(got, []time.Duration{time.Duration(i/4) * time.Second}) {
				t.Errorf("page %d was fetched at %v", i, got)
			}
		}
	})
}

// A page that a client's request has brought anew is due later.
func TestClientsCount(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		w.replica(hot(t, "80%", home))
		time.Sleep(50 * time.Second)
		w.site.change(func() { w.site.keep(home) })
		time.Sleep(71 * time.Second) // after 80 s it was looked at
		if got := w.site.times(home); len(got) != 1 {
			t.Errorf("fetched at %v although it was new", got)
		}
		time.Sleep(9 * time.Second)
		gaps(t, w.site.times(home), [2]time.Duration{122 * time.Second, 130 * time.Second})
	})
}

// What fails is tried again after 1 s, doubled up to a minute, never sooner than the upstream says, and by chance a
// quarter later (R23). It is told when it begins and when it ends.
func TestFailuresBackOff(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		w.site.faults[home] = policy.Fault{Kind: policy.Refused}
		w.replica(hot(t, "80%", home))
		time.Sleep(4 * time.Minute)
		var bounds [][2]time.Duration
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60} {
			bounds = append(bounds, [2]time.Duration{pause * time.Second, pause * time.Second * 5 / 4})
		}
		gaps(t, w.site.times(home)[:8], bounds...)
		if n := w.said("a page is not warmed"); n != 1 {
			t.Errorf("told %d times that it fails", n)
		}
		w.site.change(func() { w.site.faults[home] = policy.Fault{Kind: policy.BadStatus, RetryAfter: 5 * time.Minute} })
		time.Sleep(75 * time.Second)
		before := len(w.site.times(home))
		w.site.change(func() { delete(w.site.faults, home) })
		time.Sleep(3*time.Minute + 30*time.Second)
		if got := w.site.times(home); len(got) != before {
			t.Errorf("fetched at %v: sooner than Retry-After", got)
		}
		if j := w.replicas[0].Jobs()[0]; j.Failing != 1 || j.Failures != int64(before) {
			t.Errorf("%+v, want one page failing, %d failures", j, before)
		}
		time.Sleep(3 * time.Minute)
		if j := w.replicas[0].Jobs()[0]; j.Failing != 0 || j.LastSuccess.IsZero() || w.said("a page is warmed again") != 1 {
			t.Errorf("%+v, told %d times that it is well", j, w.said("a page is warmed again"))
		}
	})
}

// A page that may not be kept is not asked for over and over.
func TestUnkeptIsLeftAlone(t *testing.T) {
	inBubble(t, newSite(), func(w *world) {
		w.replica(hot(t, "80%", home))
		time.Sleep(21 * time.Minute)
		each := [2]time.Duration{9 * time.Minute, 10 * time.Minute}
		gaps(t, w.site.times(home), each, each)
		if n := w.said("cannot be kept warm"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

// One replica warms; when it leaves another goes on at once, and when it dies, when its lease has run out.
func TestOneReplicaWarms(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		stranger, err := w.store.Take(w.t.Context(), policy.Key{Primary: "warm:hot"}, store.Want{Token: "dead", TTL: leaseTTL, At: time.Now()})
		if err != nil || stranger.Lease == nil {
			t.Fatal(stranger, err)
		}
		c := hot(t, "80%", home)
		w.replica(c)
		w.replica(c)
		time.Sleep(leaseTTL - 1)
		if got := w.site.times(home); len(got) > 0 {
			t.Errorf("fetched at %v while another held the lease", got)
		}
		time.Sleep(time.Second)
		if got := w.site.times(home); len(got) != 1 || got[0] != leaseTTL || w.leading() != 1 {
			t.Errorf("fetched at %v by %d, want once, after %v", got, w.leading(), leaseTTL)
		}
		first := w.replicas[0]
		if !first.Jobs()[0].Leads {
			first = w.replicas[1]
		}
		first.Close()
		synctest.Wait()
		if w.leading() != 1 || len(w.site.times(home)) != 1 {
			t.Errorf("%d lead, fetched at %v: the other is to take over, and to leave alone what is fresh", w.leading(), w.site.times(home))
		}
		time.Sleep(80 * time.Second)
		gaps(t, w.site.times(home), [2]time.Duration{72 * time.Second, 80 * time.Second})
	})
}

func (w *world) leading() (n int) {
	for _, r := range w.replicas {
		for _, j := range r.Jobs() {
			if j.Leads {
				n++
			}
		}
	}
	return n
}

// A purge revokes the lease of the job, too: one replica leads after it, and the pages are looked at again.
func TestPurgeIsFollowedByWarming(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		c := hot(t, "80%", home)
		w.replica(c)
		w.replica(c)
		time.Sleep(10 * time.Second)
		for i, sel := range []policy.Selector{{Tag: "red"}, {All: true}} {
			w.site.change(func() { delete(w.site.kept, home) })
			if _, err := w.store.Purge(w.t.Context(), sel, store.Hard); err != nil {
				t.Fatal(err)
			}
			time.Sleep(settled)
			synctest.Wait()
			if got := w.site.times(home); len(got) != i+2 || w.leading() != 1 {
				t.Errorf("after purge %d: fetched at %v, %d lead", i+1, got, w.leading())
			}
		}
		// Where the pages were not purged they are looked at, and left alone.
		if _, err := w.store.Purge(w.t.Context(), policy.Selector{Tag: "blue"}, store.Hard); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := w.site.times(home); len(got) != 3 {
			t.Errorf("fetched at %v", got)
		}
	})
}

// A write makes one page void: that one is looked at, and no other.
func TestPurgeOfAPageIsForThatPage(t *testing.T) {
	pages := many(100)
	inBubble(t, newSite(pages...), func(w *world) {
		w.replica(hot(t, "80%", pages...))
		time.Sleep(10 * time.Second)
		before := w.site.looks()
		for _, page := range []string{pages[7], home + "elsewhere"} {
			w.site.change(func() { delete(w.site.kept, page) })
			if _, err := w.store.Purge(w.t.Context(), policy.Selector{Page: "api " + page}, store.MustValidate); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * settled)
		}
		if got := w.site.times(pages[7]); len(got) != 2 || w.site.looks() != before+1 {
			t.Errorf("it was fetched at %v, and %d pages were looked at", got, w.site.looks()-before)
		}
	})
}

// A purge between a page's look-up and its answer is not missed.
func TestPurgeWhileAPageIsWarmed(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		w.site.then = func() {
			w.site.change(func() { clear(w.site.kept) })
			if _, err := w.store.Purge(w.t.Context(), policy.Selector{Tag: "red"}, store.Hard); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond) // the answer is on its way
		}
		w.replica(hot(t, "80%", home))
		time.Sleep(10 * time.Second)
		if got := w.site.times(home); len(got) != 2 {
			t.Errorf("fetched at %v, want it again after the purge", got)
		}
	})
}

// The first round is told of once, whatever the list becomes.
func TestFirstRoundIsToldOnce(t *testing.T) {
	inBubble(t, newSite(many(5)...), func(w *world) {
		w.site.took = time.Minute
		r := w.replica(hot(t, "80%", many(2)...))
		synctest.Wait()
		for n := 1; n <= 5; n++ { // one is gone before it was tried; then more come
			r.running()[0].list(many(n))
			time.Sleep(10 * time.Minute)
		}
		if begun, over := w.said("msg=warming"), w.said("msg=warm "); begun != 1 || over != 1 {
			t.Errorf("it began %d times, and was over %d times", begun, over)
		}
	})
}

// While the store is away nobody leads; when it is back somebody does.
func TestStoreAway(t *testing.T) {
	inBubble(t, newSite(home), func(w *world) {
		away := awhile{Store: w.store, until: time.Now().Add(time.Minute)}
		w.on(away, hot(t, "80%", home))
		time.Sleep(time.Minute)
		if got := w.site.times(home); len(got) > 0 {
			t.Errorf("fetched at %v", got)
		}
		time.Sleep(2 * recess)
		if got := w.site.times(home); len(got) != 1 {
			t.Errorf("fetched at %v", got)
		}
	})
}

// Jobs change with the file. What stays as it was goes on; what has changed begins again, by looking.
func TestUse(t *testing.T) {
	other := home + "other"
	inBubble(t, newSite(home, other), func(w *world) {
		r := w.replica(hot(t, "80%", home))
		time.Sleep(10 * time.Second)
		second := hot(t, "80%", other)
		second.Name = "second"
		r.Use([]Config{second, hot(t, "80%", home)})
		synctest.Wait()
		if n := w.said(`msg=warming job=hot`); n != 1 {
			t.Errorf("the job that stays began %d times", n)
		}
		r.Use([]Config{hot(t, "20s", home)})
		synctest.Wait()
		if got := w.site.times(home); len(got) != 1 || w.leading() != 1 {
			t.Errorf("fetched at %v, %d lead", got, w.leading())
		}
		time.Sleep(10 * time.Second)
		if got := w.site.times(home); len(got) != 2 {
			t.Errorf("fetched at %v, want again 20 s after it came", got)
		}
		r.Use(nil)
		time.Sleep(time.Hour)
		if got, gone := w.site.times(home), w.site.times(other); len(got) != 2 || len(gone) != 1 {
			t.Errorf("fetched at %v and %v after the jobs were gone", got, gone)
		}
	})
}

// A file is read again: what is new on it is fetched, what is gone is not, and a bad one leaves the old list.
func TestFileChanges(t *testing.T) {
	name := filepath.Join(t.TempDir(), "urls.txt")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, b := home+"a", home+"b"
	inBubble(t, newSite(a, b), func(w *world) {
		write("# hot ones\n" + a + "\n")
		c := hot(t, "30s")
		c.File = name
		w.replica(c)
		time.Sleep(10 * time.Second)
		write("ftp://weir.test/\n")
		time.Sleep(time.Minute)
		if got := w.site.times(a); len(got) != 3 || w.said("cannot be read") != 1 {
			t.Errorf("fetched at %v; a bad list was told %d times", got, w.said("cannot be read"))
		}
		write(home + "b # the other\n")
		time.Sleep(time.Minute)
		before := len(w.site.times(a))
		time.Sleep(time.Minute)
		if got, new := w.site.times(a), w.site.times(b); len(got) != before || len(new) < 3 {
			t.Errorf("fetched at %v and %v", got, new)
		}
	})
}

// A run brings everything anew, fresh or not, and tells of each page.
func TestRun(t *testing.T) {
	pages := many(10)
	s := newSite(pages[:8]...)
	s.faults[pages[0]] = policy.Fault{Kind: policy.Refused}
	inBubble(t, s, func(w *world) {
		r := w.replica(hot(t, "80%", pages...))
		follower := w.replica(hot(t, "80%", pages...))
		time.Sleep(10 * time.Second)
		s.change(func() { s.took = time.Second })
		began, before := time.Now(), len(s.times(pages[1]))
		ends := map[End]int{}
		done := 0
		err := follower.Run(w.t.Context(), "hot", func(p Page) {
			ends[p.End]++
			if done++; p.Done != done || p.Pages != 10 || (p.Why == "") != (p.End == Fetched) {
				t.Errorf("%+v, after %d", p, done)
			}
		})
		if err != nil || ends[Fetched] != 7 || ends[Failed] != 1 || ends[Unkept] != 2 || time.Since(began) != 3*time.Second {
			t.Errorf("%v: %v after %v, want 7 fetched, 1 failed, 2 unkept after 3s", err, ends, time.Since(began))
		}
		time.Sleep(30 * time.Second)
		if got := s.times(pages[1]); len(got) != before+1 {
			t.Errorf("fetched at %v: the leader did not see what the run had brought", got)
		}
		if err := r.Run(w.t.Context(), "cold", nil); !errors.Is(err, ErrNoJob) {
			t.Errorf("an unknown job: %v", err)
		}
		ctx, cancel := context.WithCancel(w.t.Context())
		if err := r.Run(ctx, "hot", func(Page) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("its asker has left: %v", err)
		}
		ended := make(chan error)
		go func() { ended <- r.Run(w.t.Context(), "hot", func(Page) {}) }()
		synctest.Wait()
		r.Close()
		if err := <-ended; !errors.Is(err, ErrResting) {
			t.Errorf("the replica leaves: %v", err)
		}
	})
}

// A panic is a failure of the page that was asked for, or of the list.
func TestPanic(t *testing.T) {
	s := newSite(home)
	s.kept = nil // what is brought cannot be kept there
	s.served = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	inBubble(t, s, func(w *world) {
		mapped := hot(t, "80%")
		mapped.Name, mapped.Sitemap = "mapped", home+"sitemap.xml"
		r := w.replica(hot(t, "80%", home), mapped)
		time.Sleep(time.Second)
		if w.said("panic: assignment to entry in nil map") != 1 || w.said("broke off") != 1 {
			t.Errorf("said %s", w.log.String())
		}
		if err := r.Run(w.t.Context(), "mapped", nil); err == nil {
			t.Error("a run whose list breaks off has no error")
		}
	})
}
