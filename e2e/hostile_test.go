package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A hostile run: more clients than memory could serve, who read as slowly as they can, or not at all. It takes minutes
// and a gigabyte, so it is started by hand. What is asserted are bytes, memory, and that ordinary clients go on being served.

const (
	documented   = 512 << 20 // the container that spool and max_size below are for, as README has it
	hostileSpool = 96
	hostileStore = 160

	hostileReaders = 1000
	hostileOthers  = 64 // of each other kind
	hostileTime    = 40 * time.Second

	ordinary = 300 * time.Millisecond // what the upstream takes for an ordinary page when it is not busy
)

// siege is what is asked of which store. Pages of 32 MiB are never kept there, those of 8 MiB are, and make room for others.
type siege struct {
	kind        string
	pages, page int // how many, of how many bytes
	slots       int // max_concurrent
}

func TestHostile(t *testing.T) {
	if !*long {
		t.Skip("by hand: go test ./e2e -run Hostile -v -long -count=1")
	}
	for name, s := range map[string]siege{
		"memory": {"memory", 200, 32 << 20, 2000},
		"redis":  {"redis", 200, 32 << 20, 2000},
		"few":    {"memory", 200, 32 << 20, 64},
		"stored": {"memory", hostileReaders, 8 << 20, 2000},
		"shared": {"redis", hostileReaders, 8 << 20, 2000},
	} {
		t.Run(name, func(t *testing.T) { besiege(t, s) })
	}
}

func besiege(t *testing.T, kind siege) {
	// What README says of a container of that size.
	limited := filepath.Join(t.TempDir(), "weir")
	line := fmt.Sprintf("#!/bin/sh\nGOMEMLIMIT=%d exec %s \"$@\"\n", documented/10*9, binary(t))
	if err := os.WriteFile(limited, []byte(line), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(limited, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	victim := httptest.NewServer(besieged(kind.page))
	defer victim.Close()
	if kind.kind == "redis" {
		if err := w.doRedis([]string{"start"}); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"CONFIG SET maxmemory 1gb", "CONFIG SET maxmemory-policy allkeys-lru"} {
			if err := w.redis.say(command); err != nil {
				t.Fatal(err)
			}
		}
	}
	store := fmt.Sprintf("store: { kind: %s, max_size: %dMiB }\n", kind.kind, hostileStore)
	if kind.kind == "redis" {
		store = fmt.Sprintf("store: { kind: redis, max_size: %dMiB, redis: { addresses: [%s], timeout: 5s } }\n", hostileStore, w.redis.socket())
	}
	w.sections["config.yaml"] = store + fmt.Sprintf("memory: { spool: %dMiB }\n", hostileSpool) +
		"telemetry: { log: { access: false } }\n" +
		"upstreams: [{ name: upstream, url: " + victim.URL + fmt.Sprintf(", max_concurrent: %d, queue: 2000 }]\n", kind.slots)
	if err := w.startReplicas([]string{"a"}); err != nil {
		t.Fatal(err)
	}
	a := assault{siege: kind, t: t, replica: w.replicas["a"], upstream: victim.Listener.Addr().String()}
	a.run()
}

// besieged is an upstream with large pages, endless events, and ordinary pages.
func besieged(page int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { besiegedBy(w, r, page) }
}

func besiegedBy(w http.ResponseWriter, r *http.Request, page int) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch kind {
	case "large":
		w.Header().Set("Content-Length", strconv.Itoa(page))
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("ETag", `"`+id+`"`)
		block := []byte(strings.Repeat(mark(id), 64<<10))
		for range page / len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		event := "data: " + strings.Repeat("x", 1000) + "\n\n"
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			if _, err := io.WriteString(w, event); err != nil || http.NewResponseController(w).Flush() != nil {
				tick.Stop()
				return
			}
		}
	case "upload":
		_, _ = io.Copy(io.Discard, r.Body)
	case "socket":
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	default:
		select {
		case <-time.After(ordinary):
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = io.WriteString(w, strings.Repeat(mark(id), 20<<10))
	}
}

// mark is the one byte that a page is made of.
func mark(id string) string {
	n, _ := strconv.Atoi(id)
	return string(rune('a' + n%26))
}

// assault is the run.
type assault struct {
	siege
	t        *testing.T
	replica  *replica
	upstream string

	parties sync.WaitGroup
	cut     atomic.Int64 // readers' connections that ended
	read    atomic.Int64 // what they have read
	wrong   atomic.Int64 // bytes of another page
	echoes  atomic.Int64
	failed  sync.Map // how connections began to fail, and how often
}

func (s *assault) run() {
	ctx, end := context.WithTimeout(s.t.Context(), hostileTime)
	defer end()
	before := memoryOf(s.t, s.replica)
	for i := range hostileReaders {
		s.party(ctx, func(conn net.Conn) { s.slowReader(conn, i%s.pages) })
	}
	for i := range hostileOthers {
		s.party(ctx, s.socket)
		s.party(ctx, func(conn net.Conn) { s.stream(ctx, conn, i) })
		s.party(ctx, func(conn net.Conn) { s.upload(conn, i) })
	}
	most, kernel := before, int64(0)
	var served []time.Duration
	var bare time.Duration // the slowest that the upstream itself was, on the same busy machine
	var others []string
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	answers, direct := make(chan *answer, 1000), make(chan *answer, 1000)
	n := 0
	for ctx.Err() == nil {
		n++
		for address, answers := range map[string]chan *answer{s.replica.listen: answers, s.upstream: direct} {
			a := send(address, ask{method: http.MethodGet, target: fmt.Sprint("/ordinary/", n), header: header("Host", "weir.test")})
			go func() {
				<-a.done
				answers <- a
			}()
		}
		<-tick.C
		most = max(most, memoryOf(s.t, s.replica))
		kernel = max(kernel, socketMemory(s.t))
	}
	for range n {
		a := <-answers
		served = append(served, a.total)
		bare = max(bare, (<-direct).total)
		if a.status != 200 || len(a.body) != 20<<10 {
			others = append(others, fmt.Sprint(a.status, " ", len(a.body), " ", a.err, " ", a.total, string(a.body[:min(len(a.body), 150)])))
		}
	}
	gauges := s.gauges()
	s.parties.Wait()
	slices.Sort(served)
	s.t.Logf("memory: %d MiB before, %d MiB at most (VmHWM %d MiB), kernel's for sockets %d MiB; %s",
		before>>20, most>>20, highWater(s.t, s.replica)>>20, kernel>>20, gauges)
	s.t.Logf("readers: %d MiB read, %d connections cut; echoes %d", s.read.Load()>>20, s.cut.Load(), s.echoes.Load())
	s.t.Logf("ordinary: %d asked, median %v, p90 %v, slowest %v, of the upstream itself %v; not whole: %d %v", n, served[len(served)/2], served[len(served)*9/10], served[len(served)-1], bare, len(others), others[:min(len(others), 5)])
	s.failed.Range(func(k, v any) bool { s.t.Logf("ended %d times: %v", v.(*atomic.Int64).Load(), k); return true })
	if n := s.wrong.Load(); n > 0 {
		s.t.Errorf("%d bytes of another page", n)
	}
	if limit := int64(documented + documented/10); highWater(s.t, s.replica) > limit {
		s.t.Errorf("%d MiB at most, budget %d MiB and a tenth", highWater(s.t, s.replica)>>20, documented>>20)
	}
	// The first seconds, in which a thousand connections come at once, are the machine's: they are printed above.
	// Where there are fewer slots than such pages, these and ordinary ones take turns: what is promised then is memory.
	if slow := served[len(served)*9/10]; s.slots > s.pages && slow > 2*bare {
		s.t.Errorf("one of ten ordinary pages took %v or longer, the upstream %v", slow, bare)
	}
}

// party keeps a connection up until the end: who is cut off comes again after a second.
func (s *assault) party(ctx context.Context, attend func(net.Conn)) {
	s.parties.Go(func() {
		for ctx.Err() == nil {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", s.replica.listen)
			if err != nil {
				continue
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // the kernel is not to read for us
			over := context.AfterFunc(ctx, func() { conn.Close() })
			attend(conn)
			over()
			conn.Close()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
}

func (s *assault) note(what string) {
	v, _ := s.failed.LoadOrStore(what, &atomic.Int64{})
	v.(*atomic.Int64).Add(1)
}

func (s *assault) slowReader(conn net.Conn, page int) {
	fmt.Fprintf(conn, "GET /large/%d HTTP/1.1\r\nHost: weir.test\r\n\r\n", page)
	in := bufio.NewReaderSize(conn, 1<<10)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		s.note("reader: no head")
		return
	}
	if res.StatusCode != 200 {
		s.note("reader: " + res.Status)
		return
	}
	want, block := mark(strconv.Itoa(page))[0], make([]byte, 1<<10)
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		n, err := io.ReadFull(res.Body, block)
		s.read.Add(int64(n))
		for _, b := range block[:n] {
			if b != want {
				s.wrong.Add(1)
			}
		}
		if err != nil {
			tick.Stop()
			s.cut.Add(1)
			return
		}
	}
}

func (s *assault) socket(conn net.Conn) {
	fmt.Fprint(conn, "GET /socket HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		s.note("socket: no upgrade")
		return
	}
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		if _, err := conn.Write([]byte{'x'}); err != nil {
			tick.Stop()
			return
		}
		if _, err := in.ReadByte(); err != nil {
			tick.Stop()
			return
		}
		s.echoes.Add(1)
	}
}

// stream reads nothing, and does not leave.
func (s *assault) stream(ctx context.Context, conn net.Conn, i int) {
	fmt.Fprintf(conn, "GET /events/%d HTTP/1.1\r\nHost: weir.test\r\nAccept: text/event-stream\r\n\r\n", i)
	<-ctx.Done()
}

func (s *assault) upload(conn net.Conn, i int) {
	fmt.Fprintf(conn, "POST /upload/%d HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 10000000\r\n\r\n", i)
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		if _, err := conn.Write(make([]byte, 1<<10)); err != nil {
			s.note("upload ended")
			tick.Stop()
			return
		}
	}
}

func (s *assault) gauges() string {
	all := map[string]float64{}
	for _, name := range []string{"spool_bytes", "fills_running", "exchanges_running", "waiting_local", "upstream_running", "upstream_queued"} {
		all[name], _ = s.replica.counter(name)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s %.0f ", name, all[name])
	}
	return b.String()
}

// memoryOf is what a process holds now, highWater what it ever held.
func memoryOf(t *testing.T, r *replica) int64  { return status(t, r, "VmRSS") }
func highWater(t *testing.T, r *replica) int64 { return status(t, r, "VmHWM") }

func status(t *testing.T, r *replica, field string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.command.Process.Pid))
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatalf("no %s of the replica: %v", field, err)
	}
	n, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return n << 10
}

// socketMemory is what the kernel holds for all TCP sockets of this machine, on either side.
func socketMemory(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/net/sockstat")
	m := regexp.MustCompile(`TCP: .* mem (\d+)`).FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatal("no /proc/net/sockstat", err)
	}
	n, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return n << 12
}
