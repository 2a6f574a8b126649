package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/policy"
)

// raw is an upstream that writes what it is told to, in pieces, and then hangs up if it shall. Each request of a
// connection has the answer of its number.
func raw(t *testing.T, answers ...[]string) *Upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go speak(conn, answers)
		}
	}()
	u, err := New(config("http://" + l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// speak ends a connection with its last answer, or with one whose last piece is "close".
func speak(conn net.Conn, answers [][]string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, pieces := range answers {
		if r, err := http.ReadRequest(in); err != nil || r == nil {
			return
		}
		for _, piece := range pieces {
			if piece == "close" {
				return
			}
			if _, err := io.WriteString(conn, piece); err != nil {
				return
			}
		}
	}
}

func ask(t *testing.T, u *Upstream, method string) (*http.Response, string, error) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
	if err := u.Aim(req, "/"); err != nil {
		t.Fatal(err)
	}
	req.RequestURI = ""
	res, err := u.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// How an answer is framed (RFC 9112 §6): each is read as the RFC says, or refused as no HTTP.
func TestFraming(t *testing.T) {
	const ok, host = "HTTP/1.1 200 OK\r\n", "X-A: 1\r\n"
	for name, c := range map[string]struct {
		pieces []string
		body   string // "!": refused
	}{
		"by length":                   {[]string{ok + "Content-Length: 2\r\n\r\nab"}, "ab"},
		"chunked":                     {[]string{ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"}, "ab"},
		"chunked in capitals":         {[]string{ok + "TRANSFER-ENCODING: CHUNKED\r\n\r\n2;x=y\r\nab\r\n0\r\n\r\n"}, "ab"},
		"to the end":                  {[]string{ok + "\r\nab", "close"}, "ab"},
		"identity":                    {[]string{ok + "Transfer-Encoding: identity\r\n" + host + "\r\nab", "close"}, "ab"},
		"nobody's coding":             {[]string{ok + host + "Transfer-Encoding: arizqhypgxofwne\r\n\r\nab", "close"}, "ab"},
		"in pieces":                   {[]string{"HT", "TP/1.1 200 OK\r\nTransfer-", "Encoding: identity\r\n\r", "\n", "ab", "close"}, "ab"},
		"with bare line feeds":        {[]string{"HTTP/1.1 200 OK\nTransfer-Encoding: identity\n\nab", "close"}, "ab"},
		"behind an interim head":      {[]string{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Transfer-Encoding: identity\r\n\r\nab", "close"}, "ab"},
		"behind one of its own":       {[]string{"HTTP/1.1 103 Early Hints\r\n\r\n", ok, "Transfer-Encoding: identity\r\n\r\nab", "close"}, "ab"},
		"a coding to undo":            {[]string{ok + "Transfer-Encoding: gzip\r\n\r\nab", "close"}, "!"},
		"a coding under chunks":       {[]string{ok + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"}, "!"},
		"chunks under no coding":      {[]string{ok + "Transfer-Encoding: chunked, identity\r\n\r\n2\r\nab\r\n0\r\n\r\n"}, "!"},
		"chunked twice":               {[]string{ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"}, "!"},
		"folded":                      {[]string{ok + "Transfer-Encoding:\r\n identity\r\n\r\nab", "close"}, "ab"},
		"by chunks and by length":     {[]string{ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"}, "!"},
		"by identity and by length":   {[]string{ok + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nab", "close"}, "!"},
		"by two lengths":              {[]string{ok + "Content-Length: 2\r\nContent-Length: 1\r\n\r\nab"}, "!"},
		"chunked in HTTP/1.0":         {[]string{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "close"}, "!"},
		"no HTTP":                     {[]string{"SSH-2.0-x\r\n"}, "!"},
		"a blank before the colon":    {[]string{ok + "X-A \t: 1\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"}, "ab"},
		"a blank and a fold":          {[]string{ok + "X-A : 1\r\nX-B: x\r\n :\r\nContent-Length : 2\r\n\r\nabc"}, "ab"},
		"a body that names a coding":  {[]string{ok + "Content-Length: 29\r\n\r\nTransfer-Encoding: identity\r\n"}, "Transfer-Encoding: identity\r\n"},
		"a body that looks like one":  {[]string{ok + "Content-Length: 49\r\n\r\n", ok + "Transfer-Encoding: identity\r\n\r\nx"}, ok + "Transfer-Encoding: identity\r\n\r\nx"},
		"a field that sounds like it": {[]string{ok + "X-Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nab"}, "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			u := raw(t, c.pieces)
			res, body, err := ask(t, u, "GET")
			switch {
			case c.body == "!" && (err == nil || FaultOf(err).Kind != policy.Garbage):
				t.Errorf("%v %q, %v (%v); want it refused as garbage", res, body, err, FaultOf(err).Kind)
			case c.body != "!" && (err != nil || body != c.body):
				t.Errorf("%q, %v", body, err)
			case err == nil && res.Header.Get("Transfer-Encoding") != "":
				t.Errorf("the field is left: %v", res.Header)
			case err == nil && strings.Contains(c.pieces[0], "X-A") && res.Header.Get("X-A") != "1":
				t.Errorf("a field is lost: %v", res.Header)
			}
			if s := u.Stats(); s.Requests != 1 {
				t.Errorf("asked %d times", s.Requests)
			}
		})
	}
}

// What Connection names is of one hop, and net/http hides Connection where it says close.
func TestNamedFieldsEndHere(t *testing.T) {
	const rest = "X-A: 1\r\nX-Hop: secret\r\nCache-Control: private\r\nContent-Length: 2\r\n\r\nab"
	for connection, want := range map[string]string{
		"close": "secret", "X-Hop, close": "", "Close\r\nConnection: x-hop": "", "close, cache-control, content-length, transfer-encoding": "secret",
	} {
		u := raw(t, []string{"HTTP/1.1 200 OK\r\nConnection: " + connection + "\r\n" + rest})
		res, body, err := ask(t, u, "GET")
		if err != nil || body != "ab" || res.Header.Get("X-Hop") != want || res.Header.Get("Cache-Control") != "private" || res.Header.Get("X-A") != "1" {
			t.Errorf("%q: %v %q, %v", connection, res, body, err)
		}
	}
}

// What follows on a connection is judged too, and is answered for itself: nothing of one answer is left for the next.
func TestFramingOfTheNextAnswer(t *testing.T) {
	chunked := []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n", "a\r\n0\r\n", "\r\n"}
	for name, c := range map[string]struct {
		method string
		first  []string
	}{
		"after chunks, their end in a packet of its own": {"GET", chunked},
		"after a HEAD that says chunked":                 {"HEAD", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}},
		"after a 304 that says chunked":                  {"GET", []string{"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"}},
		"after nothing":                                  {"GET", []string{"HTTP/1.1 204 No Content\r\n\r\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := raw(t, c.first, []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nsecond"})
			if _, _, err := ask(t, u, c.method); err != nil {
				t.Fatal(err)
			}
			if _, body, err := ask(t, u, "GET"); err != nil || body != "second" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}

// The heads of an encrypted upstream are read too, where it has not chosen HTTP/2.
func TestFramingUnderTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			_, _ = io.WriteString(w, "HTTP/2")
			return
		}
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = out.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nab")
		_ = out.Flush()
	}))
	for _, c := range []struct {
		http2 bool
		body  string
	}{{false, "ab"}, {true, "HTTP/2"}} {
		t.Run(c.body, func(t *testing.T) {
			s := httptest.NewUnstartedServer(s.Config.Handler)
			s.EnableHTTP2 = c.http2
			s.StartTLS()
			defer s.Close()
			cfg := config(s.URL)
			u, err := With(cfg, transport(cfg, s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs))
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			if _, body, err := ask(t, u, "GET"); err != nil || body != c.body {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}

// An upstream that does not go on with its handshake is given up after connect_timeout.
func TestHandshakeTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := config("https://" + l.Addr().String())
	c.ConnectTimeout, c.ResponseTimeout = 50*time.Millisecond, time.Minute
	u, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if _, _, err := ask(t, u, "GET"); err == nil || FaultOf(err).Kind != policy.TimeoutBefore && FaultOf(err).Kind != policy.Refused {
		t.Errorf("%v", err)
	}
}

// Only a head is waited for: not the end of what is none, nor of another protocol's words, nor of what is too long.
func TestWhatIsNoHeadIsNotHeldBack(t *testing.T) {
	for name, sent := range map[string]string{
		"no HTTP": "SSH-2.0-x\r\n", "another protocol": "HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/ is not spoken here", "too long": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead),
	} {
		dry := func() { t.Errorf("%s: it waits for more", name) }
		c := &framed{Conn: &pieces{left: []byte(sent), step: 1 << 10, dry: dry}}
		c.due.Store(true)
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
			t.Errorf("%s: %.50q, %v", name, got, err)
		}
	}
}

// However a head is cut into packets, the same comes out; and what is no head comes out as it was.
func FuzzFramed(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nab", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nab", "HTTP/1.1\n\n", "x", "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n",
	} {
		f.Add([]byte(seed), uint8(3))
		f.Add([]byte(seed), uint8(0))
	}
	f.Fuzz(func(t *testing.T, sent []byte, size uint8) {
		read := func(step int) string {
			c := &framed{Conn: &pieces{left: sent, step: step}}
			c.due.Store(true)
			got, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		}
		whole, cut := read(1<<20), read(int(size)+1)
		// Fields come out in any order when there is something to change.
		if len(whole) != len(cut) {
			t.Errorf("%q whole, %q in pieces", whole, cut)
		}
		if s := strings.ToLower(string(sent)); !strings.Contains(s, "transfer-encoding") && !strings.ContainsAny(s, ":") && cut != string(sent) {
			t.Errorf("%q became %q", sent, cut)
		}
	})
}

// pieces is a connection that gives a few bytes at a time.
type pieces struct {
	net.Conn
	left []byte
	step int
	dry  func() // called when there are no more
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		if p.dry != nil {
			p.dry()
		}
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.step)], p.left)
	p.left = p.left[n:]
	return n, nil
}
