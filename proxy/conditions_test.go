package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// served answers like a server that knows conditions and ranges, with these lines: a tag among them, or a date.
func served(body string, lines ...string) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		rec := httptest.NewRecorder()
		modified := time.Time{}
		for _, line := range lines {
			name, value, _ := cutField(line)
			rec.Header().Add(name, value)
			if name == "Last-Modified" {
				modified, _ = http.ParseTime(value)
			}
		}
		http.ServeContent(rec, r, "", modified, strings.NewReader(body))
		return rec.Result(), nil
	}
}

// sent is what the upstream was asked with, the last time.
func (w *world) sent(path string) http.Header {
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	asked := w.up.asked[path]
	return asked[len(asked)-1].Header
}

// Behind a marker each asks for himself, so on his own conditions and range: the upstream spares itself what the client
// has. What it answers is passed on, and is nobody else's.
func TestOwnConditionsBehindAMarker(t *testing.T) {
	const made = "Sun, 01 Feb 2026 00:00:00 GMT"
	for name, c := range map[string]struct {
		asked  []string
		status int
		body   string
	}{
		"the client has it":         {[]string{`If-None-Match: "b", "a"`}, 304, ""},
		"by its date":               {[]string{"If-Modified-Since: " + made}, 304, ""},
		"the client has another":    {[]string{`If-None-Match: "b"`}, 200, "0123456789"},
		"a range":                   {[]string{"Range: bytes=2-3"}, 206, "23"},
		"a range of what it has":    {[]string{"Range: bytes=2-3", `If-Range: "a"`}, 206, "23"},
		"a range of something else": {[]string{"Range: bytes=2-3", `If-Range: "b"`}, 200, "0123456789"},
		"a range beyond the end":    {[]string{"Range: bytes=20-"}, 416, "invalid range: failed to overlap\n"},
		"it, or a range of another": {[]string{"Range: bytes=2-3", `If-None-Match: "a"`}, 304, ""},
		"this or none":              {[]string{`If-Match: "a"`}, 200, "0123456789"},
		"another or none":           {[]string{`If-Match: "b"`}, 412, ""},
		"none that is newer":        {[]string{"If-Unmodified-Since: Sat, 31 Jan 2026 00:00:00 GMT"}, 412, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", served("0123456789", "Cache-Control: no-store", `Etag: "a"`, "Last-Modified: "+made))
				w.get("/p")
				r := w.get("/p", c.asked...)
				w.want("behind it", r, c.status, c.body, "weir; fwd=miss; detail=")
				for _, line := range c.asked {
					if name, value, _ := cutField(line); w.sent("/p").Get(name) != value {
						t.Errorf("upstream was asked with %v", w.sent("/p"))
					}
				}
				w.want("another", w.get("/p"), 200, "0123456789", "fwd=miss")
				if h := w.sent("/p"); h.Get("If-None-Match")+h.Get("Range")+h.Get("If-Match") != "" {
					t.Errorf("another's conditions: %v", h)
				}
				w.asked("/p", 3)
			})
		})
	}
}

// Who tells who he is on a route that shares by its own ttl asks for himself too. What is kept for others is not asked about:
// a 304 to that would confirm what he may not have.
func TestOwnConditionsOfOneWhoTellsWhoHeIs(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.TTL = time.Minute }}, func(w *world) {
		w.up.on("/p", served("page", `Etag: "a"`))
		w.want("plain", w.get("/p"), 200, "page", "stored")
		w.want("without a copy", w.get("/p", "Cookie: id=1"), 200, "page", "fwd=request; detail=particular-asker")
		if got := w.sent("/p").Get("If-None-Match"); got != "" {
			t.Errorf("asked about %s", got)
		}
		w.asked("/p", 2)
		w.want("with one", w.get("/p", "Cookie: id=1", `If-None-Match: "a"`), 304, "", "fwd=request")
		w.want("plain", w.get("/p"), 200, "page", "hit")
		w.asked("/p", 3)
	})
}

// What lies beside a marker is what is asked about, whatever the client has; the answer is compared with that here.
func TestBesideAMarkerTheStoredAnswerIsAskedAbout(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", `Etag: "a"`), respond(200, "Cache-Control: no-store", `Etag: "b"`),
			respond(304, `Etag: "a"`)))
		w.get("/p")
		time.Sleep(61 * time.Second)
		w.want("not to be stored", w.get("/p"), 200, "v2", "fwd=stale")
		r := w.get("/p", `If-None-Match: "c", "a"`)
		w.want("the copy is the client's, too", r, 304, "", "fwd=miss")
		if got := w.sent("/p").Get("If-None-Match"); got != `"a"` {
			t.Errorf("asked about %s", got)
		}
		w.want("it is good again", w.get("/p"), 200, "v1", "hit")
		w.asked("/p", 3)
	})
}

// The first answer that may be stored ends the marker, though it was asked for on conditions (R4).
func TestOwnConditionsEndAMarker(t *testing.T) {
	for _, asked := range []string{`If-None-Match: "b"`, `If-Match: "a"`} {
		t.Run(asked, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", served("0123456789", "Cache-Control: no-store", `Etag: "a"`))
				w.get("/p")
				w.up.on("/p", served("0123456789", "Cache-Control: max-age=60", `Etag: "a"`))
				if r := w.get("/p", asked); !strings.Contains(r.Header().Get("Cache-Status"), "stored") {
					t.Errorf("%d %v", r.Code, r.Header())
				}
				w.want("afterwards", w.get("/p"), 200, "0123456789", "hit")
				w.asked("/p", 2)
			})
		})
	}
}

// A 304 that nobody has asked for reaches nobody (B091).
func TestUnaskedNotModifiedBehindAMarker(t *testing.T) {
	for _, asked := range []string{"X: none", `If-Match: "a"`, "Range: bytes=0-1"} {
		inWorld(t, setup{}, func(w *world) {
			w.up.on("/p", inTurn(respond(200, "Cache-Control: no-store"), respond(304)))
			w.get("/p")
			w.want(asked, w.get("/p", asked), 502, "*", "detail=upstream-garbage")
		})
	}
}

// If-Match is the upstream's to judge. Where it would let the stored answer through that is served; else it goes on to the
// upstream, and what it says is passed on and kept for nobody.
func TestPreconditions(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", served("0123456789", "Cache-Control: max-age=60", `Etag: "a"`))
		w.want("cold, another", w.get("/p", `If-Match: "b"`), 412, "", "fwd=uri-miss")
		w.want("cold, this", w.get("/p", `If-Match: "a"`, "Range: bytes=2-3"), 206, "23", "fwd=uri-miss")
		w.asked("/p", 2)
		w.want("plain", w.get("/p"), 200, "0123456789", "fwd=uri-miss; stored")
		w.want("this", w.get("/p", `If-Match: "a"`), 200, "0123456789", "hit")
		w.want("a range of this", w.get("/p", `If-Match: "a"`, "Range: bytes=2-3"), 206, "23", "hit")
		w.want("this, which the client has", w.get("/p", `If-Match: "a"`, `If-None-Match: "a"`), 304, "", "hit")
		w.asked("/p", 3)
		w.want("another", w.get("/p", `If-Match: "b"`, "Range: bytes=2-3"), 412, "", "fwd=request")
		w.want("plain", w.get("/p"), 200, "0123456789", "hit")
		w.asked("/p", 4)

		w.up.on("/p", served("abcdefghij", "Cache-Control: max-age=60", `Etag: "b"`))
		w.want("the new one, of which nothing is known here", w.get("/p", `If-Match: "b"`), 200, "abcdefghij", "fwd=request")
		w.want("plain", w.get("/p"), 200, "0123456789", "hit") // its own lifetime
		time.Sleep(61 * time.Second)
		w.want("stale", w.get("/p", `If-Match: "a"`), 412, "", "fwd=stale")
		w.want("HEAD", <-w.client(0, "HEAD", "/p", `If-Match: "a"`), 412, "", "fwd=stale")
	})
}

// Whose answer is kept for nobody, nobody waits for; and he waits for nobody either.
func TestNobodyWaitsForWhatIsKeptForNobody(t *testing.T) {
	for _, asked := range []string{"Cache-Control: no-store", `If-Match: "a"`} {
		t.Run(asked, func(t *testing.T) {
			inWorld(t, setup{replicas: 2}, func(w *world) {
				w.up.on("/p", after(time.Second, served("page", "Cache-Control: max-age=60", `Etag: "a"`)))
				own := w.client(0, "GET", "/p", asked)
				time.Sleep(500 * time.Millisecond)
				var others []<-chan result
				for i := range 10 {
					others = append(others, w.client(i%2, "GET", "/p"))
				}
				synctest.Wait()
				late := w.client(1, "GET", "/p", asked)
				for _, c := range append(others, own, late) {
					if r := <-c; r.Code != 200 || r.took != time.Second {
						t.Errorf("%d after %v, Cache-Status %q", r.Code, r.took, r.Header().Get("Cache-Status"))
					}
				}
				w.asked("/p", 3)
				w.want("what is stored does for him", w.get("/p", asked), 200, "page", "hit")
			})
		})
	}
}

// With convert_head a HEAD of a page that nobody has fetches the page, once for all who ask by whatever method; its asker
// has the head, with the length.
func TestConvertHead(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.ConvertHead = true }}, func(w *world) {
		w.up.on("/p", after(time.Second, respond(200, "Cache-Control: max-age=60")))
		head := w.client(0, "HEAD", "/p", "Range: bytes=0-0")
		synctest.Wait()
		get := w.client(0, "GET", "/p")
		r := <-head
		w.want("HEAD", r, 200, "", "fwd=uri-miss; stored")
		if got := r.Header().Get("Content-Length"); got != "2" {
			t.Errorf("Content-Length %q", got)
		}
		w.want("GET meanwhile", <-get, 200, "v1", "fwd=uri-miss; collapsed")
		w.want("GET", w.get("/p"), 200, "v1", "hit")
		if r := w.up.asked["/p"][0]; r.Method != "GET" || r.Header.Get("Range") != "" {
			t.Errorf("asked by %s %v", r.Method, r.Header)
		}
		w.asked("/p", 1)

		w.up.on("/own", respond(200, "Cache-Control: no-store"))
		w.get("/own")
		w.want("HEAD of what is not shared", <-w.client(0, "HEAD", "/own"), 200, "", "fwd=miss")
		if r := w.up.asked["/own"][1]; r.Method != "HEAD" {
			t.Errorf("asked by %s", r.Method)
		}
	})
}

// A range that fails says nothing of the page: nobody else is told so (RFC 9110 §15.5.17).
func TestFailedRangeIsNotThePage(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		always := func(r *http.Request, n int) (*http.Response, error) { // of an error too, as many servers are set up
			res, err := served("0123456789", `Etag: "a"`)(r, n)
			res.Header.Set("Cache-Control", "max-age=60")
			return res, err
		}
		w.up.on("/p", after(time.Second, always))
		var same []<-chan result
		for range 3 {
			same = append(same, w.client(0, "GET", "/p", "Range: bytes=20-"))
		}
		synctest.Wait()
		other := w.client(0, "GET", "/p", "Range: bytes=20-", `If-Range: "b"`)
		for _, c := range same {
			w.want("beyond the end", <-c, 416, "*", "fwd=uri-miss")
		}
		w.want("on a condition that fails", <-other, 200, "0123456789", "weir")
		w.want("the page", w.get("/p"), 200, "0123456789", "weir")
		w.asked("/p", 2)
	})
}
