package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
	"weir/store"
)

// post sends a body along.
func (w *world) post(path string, lines ...string) <-chan result {
	r := httptest.NewRequestWithContext(w.t.Context(), "POST", "http://example.com"+path, strings.NewReader("x"))
	for _, line := range lines {
		if name, value, ok := cutField(line); ok {
			r.Header.Add(name, value)
		}
	}
	return w.send(0, r)
}

// slowly sends half of an answer's body, and the rest when its gate opens.
func slowly(gate <-chan struct{}, a answer) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		res, err := a(r, n)
		body, _ := io.ReadAll(res.Body)
		half := len(body) / 2
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(body[:half])), gated{gate}, strings.NewReader(string(body[half:]))))
		return res, err
	}
}

// An answer to POST that is the page from now on, by its Content-Location, saves the GET that follows; that GET waits
// for it when it is still on its way.
func TestAnswerToPostServesGet(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		gate := make(chan struct{})
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60"), slowly(gate, respond(200, "Cache-Control: max-age=60", "Content-Location: /p"))))
		w.get("/p")
		posted := w.post("/p")
		synctest.Wait()
		waiting := w.client(0, "GET", "/p")
		synctest.Wait()
		close(gate)
		w.want("POST", <-posted, 200, "v2", "fwd=method; stored")
		w.want("GET meanwhile", <-waiting, 200, "v2", "weir")
		w.want("GET afterwards", w.get("/p"), 200, "v2", "hit")
		w.want("HEAD", <-w.client(0, "HEAD", "/p"), 200, "", "hit")
		w.asked("/p", 2)
	})
}

// What a second write makes void is not stored over it, though the first one's answer ends later.
func TestAnswerToPostIsNotStoredOverALaterWrite(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		gate := make(chan struct{})
		w.up.on("/p", inTurn(slowly(gate, respond(200, "Cache-Control: max-age=60", "Content-Location: /p")), respond(204), respond(200, "Cache-Control: max-age=60")))
		first := w.post("/p")
		synctest.Wait()
		w.want("second", <-w.post("/p"), 204, "", "fwd=method")
		close(gate)
		w.want("first", <-first, 200, "v1", "fwd=method")
		w.want("GET", w.get("/p"), 200, "v3", "fwd=")
	})
}

// Only a body that came whole is stored, of an answer that may be; the right to fill does not outlast any other.
func TestAnswerToPostIsStoredWhole(t *testing.T) {
	head := []string{"Cache-Control: max-age=60", "Content-Location: /p"}
	for name, change := range map[string]func(*http.Response){
		"truncated": func(res *http.Response) {
			res.Body, res.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("v"), broken{io.ErrUnexpectedEOF})), 100
		},
		"too large": func(res *http.Response) {
			res.Body, res.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 9<<20)), -1
		},
		"of elsewhere":  func(res *http.Response) { res.Header.Set("Content-Location", "/q") },
		"with trailers": func(res *http.Response) { res.Trailer = http.Header{"X-Sum": nil} },
		"of events":     func(res *http.Response) { res.Header.Set("Content-Type", "text/event-stream") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", inTurn(func(r *http.Request, n int) (*http.Response, error) {
					res, err := respond(200, head...)(r, n)
					change(res)
					return res, err
				}, respond(200, head...)))
				<-w.post("/p")
				synctest.Wait()
				r := w.get("/p")
				w.want("GET", r, 200, "v2", "fwd=uri-miss; stored")
				if r.took != 0 {
					t.Errorf("it waited %v for nothing", r.took)
				}
			})
		})
	}
}

// Whoever asks for the page while such an answer is slow to come asks the upstream before long.
func TestAnswerToPostHoldsUpNobody(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		gate := make(chan struct{})
		w.up.on("/p", func(r *http.Request, nth int) (*http.Response, error) {
			if r.Method == "GET" {
				return respond(200, "Cache-Control: max-age=60")(r, nth)
			}
			return slowly(gate, respond(200, "Cache-Control: max-age=60", "Content-Location: /p"))(r, nth)
		})
		posting := w.post("/p")
		time.Sleep(time.Second)
		got := <-w.client(0, "GET", "/p")
		if got.Code != 200 || got.took > keepLease {
			t.Errorf("%d after %v, want it within %v", got.Code, got.took, keepLease)
		}
		close(gate)
		<-posting
		synctest.Wait()
		w.want("the page", w.get("/p"), 200, "v2", "hit")
	})
}

// A client that reads no more ends what is stored of it, too.
func TestAnswerToPostEndsWithItsClient(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		gate := make(chan struct{})
		w.up.on("/p", inTurn(slowly(gate, respond(200, "Cache-Control: max-age=60", "Content-Location: /p")), respond(200, "Cache-Control: max-age=60")))
		w.replicas[0].ServeHTTP(deaf{httptest.NewRecorder()}, httptest.NewRequestWithContext(w.t.Context(), "POST", "http://example.com/p", nil))
		r := w.get("/p")
		w.want("GET", r, 200, "v2", "fwd=uri-miss; stored")
		if r.took != 0 {
			t.Errorf("it waited %v for nothing", r.took)
		}
		close(gate)
	})
}

// deaf is a client that takes no body.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// RFC 9111 §4.3.5: a HEAD that tells that something else lies there by now ends what is stored of a GET.
func TestHeadTellsThatAPartIsOutdated(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", ranged("0123456789", `"a"`))
		w.want("cold range", w.get("/p", "Range: bytes=0-3"), 206, "0123", "stored")
		w.want("HEAD that agrees", <-w.client(0, "HEAD", "/p"), 200, "", "fwd=")
		w.want("the range", w.get("/p", "Range: bytes=0-3"), 206, "0123", "hit")
		w.up.on("/p", ranged("abcdefghij", `"b"`))
		w.want("HEAD that does not", <-w.client(0, "HEAD", "/p"), 200, "", "fwd=")
		w.want("the range", w.get("/p", "Range: bytes=0-3"), 206, "abcd", "fwd=")
	})
}

// Beside a marker a HEAD goes upstream as it is. One that confirms the stale copy freshens it; one that tells of another
// keeps it from standing in for a failed upstream.
func TestHeadBesideAStaleCopy(t *testing.T) {
	for name, c := range map[string]struct {
		head   []string
		status int
		body   string
		states string
	}{
		"agrees": {[]string{"Cache-Control: max-age=60", "X-New: 1"}, 200, "v1", "hit"},
		"length": {[]string{"Cache-Control: max-age=60", "Content-Length: 7"}, 500, "v4", "fwd=miss"},
		"tag":    {[]string{"Cache-Control: max-age=60", `Etag: "b"`}, 500, "v4", "fwd=miss"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", "Content-Length: 2"), respond(200, "Cache-Control: no-store"),
					respond(200, c.head...), respond(500)))
				w.get("/p")
				time.Sleep(61 * time.Second)
				w.want("not to be stored", w.get("/p"), 200, "v2", "fwd=stale")
				w.want("HEAD", <-w.client(0, "HEAD", "/p"), 200, "", "fwd=")
				if m := w.up.asked["/p"][2].Method; m != "HEAD" {
					t.Errorf("asked by %s", m)
				}
				r := w.get("/p")
				w.want("GET", r, c.status, c.body, c.states)
				if name == "agrees" && r.Header().Get("X-New") != "1" {
					t.Errorf("the fields of HEAD are not the entry's: %v", r.Header())
				}
			})
		})
	}
}

// A HEAD that may not be answered from what is stored asks about it like a GET, and what it brings is everybody's.
func TestHeadWithNoCacheBringsTheNewPage(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", `Etag: "a"`), respond(200, "Cache-Control: max-age=60", `Etag: "b"`)))
		w.get("/p")
		r := <-w.client(0, "HEAD", "/p", "Cache-Control: no-cache")
		synctest.Wait() // the body follows a head that HEAD is answered with
		w.want("HEAD", r, 200, "", "fwd=request")
		if got := r.Header().Get("Etag"); got != `"b"` {
			t.Errorf("ETag %s", got)
		}
		w.want("GET", w.get("/p"), 200, "v2", "hit")
	})
}

// notes is a store that tells what it is asked to purge, and cannot purge by tag.
type notes struct {
	store.Store
	purged *[]policy.Selector
}

func (n notes) Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (store.Purged, error) {
	*n.purged = append(*n.purged, sel)
	if sel.Tag != "" {
		return store.Purged{}, fmt.Errorf("purge %q: %w", sel.Tag, store.ErrUnavailable)
	}
	return n.Store.Purge(ctx, sel, mode)
}

// RFC 9875: a write makes void the groups that its answer names. A store that cannot is reported, and the client has its
// answer; but nothing is stored over what should be void.
func TestUnsafeMethodInvalidatesGroups(t *testing.T) {
	var purged []policy.Selector
	inWorld(t, setup{store: func(s store.Store) store.Store { return notes{s, &purged} }}, func(w *world) {
		w.up.on("/p", respond(200, `Cache-Group-Invalidation: "a", "b"`, "Location: /q", "Content-Location: /p", "Cache-Control: max-age=60"))
		w.want("POST", <-w.post("/p"), 200, "v1", "fwd=method; detail=store-unavailable")
		w.want("GET", w.get("/p"), 200, "v2", "fwd=uri-miss; stored")
		want := []policy.Selector{
			{Page: "api http://example.com/p"}, {Page: "api http://example.com/q"}, {Tag: "group http://example.com a"}, {Tag: "group http://example.com b"},
		}
		if !slices.Equal(purged, want) {
			t.Errorf("purged %v", purged)
		}
		if r := w.reports[0]; r.StoreFault != "purge" || r.Aborted || r.Status != 200 {
			t.Errorf("report %+v", r)
		}
	})
}

// validated answers 304 to whoever has its tag, and whole to everybody else.
func validated(tag string, a answer) answer {
	return func(r *http.Request, n int) (*http.Response, error) {
		if r.Header.Get("If-None-Match") == tag {
			return respond(304, "Etag: "+tag)(r, n)
		}
		res, err := a(r, n)
		res.Header.Set("Etag", tag)
		return res, err
	}
}

// Browsers that have the page do not keep the cache from having it: what they hold is compared here (RFC 9111 §4.3.2).
func TestClientsWithACopyWarmTheCache(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", validated(`"a"`, respond(200, "Cache-Control: max-age=60")))
		for range 5 {
			r := w.get("/p", `If-None-Match: "a"`)
			w.want("with a copy", r, 304, "", "weir")
			if r.Header().Get("Etag") != `"a"` || r.Header().Get("Content-Length") != "" {
				t.Errorf("head %v", r.Header())
			}
		}
		w.want("without", w.get("/p"), 200, "v1", "hit")
		w.asked("/p", 1)
	})
}

// A range of a stale page is taken from what validation brings: the confirmed page, or whatever lies there now.
func TestRangeOfAStalePage(t *testing.T) {
	old := respond(200, "Cache-Control: max-age=60", `Etag: "a"`, "Last-Modified: Sun, 01 Feb 2026 00:00:00 GMT")
	for name, c := range map[string]struct {
		now    answer
		status int
		body   string
	}{
		"confirmed": {respond(304, `Etag: "a"`), 206, "1"},
		"replaced":  {respond(200, "Cache-Control: max-age=60", `Etag: "b"`), 206, "2"},
		"gone":      {respond(404), 404, "v2"},
		"moved":     {respond(301, "Location: /q"), 301, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/p", inTurn(old, c.now))
				w.get("/p")
				time.Sleep(61 * time.Second)
				r := w.get("/p", "Range: bytes=1-1")
				w.want("range", r, c.status, c.body, "fwd=stale")
				if got := r.Header().Get("Content-Range") != ""; got != (c.status == 206) {
					t.Errorf("Content-Range %q", r.Header().Get("Content-Range"))
				}
				if got := w.up.asked["/p"][1].Header.Get("Range"); got != "" {
					t.Errorf("the refresh asks for %s only", got)
				}
			})
		})
	}
}

// What outgrows the store reaches everybody whole, and nobody is told that it is kept.
func TestTooLargeForTheStore(t *testing.T) {
	const size = 3 << 20
	inWorld(t, setup{config: func(c *Config) { c.MaxBody = 1 << 20 }}, func(w *world) {
		w.up.on("/p", after(time.Second, func(r *http.Request, n int) (*http.Response, error) {
			res, err := respond(200, "Cache-Control: max-age=60")(r, n)
			res.Body, res.ContentLength, res.TransferEncoding = io.NopCloser(io.LimitReader(zeros{}, size)), -1, []string{"chunked"}
			return res, err
		}))
		var clients []<-chan result
		for range 4 {
			clients = append(clients, w.client(0, "GET", "/p"))
		}
		for _, c := range clients {
			if r := <-c; r.Code != 200 || r.Body.Len() != size || r.aborted {
				t.Errorf("%d, %d bytes, aborted %v", r.Code, r.Body.Len(), r.aborted)
			}
		}
		synctest.Wait()
		if r := w.get("/p"); strings.Contains(r.Header().Get("Cache-Status"), "hit") || r.Body.Len() != size {
			t.Errorf("afterwards: %s, %d bytes", r.Header().Get("Cache-Status"), r.Body.Len())
		}
	})
}

// However many caches an answer has been through, it has one Age, and it counts on from the first (RFC 9111 §5.1).
func TestAgeIsOne(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", `Etag: "a"`, "Age: 50", "Via: 1.1 other"), respond(304, `Etag: "a"`, "Age: 5")))
		age := func(what string, r result, want string) {
			if got := r.Header()["Age"]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s: Age %q, want %s", what, got, want)
			}
		}
		age("miss", w.get("/p"), "50")
		time.Sleep(5 * time.Second)
		r := w.get("/p")
		age("hit", r, "55")
		if via := strings.Join(r.Header()["Via"], ", "); via != "1.1 other, 1.1 weir" {
			t.Errorf("Via %q", via)
		}
		time.Sleep(6 * time.Second)
		age("confirmed", w.get("/p"), "5")
		time.Sleep(3 * time.Second)
		age("hit again", w.get("/p"), "8")
		w.asked("/p", 2)
	})
}

// A reload brings the new page to everybody, in every way that clients ask for one.
func TestReloadRefreshesTheStoredCopy(t *testing.T) {
	for _, field := range []string{"Cache-Control: no-cache", "Cache-Control: No-Cache, stale-if-error=5", "Cache-Control: max-age=0", "Pragma: no-cache"} {
		inWorld(t, setup{}, func(w *world) {
			w.up.on("/p", respond(200, "Cache-Control: max-age=1000"))
			w.get("/p")
			w.want(field, w.get("/p", field), 200, "v2", "fwd=request")
			w.want("plain", w.get("/p"), 200, "v2", "hit")
		})
	}
}

// A route that strips cookies gives each to the one who asked for it, also when a refresh brings another.
func TestStrippedCookieIsItsAskersAlone(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.SetCookie = "strip" }}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, "Cache-Control: max-age=60", `Etag: "a"`, "Set-Cookie: sid=1"),
			respond(304, `Etag: "a"`, "Set-Cookie: sid=2"), respond(200, "Cache-Control: max-age=60", "Set-Cookie: sid=3")))
		cookies := func(what string, r result, want ...string) {
			if got := r.Header()["Set-Cookie"]; !slices.Equal(got, want) {
				t.Errorf("%s: Set-Cookie %q, want %q", what, got, want)
			}
		}
		cookies("miss", w.get("/p"), "sid=1")
		cookies("hit", w.get("/p"))
		time.Sleep(61 * time.Second)
		cookies("confirmed", w.get("/p"), "sid=2")
		cookies("hit", w.get("/p"))
		time.Sleep(61 * time.Second)
		cookies("replaced", w.get("/p"), "sid=3")
		cookies("hit", w.get("/p"))
		w.asked("/p", 3)
	})
}

// Fields that private and no-cache name are the asker's, of an answer as of a 304 (RFC 9111 §5.2.2.4); neither brings them
// to others.
func TestNamedFieldsAreNotReplayed(t *testing.T) {
	fields := []string{`Cache-Control: max-age=60, private="X-User", no-cache="Set-Cookie"`, `Etag: "a"`, "X-User: ann", "Set-Cookie: sid=1", "X-All: 1"}
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", inTurn(respond(200, fields...), respond(304, fields...)))
		if h := w.get("/p").Header(); h.Get("X-User") != "ann" || h.Get("Set-Cookie") != "sid=1" {
			t.Errorf("the asker's head %v", h)
		}
		for i, own := range []bool{false, true, false} { // a hit; who made the 304 come; a hit
			if i == 1 {
				time.Sleep(61 * time.Second)
			}
			r := w.get("/p")
			w.want("another", r, 200, "v1", "weir")
			if h := r.Header(); (h.Get("X-User") != "") != own || (h.Get("Set-Cookie") != "") != own || h.Get("X-All") != "1" {
				t.Errorf("another's head %v", h)
			}
		}
		w.asked("/p", 2)
	})
}

// What broke off has only what came of it: no word of ours is added.
func TestNothingIsAddedToABrokenBody(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
			res, err := respond(200, "Cache-Control: max-age=60")(r, n)
			res.Body, res.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("part"), broken{io.ErrUnexpectedEOF})), -1
			return res, err
		})
		if r := w.get("/p"); !r.aborted || r.Body.String() != "part" && r.Body.Len() > 0 {
			t.Errorf("aborted %v, %q", r.aborted, r.Body)
		}
	})
}

// What a write has made void is not for clients that take stale answers either (RFC 9111 §4.4).
func TestMaxStaleDoesNotReachBehindAWrite(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60"))
		w.get("/p")
		w.want("before it", w.get("/p", "Cache-Control: max-stale"), 200, "v1", "hit")
		<-w.post("/p")
		time.Sleep(time.Second)
		w.want("after the write", w.get("/p", "Cache-Control: max-stale"), 200, "v3", "fwd=stale")
	})
}

// A parameter that does not count for the key does not reach the upstream either: the first visitor's would be on everyone's
// page.
func TestIgnoredParametersShapeNoPage(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.Key.Query.Ignore = []string{"utm_*"} }}, func(w *world) {
		w.up.on("/p", func(r *http.Request, n int) (*http.Response, error) {
			return served("asked for "+r.URL.RequestURI(), "Cache-Control: max-age=60")(r, n)
		})
		w.want("the first visitor", w.get("/p?utm_source=evil&a=1"), 200, "asked for /p?a=1", "stored")
		w.want("the next", w.get("/p?a=1&utm_medium=x"), 200, "asked for /p?a=1", "hit")
		w.want("one without", w.get("/p?a=1"), 200, "asked for /p?a=1", "hit")
		w.want("another page", w.get("/p?utm_source=evil"), 200, "asked for /p", "stored")
		w.asked("/p", 2)
	})
}

// A part, and the word that there is none, are not the whole: what tells of that stays behind (RFC 9530 §2), and the
// latter is for nobody else.
func TestHeadOfARange(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(200, "Cache-Control: max-age=60", "Content-Md5: x", "Content-Digest: sha-256=:x:", "Content-Encoding: gzip", `Etag: "a"`))
		w.get("/p")
		for sent, status := range map[string]int{"bytes=0-0": 206, "bytes=0-0,1-1": 206, "bytes=9-": 416} {
			r := w.get("/p", "Range: "+sent)
			h := r.Header()
			if r.Code != status || h.Get("Content-Digest") != "" || h.Get("Content-Md5") != "" || (h.Get("Cache-Control") == "no-store") != (status == 416) ||
				status == 416 && (h.Get("Age") != "" || h.Get("Content-Encoding") != "") {
				t.Errorf("%s: %d %v", sent, r.Code, h)
			}
		}
	})
}

// Conditions are for every success (RFC 9110 §13.2.1).
func TestNotModifiedOfA203(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		w.up.on("/p", respond(203, "Cache-Control: max-age=60", `Etag: "a"`))
		w.get("/p")
		w.want("who has it", w.get("/p", `If-None-Match: "a"`), 304, "", "hit")
	})
}

// A body that ends with its connection may have been cut, so it is kept by a lifetime that its answer states only (R34),
// in whatever version: older servers end theirs in no other way.
func TestBodyThatEndsWithItsConnection(t *testing.T) {
	inWorld(t, setup{cache: func(c *policy.Cache) { c.TTL = time.Minute }}, func(w *world) {
		for path, c := range map[string]struct{ lines, status string }{
			"/stated": {"Cache-Control: max-age=60", "hit"}, "/silent": {"X: 1", "fwd=uri-miss; detail=close-delimited"},
		} {
			for minor := range 2 {
				path := fmt.Sprint(path, minor)
				w.up.on(path, func(r *http.Request, nth int) (*http.Response, error) {
					res, err := respond(200, c.lines)(r, nth)
					res.ProtoMinor, res.ContentLength = minor, -1
					return res, err
				})
				w.get(path)
				w.want(path, w.get(path), 200, "*", c.status)
			}
		}
	})
}

// A page that has gone, or that says no lifetime any more, is not served from an older copy, though nothing is kept in its
// place (RFC 9111 §4.3.3): neither in the copy's grace, nor after somebody's reload, nor when the upstream fails.
func TestCopyEndsWithItsPage(t *testing.T) {
	for name, gone := range map[string]answer{"404": respond(404), "no lifetime": respond(200)} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				w.up.on("/grace", inTurn(respond(200, "Cache-Control: max-age=1, stale-while-revalidate=60"), gone))
				w.up.on("/reload", inTurn(respond(200, "Cache-Control: max-age=600"), gone))
				w.get("/grace")
				w.get("/reload")
				time.Sleep(2 * time.Second)
				w.want("within grace", w.get("/grace"), 200, "v1", "hit")
				w.get("/reload", "Cache-Control: no-cache")
				for _, path := range []string{"/grace", "/reload"} {
					if r := w.get(path); r.Body.String() != "v3" {
						t.Errorf("%s: %d %q, %s", path, r.Code, r.Body, r.Header().Get("Cache-Status"))
					}
				}
				w.up.on("/reload", fails(io.ErrUnexpectedEOF))
				if r := w.get("/reload"); r.Code < 500 {
					t.Errorf("%d %q", r.Code, r.Body)
				}
			})
		})
	}
}
