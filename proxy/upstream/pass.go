package upstream

import (
	"io"
	"net/http"
	"strings"

	"weir/policy"
)

// RoundTrip lets a pass ask: it enters, asks, and leaves with the last byte of the body. What never ends leaves the
// budget at its head (R24).
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	slot, err := u.Enter(req.Context(), At(policy.ClientWaits))
	if err != nil {
		return nil, err
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
	if err != nil && !l.slot.stream.Load() {
		l.slot.Leave()
	}
	return n, err
}

func (l *leaver) Close() error {
	defer l.slot.Leave()
	return l.ReadCloser.Close()
}
