package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"weir/policy"
)

// RoundTrip lets a pass ask: it enters, asks, and leaves with the last byte of the body. What never ends leaves the
// budget at its head (R24).
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	slot, err := u.Enter(req.Context(), At(policy.ClientWaits))
	if err != nil {
		return nil, err
	}
	if req.Body != nil && req.Body != http.NoBody {
		req = req.WithContext(req.Context()) // a RoundTripper leaves the caller's as it is; a clone would copy the trailer too early
		body := &upload{ReadCloser: req.Body, ctx: req.Context(), slot: slot, left: req.ContentLength}
		if body.left == 0 {
			body.left = -1 // which beside a body means that it is not known
		}
		req.Body = body
	}
	res, err := slot.Do(req)
	if err != nil {
		slot.Leave()
		return nil, err
	}
	if Endless(res) {
		if err := slot.Stream(); err != nil {
			res.Body.Close()
			slot.Leave()
			return nil, err
		}
	}
	res.Body = leaving(res.Body, slot)
	return res, nil
}

const (
	// slowUpload is how long a client may be waited for, all in all, before its slot is lent to others.
	slowUpload = 250 * time.Millisecond
	// LeastRate is how many bytes a second a client moves at least, as long as it holds up others. It is no key: what is
	// right does not depend on the site.
	LeastRate = 16 << 10
	// tooSlow is how far behind that a body may be which takes the last of max_streams, or a slot that others queue for.
	tooSlow = 5 * time.Second
)

// ErrTooSlow: the client was cut off, as others waited for what it held.
var ErrTooSlow = errors.New("the request's body is too slow, and others wait")

// upload is a request's body on its way. Whoever sends it slowly holds no slot meanwhile, and counts for max_streams: the
// upstream has nothing to do yet. The body's last bytes wait for a slot, as its work begins with them (R24).
type upload struct {
	io.ReadCloser
	ctx    context.Context
	slot   *Slot
	left   int64 // to come; negative: that is not known
	sent   int64
	waited time.Duration
	failed atomic.Bool // it did not come whole
}

func (u *upload) Read(p []byte) (int, error) {
	begun := time.Now()
	lending := time.AfterFunc(slowUpload-u.waited, u.slot.lend)
	n, err := u.ReadCloser.Read(p)
	lending.Stop()
	u.waited += time.Since(begun)
	u.sent += int64(n)
	u.left = max(u.left-int64(n), min(u.left, 0))
	switch {
	case err == io.EOF || u.left == 0:
		if busy := u.slot.reclaim(u.ctx); busy != nil {
			n, err = 0, busy
		}
	case err == nil && u.behind() > tooSlow && u.slot.crowds():
		n, err = 0, ErrTooSlow
	}
	if err != nil && err != io.EOF {
		u.failed.Store(true)
	}
	return n, err
}

// behind is how far the client is behind the least rate.
func (u *upload) behind() time.Duration {
	return u.waited - time.Duration(u.sent)*time.Second/LeastRate
}

// Endless reports an answer that goes on for as long as both sides like: another protocol, or a stream of events.
func Endless(res *http.Response) bool {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "text/event-stream", "multipart/x-mixed-replace":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc")
}

// leaving ends slot when body does. An upgrade's body is the connection itself and stays writable.
func leaving(body io.ReadCloser, slot *Slot) io.ReadCloser {
	l := &leaver{ReadCloser: body, slot: slot}
	if w, ok := body.(io.Writer); ok {
		half, _ := body.(interface{ CloseWrite() error })
		return tunnel{l, w, half}
	}
	return l
}

// tunnel is an upgrade's body: one side may have said its last while the other goes on.
type tunnel struct {
	*leaver
	io.Writer
	half interface{ CloseWrite() error }
}

func (t tunnel) CloseWrite() error {
	if t.half == nil {
		return t.Close()
	}
	return t.half.CloseWrite()
}

type leaver struct {
	io.ReadCloser
	slot *Slot
}

func (l *leaver) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	// A stream's connection may be half closed: it is over only when it is closed.
	if err != nil && !l.slot.streams() {
		l.slot.Leave()
	}
	return n, err
}

func (l *leaver) Close() error {
	defer l.slot.Leave()
	return l.ReadCloser.Close()
}
