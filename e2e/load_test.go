package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Bounded load on real processes. What is asserted are counts, which no slow machine changes; times are printed.

var long = flag.Bool("long", false, "let load go on for as long as its documentation says, and ask other caches too")

// crowd starts replicas on one Redis under a configuration: a and b, unless others are named.
func crowd(t *testing.T, config string, names ...string) *world {
	t.Helper()
	w := worldOf(t)
	// A replica that gets no processor must not take that for an outage of Redis.
	w.sections["config.yaml"] = "store: { kind: redis, redis: { addresses: [$REDIS], timeout: 5s } }\n" + config
	if len(names) == 0 {
		names = []string{"a", "b"}
	}
	if err := w.startReplicas(names); err != nil {
		t.Fatal(err)
	}
	return w
}

// worldOf is one that ends with the test.
func worldOf(t *testing.T) *world {
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

// Of a hundred requests 99 are for one page, and the others for large ones that fill the memory many times over. Where there is a
// near tier, hardly one of the 99 asks Redis.
func TestLoadHotPage(t *testing.T) {
	w := crowd(t, "")
	w.sections["near.yaml"] = "store: { kind: redis, max_size: 1MiB, redis: { addresses: [$REDIS], timeout: 5s } }\n"
	w.sections["far.yaml"] = "store: { kind: redis, redis: { addresses: [$REDIS], timeout: 5s, near: false } }\n"
	if err := w.startReplicas([]string{"near", "far"}); err != nil {
		t.Fatal(err)
	}
	const rounds = 40
	w.upstream.script("/hot", reply{status: 200, header: header("Cache-Control", "max-age=600"), body: filler(2000)})
	for i := range rounds {
		w.upstream.script(fmt.Sprint("/cold/", i), reply{status: 200, header: header("Cache-Control", "max-age=600"), body: filler(50_000)})
	}
	rush(t, w, 2, "/hot") // so that none of them fetches it
	load := func(replica string, hot int) int {
		get := func(path string) {
			got := send(w.replicas[replica].listen, ask{method: http.MethodGet, target: path, header: header("Host", "weir.test")})
			if err := got.whole(time.Minute); err != nil || got.status != 200 {
				t.Fatalf("%v\n%s", err, got)
			}
		}
		w.redis.mark()
		for i := range rounds {
			get(fmt.Sprint("/cold/", i))
			for range hot {
				get("/hot")
			}
		}
		settle(t, w)
		return w.redis.asked()
	}
	load("near", 0) // what the large ones cost when Redis has them
	far := load("far", 99) - load("far", 0)
	near := load("near", 99) - load("near", 0)
	t.Logf("%d requests for the hottest page: %d questions to Redis without a near tier, %d with it", 99*rounds, far, near)
	if far < 99*rounds || near*20 > far {
		t.Errorf("that is not less than one in twenty")
	}
}
