package hot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/proxy"
	"weir/proxy/fill"
)

func about(page string, hit bool) proxy.Report { return proxy.Report{Page: page, Hit: hit} }

// The hundred hottest of a crowd that asks for a hundred thousand pages, at a rate at which most is not looked at.
func TestTop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.2, 1, 100_000)
		exact := map[string]int{}
		const seconds, each = 10, 10_000
		for range seconds {
			for range each {
				page := fmt.Sprint("api http://example.com/", zipf.Uint64())
				exact[page]++
				p.Exchange(about(page, true))
			}
			time.Sleep(time.Second)
		}
		top := p.Top(Hits, 100)
		if len(top) != 100 {
			t.Fatalf("%d pages", len(top))
		}
		for i := range 12 {
			page := fmt.Sprint("api http://example.com/", i)
			at := slices.IndexFunc(top, func(p Page) bool { return p.Name == page })
			if at < 0 || math.Abs(float64(at-i)) > 5 {
				t.Errorf("number %d is at %d", i, at)
				continue
			}
			// One look in sixteen: five times the deviation of as many looks as it had, and what the sketch may withhold.
			want := float64(exact[page]) / seconds
			if off := 5 / math.Sqrt(float64(exact[page])/sparsest); math.Abs(top[at].Hits-want) > want*(off+.1) {
				t.Errorf("number %d: %v a second, want %v within %.0f%%", i, top[at].Hits, want, 100*off)
			}
		}
	})
}

// Each order has its own first; the figures of one page stand together whichever is asked for.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		for range 10 {
			for range 9 {
				p.Exchange(about("hit", true))
			}
			p.Exchange(about("hit", false))
			for range 5 {
				p.Exchange(about("missed", false))
			}
			p.Fill(fill.Report{Page: "slow", Requests: 1, Total: 900 * time.Millisecond, Queued: 400 * time.Millisecond})
			p.Fill(fill.Report{Page: "hit", Requests: 1, Total: 100 * time.Millisecond})
			p.Fill(fill.Report{Page: "another's", Total: time.Hour})
			p.Exchange(about("", false))
			p.Exchange(about(strings.Repeat("x", longest+1), false))
			time.Sleep(time.Second)
		}
		for by, want := range map[By][]string{
			Hits: {"hit"}, Misses: {"missed", "hit"}, UpstreamTime: {"slow", "hit"}, "else": nil,
		} {
			var got []string
			for _, page := range p.Top(by, 100) {
				got = append(got, page.Name)
				if want := (Page{"hit", 9, 1, .1}); page.Name == "hit" && !alike(page, want) {
					t.Errorf("by %s: %+v, want %+v", by, page, want)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("by %s: %q, want %q", by, got, want)
			}
		}
		if got := p.Top(Misses, 1); len(got) != 1 || !alike(got[0], Page{"missed", 0, 5, 0}) {
			t.Errorf("the first alone: %+v", got)
		}
		if got := p.Top(UpstreamTime, 1); !alike(got[0], Page{"slow", 0, 0, .5}) {
			t.Errorf("upstream time: %+v", got)
		}
	})
}

// alike: what came in the first second weighs a sixth less than what came in the tenth.
func alike(a, b Page) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= b/50 }
	return a.Name == b.Name && near(a.Hits, b.Hits) && near(a.Misses, b.Misses) && near(a.Upstream, b.Upstream)
}

// In a rush one in sixteen is looked at, and every one when it is over.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New().hits
		for range 200_000 {
			p.add("x", 1)
		}
		if n := p.every.Load(); n != sparsest {
			t.Errorf("in a rush: one in %d", n)
		}
		for range 1000 {
			time.Sleep(time.Second)
			p.add("x", 1)
		}
		if n := p.every.Load(); n != 1 {
			t.Errorf("when it is quiet: one in %d", n)
		}
	})
}

func TestTogether(t *testing.T) {
	p := New()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 5000 {
				p.Exchange(about(fmt.Sprint(i%(100*g+100)), i%2 == 0))
				p.Fill(fill.Report{Page: fmt.Sprint(i), Requests: 1, Total: time.Second})
				if i%500 == 0 {
					p.Top(Hits, 10)
				}
			}
		})
	}
	all.Wait()
	for _, tally := range []*tally{p.hits, p.misses, p.upstream} {
		if n := len(tally.sketch.of); n == 0 || n > counted || n != len(tally.sketch.least) {
			t.Errorf("%d pages", n)
		}
	}
}

func BenchmarkHit(b *testing.B) {
	p := New()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Exchange(about("api http://example.com/catalogue/item/1234?lang=de", true))
		}
	})
}
