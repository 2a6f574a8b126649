package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Bounded load on real processes. What is asserted are counts, which no slow machine changes; times are printed.

var long = flag.Bool("long", false, "let the long wait under load take 12 s instead of 2 s")

// crowd starts replicas a and b on one Redis, under a configuration.
func crowd(t *testing.T, config string) *world {
	t.Helper()
	w, err := newWorld(binary(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.account())
		}
	})
	// A replica that gets no processor must not take that for an outage of Redis.
	w.sections["config.yaml"] = "store: { kind: redis, redis: { addresses: [$REDIS], timeout: 5s } }\n" + config
	if err := w.startReplicas([]string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// rush sends n requests at once, by turns to both replicas, and waits for all answers; all must be whole and 200.
func rush(t *testing.T, w *world, n int, path string) []*answer {
	t.Helper()
	answers := make([]*answer, n)
	var sent sync.WaitGroup
	for i := range answers {
		sent.Go(func() {
			address := w.replicas[[]string{"a", "b"}[i%2]].listen
			answers[i] = send(address, ask{method: http.MethodGet, target: path, header: fields{{"Host", "weir.test"}}})
			<-answers[i].done
		})
	}
	sent.Wait()
	for i, a := range answers {
		if a.err != nil || a.status != http.StatusOK {
			t.Fatalf("client %d: %s", i, a)
		}
	}
	return answers
}

func settle(t *testing.T, w *world) {
	t.Helper()
	if err := w.settle(nil); err != nil {
		t.Fatal(err)
	}
}

func bodies(answers []*answer) []string {
	all := make([]string, len(answers))
	for i, a := range answers {
		all[i] = string(a.body)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// times prints when the first bytes came.
func times(t *testing.T, what string, answers []*answer) {
	var all []time.Duration
	for _, a := range answers {
		all = append(all, a.firstByte)
	}
	slices.Sort(all)
	t.Logf("%s: first byte median %v, p99 %v, slowest %v", what, all[len(all)/2].Round(time.Millisecond),
		all[len(all)*99/100].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}

func asked(w *world, path string) (n, most int) {
	w.upstream.mu.Lock()
	defer w.upstream.mu.Unlock()
	return w.upstream.page(path).asked, w.upstream.page(path).most
}

func wantAsked(t *testing.T, w *world, path string, want int) {
	t.Helper()
	if n, _ := asked(w, path); n != want {
		t.Errorf("%s: the upstream was asked %d times, not %d", path, n, want)
	}
}

func header(pairs ...string) (f fields) {
	for i := 0; i < len(pairs); i += 2 {
		f = append(f, field{pairs[i], pairs[i+1]})
	}
	return f
}

func TestLoadColdPage(t *testing.T) {
	w := crowd(t, "")
	w.upstream.script("/cold", reply{status: 200, header: header("Cache-Control", "max-age=60"), body: filler(2000), delay: 500 * time.Millisecond})
	answers := rush(t, w, 200, "/cold")
	times(t, "200 clients, cold page, upstream 500 ms", answers)
	wantAsked(t, w, "/cold", 1)
	if n := len(bodies(answers)); n != 1 {
		t.Errorf("%d different bodies", n)
	}
}

func TestLoadExpiredPage(t *testing.T) {
	w := crowd(t, "")
	w.upstream.script("/expired", reply{status: 200, header: header("Cache-Control", "max-age=60", "Age", "70", "ETag", `"1"`), body: filler(2000)})
	rush(t, w, 1, "/expired")
	settle(t, w)
	w.upstream.script("/expired", reply{status: 200, header: header("Cache-Control", "max-age=60"), body: filler(3000), delay: 500 * time.Millisecond})
	answers := rush(t, w, 200, "/expired")
	times(t, "200 clients, expired page, upstream 500 ms", answers)
	wantAsked(t, w, "/expired", 2)
	if n := len(bodies(answers)); n != 1 || len(answers[0].body) != 3000 {
		t.Errorf("%d different bodies, the first of %d bytes", n, len(answers[0].body))
	}
}

func TestLoadStaleWhileRevalidate(t *testing.T) {
	w := crowd(t, "")
	w.upstream.script("/swr", reply{status: 200, header: header("Cache-Control", "max-age=60, stale-while-revalidate=600", "Age", "70"), body: filler(2000)})
	rush(t, w, 2, "/swr")
	settle(t, w)
	w.upstream.script("/swr", reply{status: 200, header: header("Cache-Control", "max-age=60"), body: filler(3000), delay: 500 * time.Millisecond})
	before, _ := asked(w, "/swr")

	page := []byte(filler(2000))
	plain := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write(page) }))
	defer plain.Close()
	bare := *w
	here := &replica{listen: strings.TrimPrefix(plain.URL, "http://")}
	bare.replicas = map[string]*replica{"a": here, "b": here}
	times(t, "200 clients, a bare net/http server", rush(t, &bare, 200, "/swr"))

	times(t, "200 clients, stale-while-revalidate", rush(t, w, 200, "/swr"))
	if err := poll(pollLimit, func() error {
		if n, _ := asked(w, "/swr"); n != before+1 {
			return fmt.Errorf("the upstream was asked %d times for one refresh", n-before)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestLoadNoStorePage(t *testing.T) {
	w := crowd(t, "")
	w.upstream.script("/mine", reply{status: 200, header: header("Cache-Control", "no-store"), body: "{n}", delay: 300 * time.Millisecond})
	answers := rush(t, w, 100, "/mine")
	times(t, "100 clients, no-store page, upstream 300 ms", answers)
	if n := len(bodies(answers)); n != 100 {
		t.Errorf("%d different bodies for 100 clients", n)
	}
	wantAsked(t, w, "/mine", 100)
}

func TestLoadLongWait(t *testing.T) {
	wait := 2 * time.Second
	if *long {
		wait = 12 * time.Second
	}
	w := crowd(t, "")
	w.upstream.script("/slow", reply{status: 200, header: header("Cache-Control", "max-age=60"), body: "v1", delay: wait})
	answers := rush(t, w, 2000, "/slow")
	times(t, fmt.Sprint("2000 clients, upstream ", wait), answers)
	wantAsked(t, w, "/slow", 1)
}

// Two users at the same time, again and again: nobody is ever shown what the other was.
func TestLoadParticularRequests(t *testing.T) {
	w := crowd(t, "cache: { ttl: 5m }\n")
	for _, name := range []string{"Cookie", "Authorization", "X-Api-Key"} {
		path := "/" + name
		w.upstream.script(path, reply{status: 200, body: "for {" + name + "}"})
		var users sync.WaitGroup
		for i := range 100 {
			users.Go(func() {
				user := []string{"ann", "bob", ""}[i%3]
				a := ask{method: http.MethodGet, target: path, header: header("Host", "weir.test")}
				if user != "" {
					a.header = append(a.header, field{name, user})
				}
				got := send(w.replicas[[]string{"a", "b"}[i%2]].listen, a)
				if err := got.whole(time.Minute); err != nil || string(got.body) != "for "+user {
					t.Errorf("%s of %q: %v\n%s", name, user, err, got)
				}
			})
		}
		users.Wait()
	}
}

// Clients who join a body under way get what has come at once, and the rest as it comes.
func TestLoadJoinBody(t *testing.T) {
	for _, framing := range []string{"chunked", "length"} {
		t.Run(framing, func(t *testing.T) {
			w := crowd(t, "")
			w.upstream.script("/big", reply{status: 200, header: header("Cache-Control", "max-age=60"), body: filler(5 << 20), framing: framing, spread: 3 * time.Second})
			first := send(w.replicas["a"].listen, ask{method: http.MethodGet, target: "/big", header: header("Host", "weir.test")})
			if err := poll(pollLimit, func() error {
				if size, _ := first.see("size"); size == "0" {
					return fmt.Errorf("the body does not stream")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			answers := rush(t, w, 20, "/big")
			var same []*answer
			for i, a := range answers {
				if i%2 == 0 { // on the replica that fetches
					same = append(same, a)
				}
			}
			times(t, "joined on the same replica", same)
			times(t, "joined", answers)
			if err := first.whole(time.Minute); err != nil {
				t.Error(err)
			}
			if all := bodies(append(answers, first)); len(all) != 1 || all[0] != filler(5<<20) {
				t.Errorf("%d different bodies", len(all))
			}
			wantAsked(t, w, "/big", 1)
		})
	}
}

// Redis is killed and started again under load: no request fails, and each replica goes on collapsing.
func TestLoadRedisRestart(t *testing.T) {
	w := crowd(t, "")
	const pages, workers = 20, 16
	for i := range pages {
		w.upstream.script(fmt.Sprint("/page/", i), reply{status: 200, header: header("Cache-Control", "max-age=60"), body: fmt.Sprint("page ", i), delay: 20 * time.Millisecond})
	}
	var answered atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	for worker := range workers {
		load.Go(func() {
			for i := worker; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				page := i % pages
				got := send(w.replicas[[]string{"a", "b"}[i/pages%2]].listen, ask{method: http.MethodGet, target: fmt.Sprint("/page/", page), header: header("Host", "weir.test")})
				if err := got.whole(time.Minute); err != nil || got.status != 200 || string(got.body) != fmt.Sprint("page ", page) {
					t.Errorf("page %d: %v\n%s", page, err, got)
				}
				answered.Add(1)
			}
		})
	}
	more := func(n int64) {
		goal := answered.Load() + n
		if err := poll(time.Minute, func() error {
			if answered.Load() < goal {
				return fmt.Errorf("the load stands still at %d", answered.Load())
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	more(400)
	w.redis.kill()
	more(400)
	if err := w.redis.start(); err != nil {
		t.Error(err)
	}
	more(400)
	close(stop)
	load.Wait()
	t.Logf("%d answers", answered.Load())
	for i := range pages {
		if n, most := asked(w, fmt.Sprint("/page/", i)); most > 2 {
			t.Errorf("page %d: %d of %d upstream requests ran together on two replicas", i, most, n)
		}
	}
}
