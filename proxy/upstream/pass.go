package upstream

import (
	"context"
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
		req = req.Clone(req.Context()) // a RoundTripper leaves the caller's as it is
		req.Body = &upload{ReadCloser: req.Body, ctx: req.Context(), slot: slot, left: req.ContentLength}
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

// slowUpload is how long a client may be waited for, all in all, before its slot is lent to others.
const slowUpload = 250 * time.Millisecond

// upload is a request's body on its way. Whoever sends it slowly holds no slot meanwhile, and counts for max_streams: the
// upstream has nothing to do yet. The body's last bytes wait for a slot, as its work begins with them (R24).
type upload struct {
	io.ReadCloser
	ctx    context.Context
	slot   *Slot
	left   int64 // to come; negative: that is not known
	waited time.Duration
	failed atomic.Bool // it did not come whole
}

func (u *upload) Read(p []byte) (int, error) {
	begun := time.Now()
	lending := time.AfterFunc(slowUpload-u.waited, u.slot.lend)
	n, err := u.ReadCloser.Read(p)
	lending.Stop()
	u.waited += time.Since(begun)
	u.left = max(u.left-int64(n), min(u.left, 0))
	if err == io.EOF || u.left == 0 {
		if busy := u.slot.reclaim(u.ctx); busy != nil {
			n, err = 0, busy
		}
	}
	if err != nil && err != io.EOF {
		u.failed.Store(true)
	}
	return n, err
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
