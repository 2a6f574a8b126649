package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/proxy/fill"
	"weir/proxy/upstream"
	"weir/store/memory"
)

// corner is a handler behind a real server of net/http, before an upstream that notes what it receives byte for byte.
type corner struct {
	address string
	up      *upstream.Upstream
	early   string        // what the upstream answers to a head, in place of reading on
	panics  string        // of the server, written before a connection is closed
	ended   chan struct{} // closed by the first exchange's end, which the upstream waits for; nil: it does not

	mu   sync.Mutex
	keys []string // what the requests that came through were kept under; "": they are not kept
	seen []string // "GET /x HTTP/1.1 @ host", and the body behind it if there is one
}

// Write takes what the server has to complain of.
func (c *corner) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic")) {
		c.panics += string(line)
	}
	return len(line), nil
}

func (c *corner) Exchange(Report) {
	if c.ended != nil {
		close(c.ended)
	}
}
func (*corner) Fill(fill.Report) {}

func newCorner(t *testing.T, versions ...func(*http.Protocols)) *corner {
	t.Helper()
	c := &corner{}
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	go c.listen(up)
	p, err := policy.New(policy.Config{Upstreams: []string{"api"}, Routes: []policy.Route{{Name: "all", Upstream: "api"}}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := upstream.New(upstream.Config{
		Name: "api", URL: "http://" + up.Addr().String(), ConnectTimeout: time.Second, ResponseTimeout: 10 * time.Second,
		IdleTimeout: 10 * time.Second, FillTimeout: time.Minute, MaxConcurrent: 8, MaxStreams: 8, Queue: 8, QueueTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	c.up = u
	h := New(Options{
		Policy: p, Store: memory.New(memory.Config{MaxSize: 1 << 20}), Upstreams: map[string]*upstream.Upstream{"api": u},
		Observer: c, Config: Config{CacheStatus: "weir", Spool: 1 << 20, MaxWaiting: 8, MaxBody: 1 << 20},
	})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.keys = append(c.keys, p.Plan(h.request(r)).Key.Primary)
		c.mu.Unlock()
		h.ServeHTTP(w, r)
	}), ErrorLog: log.New(c, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	for _, version := range versions {
		version(s.Protocols)
	}
	served := make(chan struct{}, 8) // by every connection
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			served <- struct{}{}
		}
	}
	go s.Serve(front)
	t.Cleanup(func() {
		<-served
		s.Close()
		if c.panics != "" {
			t.Error(c.panics)
		}
	})
	c.address = front.Addr().String()
	return c
}

func (c *corner) listen(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for in := bufio.NewReader(conn); c.hear(conn, in) == nil; {
			}
		}()
	}
}

// hear reads a request by hand: net/http would tidy up what is to be seen. It answers what can be kept.
func (c *corner) hear(conn net.Conn, in *bufio.Reader) error {
	head := ""
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		head += line
	}
	if c.early != "" {
		_, _ = io.WriteString(conn, c.early)
		back := io.Discard
		if strings.HasPrefix(c.early, "HTTP/1.1 101") {
			back = conn
		}
		_, err := io.Copy(back, in) // were it to hang up, its answer might be lost
		return cmp.Or(err, io.EOF)
	}
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head), in)))
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	line, rest, _ := strings.Cut(head, "\r\n")
	host := "nobody"
	for field := range strings.SplitSeq(rest, "\r\n") {
		if name, value, _ := strings.Cut(field, ": "); name == "Host" {
			host = value
		}
	}
	seen := line + " @ " + host
	if len(body) > 0 {
		seen += " " + string(body)
	}
	for _, name := range []string{"X-A", "Upgrade", "Http2-Settings", "Max-Forwards", "Proxy", "X_forwarded_for"} {
		for _, line := range r.Header[name] {
			seen += " [" + line + "]"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Trailer)) {
		seen += " +" + name + "=" + strings.Join(r.Trailer[name], ",")
	}
	c.mu.Lock()
	c.seen = append(c.seen, seen)
	c.mu.Unlock()
	if c.ended != nil {
		<-c.ended
	}
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok")
	}
	return err
}

// send writes bytes and returns the statuses of the answers, until the connection closes.
func (c *corner) send(t *testing.T, sent string) (statuses []int) {
	t.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		statuses = append(statuses, res.StatusCode)
		switch {
		case res.Close:
			conn.(*net.TCPConn).CloseWrite() // or the server waits for what it wants no more
		case len(statuses) == 1:
			// What lies behind the first request must not become a second: this one shows that the connection is sound.
			_, _ = io.WriteString(conn, "GET /last HTTP/1.1\r\nHost: last.test\r\nConnection: close\r\n\r\n")
		}
	}
}

// What the upstream receives is what the key says, byte for byte; and a request has one meaning, here and there, or none.
func TestNetHTTPsCorners(t *testing.T) {
	const last = "GET /last HTTP/1.1 @ last.test"
	get := func(target string, fields ...string) string {
		return "GET " + target + " HTTP/1.1\r\n" + strings.Join(append([]string{"Host: a.test"}, fields...), "\r\n") + "\r\n\r\n"
	}
	for name, c := range map[string]struct {
		sent string
		want string // what the upstream receives, or the statuses of all answers
	}{
		"plain":                            {get("/x?a=1"), "GET /x?a=1 HTTP/1.1 @ a.test"},
		"header names in any case":         {"GET /x HTTP/1.1\r\nhOST: a.test\r\nx-a: 1\r\nX-A: 2\r\n\r\n", "GET /x HTTP/1.1 @ a.test [1] [2]"},
		"host in capitals, with its port":  {"GET /x HTTP/1.1\r\nHost: A.Test.:80\r\n\r\n", "GET /x HTTP/1.1 @ a.test"},
		"host with another port":           {"GET /x HTTP/1.1\r\nHost: a.test:8080\r\n\r\n", "GET /x HTTP/1.1 @ a.test:8080"},
		"host with a port that is none":    {"GET /x HTTP/1.1\r\nHost: a.test:\r\n\r\n", "GET /x HTTP/1.1 @ a.test"},
		"host by address":                  {"GET /x HTTP/1.1\r\nHost: [2001:DB8::1]:80\r\n\r\n", "GET /x HTTP/1.1 @ [2001:db8::1]"},
		"host by address and port":         {"GET /x HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "GET /x HTTP/1.1 @ [::1]:8080"},
		"host by address in a zone":        {"GET /x HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", "400"},
		"host by an open bracket":          {"GET /x HTTP/1.1\r\nHost: [::1\r\n\r\n", "400"},
		"two hosts":                        {"GET /x HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", "400"},
		"the same host twice":              {"GET /x HTTP/1.1\r\nHost: a.test\r\nhost: a.test\r\n\r\n", "400"},
		"no host":                          {"GET /x HTTP/1.1\r\n\r\n", "400"},
		"two hosts in one":                 {"GET /x HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n", "400"},
		"host with a path":                 {"GET /x HTTP/1.1\r\nHost: a.test/y\r\n\r\n", "400"},
		"host with a user":                 {"GET /x HTTP/1.1\r\nHost: u@a.test\r\n\r\n", "400"},
		"host that is encoded":             {"GET /x HTTP/1.1\r\nHost: %61.test\r\n\r\n", "400"},
		"host with two ports":              {"GET /x HTTP/1.1\r\nHost: a.test:80:81\r\n\r\n", "400"},
		"host with a port in letters":      {"GET /x HTTP/1.1\r\nHost: a.test:x\r\n\r\n", "400"},
		"host behind a fold":               {"GET /x HTTP/1.1\r\nX-A: 1\r\n Host: b.test\r\nHost: a.test\r\n\r\n", "GET /x HTTP/1.1 @ a.test [1 Host: b.test]"},
		"a target with a host of its own":  {"GET http://B.test:80/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET /x HTTP/1.1 @ b.test"},
		"a target without a path":          {"GET http://b.test?a=1 HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET /?a=1 HTTP/1.1 @ b.test"},
		"a target with a user":             {"GET http://u@b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "400"},
		"a target for encryption":          {"GET https://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "421 200"},
		"a target of another kind":         {"GET ftp://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "421 200"},
		"a target that is a host":          {"CONNECT b.test:80 HTTP/1.1\r\nHost: b.test:80\r\n\r\n", "400"},
		"a star":                           {get("*"), "400"},
		"no slash":                         {get("x"), "400"},
		"slashes":                          {get("//x//y"), "GET //x//y HTTP/1.1 @ a.test"},
		"slashes and a host":               {get("//b.test/y"), "GET //b.test/y HTTP/1.1 @ a.test"},
		"an encoded slash":                 {get("/x%2fy"), "GET /x%2Fy HTTP/1.1 @ a.test"},
		"an encoded slash beside a bar":    {get("/x|%2Fy"), "GET /x%7C%2Fy HTTP/1.1 @ a.test"},
		"the same, passed on":              {"POST /x|%2Fy%41?a|b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", "POST /x%7C%2Fy%41?a|b HTTP/1.1 @ a.test"},
		"an encoded question mark":         {get("/x%3Fy"), "GET /x%3Fy HTTP/1.1 @ a.test"},
		"an encoded percent sign":          {get("/x%252Fy"), "GET /x%252Fy HTTP/1.1 @ a.test"},
		"an encoded nought":                {get("/x%00y"), "GET /x%00y HTTP/1.1 @ a.test"},
		"an encoding that is none":         {get("/x%zz"), "400"},
		"dots":                             {get("/a/../b/./%2e%2E/c"), "GET /a/../b/./../c HTTP/1.1 @ a.test"},
		"a backslash":                      {get(`/x\y`), "GET /x%5Cy HTTP/1.1 @ a.test"},
		"letters beyond ASCII":             {get("/é"), "GET /%C3%A9 HTTP/1.1 @ a.test"},
		"a fragment":                       {get("/x#y"), "400"},
		"parameters of a segment":          {get("/x;a=1/y;b"), "GET /x;a=1/y;b HTTP/1.1 @ a.test"},
		"semicolons in the query":          {get("/x?a=1;b=2&c;d"), "GET /x?a=1;b=2&c;d HTTP/1.1 @ a.test"},
		"a query that cannot be read":      {get("/x?a=%zz&b=%"), "GET /x?a=%zz&b=% HTTP/1.1 @ a.test"},
		"an empty query":                   {get("/x?"), "GET /x? HTTP/1.1 @ a.test"},
		"a blank in the target":            {get("/x y"), "400"},
		"two blanks before the target":     {"GET  /x HTTP/1.1\r\nHost: a.test\r\n\r\n", "400"},
		"a tab in the target":              {get("/x\ty"), "400"},
		"a return in the target":           {get("/x\ry"), "400"},
		"a method that is none":            {"G@T /x HTTP/1.1\r\nHost: a.test\r\n\r\n", "400"},
		"HTTP/0.9":                         {"GET /x\r\n\r\n", "400"},
		"a folded field":                   {get("/x", "X-A: 1", "\t2"), "GET /x HTTP/1.1 @ a.test [1 2]"},
		"a fold at the beginning":          {"GET /x HTTP/1.1\r\n X-A: 1\r\nHost: a.test\r\n\r\n", "400"},
		"a return in a value":              {get("/x", "X-A: 1\r2"), "400"},
		"a return that hides a field":      {get("/x", "X-A: 1\rX-A: 2"), "400"},
		"a nought in a value":              {get("/x", "X-A: 1\x002"), "400"},
		"a field without a name":           {get("/x", ": 1"), "400"},
		"a field without a colon":          {get("/x", "X-A"), "400"},
		"a blank before the colon":         {get("/x", "X-A : 1"), "400"},
		"a host with a blank before it":    {"GET /x HTTP/1.1\r\nHost : a.test\r\n\r\n", "400"},
		"a name that is none":              {get("/x", "X(A): 1"), "400"},
		"bare line feeds":                  {"GET /x HTTP/1.1\nHost: a.test\nX-A: 1\n\n", "GET /x HTTP/1.1 @ a.test [1]"},
		"a length twice, alike":            {"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", "POST /x HTTP/1.1 @ a.test ab"},
		"a length twice":                   {"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab", "400"},
		"a list of lengths":                {"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2, 2\r\n\r\nab", "400"},
		"a length with a sign":             {"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: +2\r\n\r\nab", "400"},
		"a coding that is none":            {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\nab", "501"},
		"two codings":                      {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "501"},
		"a coding behind a blank":          {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "400"},
		"a coding without a name":          {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\nab", "400"},
		"a chunk that ends in a line feed": {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n", "bad"},
		"a chunk that is too long":         {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", "bad"},
		"a chunk of a length with a sign":  {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n", "bad"},
		"a length in the trailer":          {"POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n2\r\nab\r\n0\r\nContent-Length: 9\r\n\r\n", "400"},
		"a body of a GET":                  {"GET /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab", "GET /x HTTP/1.1 @ a.test ab"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCorner(t)
			statuses := k.send(t, c.sent)
			k.mu.Lock()
			defer k.mu.Unlock()
			switch {
			case strings.Contains(c.want, "@"):
				if want := fmt.Sprint([]string{c.want, last}); fmt.Sprint(k.seen) != want || fmt.Sprint(statuses) != "[200 200]" {
					t.Errorf("upstream saw %q, answers %v; want %s", k.seen, statuses, want)
				}
				k.sameAsKey(t)
			case c.want == "bad": // the body's fault, which is only found when the head has gone on
				if len(statuses) > 1 || len(statuses) == 1 && statuses[0] < 400 {
					t.Errorf("answers %v, upstream saw %q", statuses, k.seen)
				}
			default:
				if fmt.Sprint(statuses) != "["+c.want+"]" || len(k.seen) != len(statuses)-1 {
					t.Errorf("answers %v, upstream saw %q; want %s, and the end", statuses, k.seen, c.want)
				}
			}
		})
	}
}

// sameAsKey compares the key of each request that was kept with what the upstream received.
func (c *corner) sameAsKey(t *testing.T) {
	t.Helper()
	for i, key := range c.keys {
		f := strings.Split(c.seen[i], " ") // GET /x HTTP/1.1 @ host
		if got := "api http://" + f[4] + f[1]; key != "" && key != got {
			t.Errorf("it is kept as %q, and the upstream was asked for %q", key, got)
		}
	}
}

// Where a message is framed twice the chunks count, and nothing behind them is a request; where the version knows no
// chunks nothing is, and the connection ends (RFC 9112 §6.1, §6.3).
func TestNothingIsSmuggled(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"
	for name, sent := range map[string]string{
		"length and chunks":     "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks and length":     fmt.Sprintf("POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", 4, len(hidden), hidden),
		"chunks in HTTP/1.0":    fmt.Sprintf("POST /x HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n%s", hidden),
		"no length in HTTP/1.0": "POST /x HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n" + hidden,
		"a refused target":      "POST * HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			k := newCorner(t)
			k.send(t, sent)
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, seen := range k.seen {
				if strings.HasPrefix(seen, "GET /hidden") || strings.HasPrefix(seen, "GET /last") && name != "length and chunks" && name != "chunks and length" {
					t.Errorf("upstream saw %q", k.seen)
				}
			}
		})
	}
}

// A client that asks before it sends its body is told what the upstream says to that, one status after another.
func TestExpectContinueIsAnsweredByTheUpstream(t *testing.T) {
	for early, want := range map[string]string{
		"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n":                                                              "[413]",
		"HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n":                                                             "[417]",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n":                "[103 413]",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n": "[100 103 413]",
	} {
		for range 100 { // the 100 is handed on while the body is begun
			asksFirst(t, early, want)
		}
	}
}

func asksFirst(t *testing.T, early, want string) {
	t.Helper()
	k := newCorner(t)
	k.early = early
	conn, err := net.Dial("tcp", k.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	var statuses []int
	for in := bufio.NewReader(conn); len(statuses) == 0 || statuses[len(statuses)-1] < 200; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("after %v: %v", statuses, err)
		}
		statuses = append(statuses, res.StatusCode)
	}
	if got := fmt.Sprint(statuses); got != want {
		t.Errorf("%q: answers %s, want %s", early, got, want)
	}
}

// An upload leaves its connection sound; one that is answered before it has come ends it, and is answered all the same.
func TestUploads(t *testing.T) {
	const size = 200 << 10
	head := fmt.Sprintf("PUT /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", size)
	k := newCorner(t)
	if got := fmt.Sprint(k.send(t, head+strings.Repeat("x", size))); got != "[200 200]" {
		t.Errorf("answers %s", got)
	}
	for _, sent := range []int{0, size / 2, size} {
		k := newCorner(t)
		k.early = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
		if got := fmt.Sprint(k.send(t, head+strings.Repeat("x", sent))); got != "[413]" && (got != "[413 413]" || sent != size) {
			t.Errorf("%d bytes sent: answers %s", sent, got)
		}
	}
}

// An upgrade to HTTP/2 in the clear would be a tunnel past every rule of ours: the request goes on without it.
func TestNoTunnelByH2C(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		k := newCorner(t)
		statuses := k.send(t, method+" /x HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"+
			"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n")
		if got := fmt.Sprint(statuses); got != "[200 200]" || k.seen[0] != method+" /x HTTP/1.1 @ a.test [1]" {
			t.Errorf("answers %v, upstream saw %q", got, k.seen)
		}
	}
}

// What a request says behind its body goes along (RFC 9110 §6.5).
func TestTrailerOfARequest(t *testing.T) {
	got := make(chan string, 1)
	client, url := behindServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body) + " " + r.Trailer.Get("X-Sum")
	}), func(p *http.Protocols) { p.SetHTTP1(true) })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.NopCloser(strings.NewReader("text")))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.Trailer = -1, http.Header{"X-Sum": {"42"}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := <-got; got != "text 42" {
		t.Errorf("the upstream got %q", got)
	}
}

// Of the protocols that a client offers the upstream chooses one (RFC 9110 §7.8); one that was not offered is no answer,
// and holds nothing. Who speaks HTTP/1.0 offers none.
func TestProtocolOfAList(t *testing.T) {
	for sent, want := range map[string]string{
		"1.1 websocket": "[101]", "1.1 foo, websocket": "[101]", "1.1 websocket/13": "[101]", "1.1 WebSocket": "[101]",
		"1.1 foo": "[502 502]", "1.0 websocket": "[502]",
	} {
		k := newCorner(t)
		k.early = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		version, offer, _ := strings.Cut(sent, " ")
		conn, err := net.Dial("tcp", k.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /x HTTP/"+version+"\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: "+offer+"\r\n\r\n")
		var statuses []int
		in := bufio.NewReader(conn)
		for res, err := http.ReadResponse(in, nil); err == nil; res, err = http.ReadResponse(in, nil) {
			statuses = append(statuses, res.StatusCode)
			if res.StatusCode == 101 {
				break
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if len(statuses) == 1 {
				_, _ = io.WriteString(conn, "GET /last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
			}
		}
		conn.Close()
		if got := fmt.Sprint(statuses); got != want || len(statuses) == 2 && k.up.Stats().Streams != 0 {
			t.Errorf("%s: %s, want %s; %+v", sent, got, want, k.up.Stats())
		}
	}
}

// A 1xx is for clients that know any (RFC 9110 §15.2), without what was for the upstream's connection (§7.6.1).
func TestHintsForThoseWhoKnowThem(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for version, want := range map[string]string{"1.1": "103 200 ", "1.0": "200 "} {
			k := newCorner(t)
			k.early = "HTTP/1.1 103 Early Hints\r\nConnection: X-Hop\r\nX-Hop: 1\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
			conn, err := net.Dial("tcp", k.address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, method+" /x HTTP/"+version+"\r\nHost: a.test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			text, err := io.ReadAll(conn)
			conn.Close()
			got := ""
			for line := range strings.SplitSeq(string(text), "\r\n") {
				if _, status, ok := strings.Cut(line, "HTTP/1."); ok {
					got += strings.Fields(status)[1] + " "
				}
			}
			if got != want || strings.Contains(string(text), "Hop") || err != nil {
				t.Errorf("%s by HTTP/%s: %q, %v; want %s", method, version, text, err, want)
			}
		}
	}
}

// What a client has sent behind its head when the protocol changes belongs to the new one.
func TestNothingIsLostInAnUpgrade(t *testing.T) {
	k := newCorner(t)
	k.early = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	conn, err := net.Dial("tcp", k.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly ")
	in := bufio.NewReader(conn)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	_, _ = io.WriteString(conn, "late")
	_ = conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(in); string(got) != "early late" {
		t.Errorf("the upstream gave back %q, %v", got, err)
	}
}

// A protocol that Connection does not name is not asked for (RFC 9110 §7.8): the page is answered as ever.
func TestUpgradeThatIsNotAskedFor(t *testing.T) {
	k := newCorner(t)
	statuses := k.send(t, "GET /x HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n")
	if got := fmt.Sprint(statuses); got != "[200 200]" || k.seen[0] != "GET /x HTTP/1.1 @ a.test" || k.keys[0] == "" {
		t.Errorf("answers %v, upstream saw %q, key %q", got, k.seen, k.keys)
	}
}

// What a gateway interface would take for the proxy's own word, or for a proxy to go through, ends here.
func TestFalseWordsEndHere(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		k := newCorner(t)
		statuses := k.send(t, method+" /x HTTP/1.1\r\nHost: a.test\r\nProxy: evil.test\r\nX_Forwarded_For: 1.2.3.4\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n")
		if got := fmt.Sprint(statuses); got != "[200 200]" || k.seen[0] != method+" /x HTTP/1.1 @ a.test [1]" {
			t.Errorf("answers %v, upstream saw %q", got, k.seen)
		}
	}
}

// Max-Forwards counts down, and who receives none left answers (RFC 9110 §7.6.2).
func TestMaxForwards(t *testing.T) {
	for sent, want := range map[string]string{
		"OPTIONS 0": "[204 200]", "OPTIONS 1": "[200 200] OPTIONS /x HTTP/1.1 @ a.test [0]", "TRACE 0": "[405 200]",
		"TRACE 3": "[200 200] TRACE /x HTTP/1.1 @ a.test [2]", "POST 0": "[200 200] POST /x HTTP/1.1 @ a.test [0]",
	} {
		k := newCorner(t)
		method, left, _ := strings.Cut(sent, " ")
		got := fmt.Sprint(k.send(t, method+" /x HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: "+left+"\r\n\r\n"))
		for _, seen := range k.seen[:len(k.seen)-1] {
			got += " " + seen
		}
		if got != want {
			t.Errorf("%s: %s, want %s", sent, got, want)
		}
	}
}

// Who closes its own half of the connection is taken for gone, as net/http cannot tell; but it is not sent an answer
// that looks whole and is empty.
func TestHalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		k := newCorner(t)
		k.ended = make(chan struct{})
		conn, err := net.Dial("tcp", k.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, method+" /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); len(got) > 0 {
			t.Errorf("%s: %q, %v", method, got, err)
		}
	}
}

// The star is the server itself, which is us: it says nothing of a page and asks nobody.
func TestOptionsOfTheServer(t *testing.T) {
	k := newCorner(t)
	if got := fmt.Sprint(k.send(t, "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n")); got != "[200 200]" || len(k.seen) != 1 {
		t.Errorf("answers %s, upstream saw %q", got, k.seen)
	}
}

// HTTP/1.0 need not name a host; what it means then is one thing, here and there.
func TestHTTP10(t *testing.T) {
	for _, sent := range []string{"GET /x HTTP/1.0\r\n\r\n", "GET /x HTTP/1.0\r\nHost:\r\nConnection: keep-alive\r\n\r\n"} {
		k := newCorner(t)
		if got := fmt.Sprint(k.send(t, sent)); got != "[200]" || len(k.seen) != 1 {
			t.Errorf("%q: answers %s, upstream saw %q", sent, got, k.seen)
		}
	}
}

// For HTTP/1.0 a body without a length is whole when the connection ends as it should (RFC 9112 §8): one that broke ends
// it otherwise.
func TestBrokenBodyForHTTP10(t *testing.T) {
	for end, whole := range map[string]bool{"0\r\n\r\n": true, "no chunk\r\n": false} {
		for _, method := range []string{"GET", "POST"} {
			k := newCorner(t)
			k.early = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n" + end
			conn, err := net.Dial("tcp", k.address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, method+" /x HTTP/1.0\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
			text, err := io.ReadAll(conn)
			conn.Close()
			if whole != (err == nil) || whole && !strings.HasSuffix(string(text), "\r\n\r\nabcde") {
				t.Errorf("%s, ended by %q: %q, %v", method, end, text, err)
			}
		}
	}
}

// Behind a body comes nothing that has its meaning in the head, announced or not, either way (RFC 9110 §6.5.1).
func TestTrailersAreNoHead(t *testing.T) {
	const body = "3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: evil\r\nX-Forwarded-Host: evil\r\nX_http_Method: DELETE\r\n" +
		"Connection: close\r\nSet-Cookie: a=b\r\nEtag: \"a\"\r\n\r\n"
	k := newCorner(t)
	k.send(t, "POST /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Forwarded-Host\r\n\r\n"+body)
	if got := fmt.Sprint(k.seen); got != `[POST /x HTTP/1.1 @ a.test abc +Etag="a" +X-Sum=1]` {
		t.Errorf("the upstream saw %s", got)
	}
	for _, announced := range []string{"", "Trailer: X-Sum\r\n", "Trailer: X-Sum, Set-Cookie\r\n"} {
		k := newCorner(t)
		k.early = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + announced + "\r\n" + body
		conn, err := net.Dial("tcp", k.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		text, err := io.ReadAll(conn)
		conn.Close()
		_, tail, _ := strings.Cut(string(text), "\r\nabc\r\n0\r\n")
		fields := strings.Split(strings.TrimSuffix(tail, "\r\n\r\n"), "\r\n")
		slices.Sort(fields)
		if got := strings.Join(fields, "; "); got != `Etag: "a"; X-Sum: 1` || err != nil {
			t.Errorf("announced %q: %q, %v", announced, got, err)
		}
	}
}

// FuzzTargets: whatever reaches the upstream is what the key says.
func FuzzTargets(f *testing.F) {
	for _, seed := range []string{"/x", "//x", "/%2f|", "/x?a;b", "http://b.test/x", "/x#y?z", "/\x80%20", "*"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, target []byte) {
		if len(target) > 1000 || bytes.ContainsAny(target, "\r\n") {
			return
		}
		k := newCorner(t)
		k.send(t, "GET "+string(target)+" HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.seen) > 0 {
			k.sameAsKey(t)
		}
	})
}
