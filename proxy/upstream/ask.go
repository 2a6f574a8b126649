package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"weir/policy"
)

// errBroke: a kept connection ended before an answer came, and the request is not sent again.
var errBroke = errors.New("the connection broke, and the request is not to be sent twice")

// Do asks; a member that cannot be reached has the next one asked. Only GET, HEAD and OPTIONS without a body are sent
// again (R29).
func (s *Slot) Do(req *http.Request) (*http.Response, error) {
	caller := req.Context()
	a := &attempt{u: s.u, repeatable: repeatable(req)}
	a.ctx, a.stop = context.WithCancelCause(caller) // it ends with the caller's: the answer's body lives in it
	req = req.WithContext(httptrace.WithClientTrace(a.ctx, &httptrace.ClientTrace{GotConn: a.chosen}))
	res, err := s.u.transport.RoundTrip(req)
	for range len(s.u.members) - 1 {
		if err == nil || FaultOf(err).Kind != policy.Refused || !a.repeatable {
			break
		}
		s.u.elsewhere(req)
		res, err = s.u.transport.RoundTrip(req)
	}
	switch {
	case err == nil:
		res, err = sane(req, res)
	case errors.Is(context.Cause(a.ctx), errBroke):
		err = fmt.Errorf("upstream %q: %w", s.u.config.Name, errBroke)
	}
	v := verdictOf(caller, s.page, res, err)
	if body, ok := req.Body.(*upload); ok && body.failed.Load() && err != nil {
		v = unknown // it was never asked (R22)
	}
	if err != nil && v != unknown {
		s.u.failures.Add(1)
	}
	s.u.circuit.record(v, &s.tries, s.page)
	return res, err
}

// attempt is a request on its way. http.Transport sends one again by itself when a kept connection broke before an
// answer came: what has no body and is a GET, HEAD, OPTIONS or TRACE, or names itself repeatable by Idempotency-Key or
// X-Idempotency-Key. Here it is seen, counted, and stopped where R29 does not want it.
type attempt struct {
	u          *Upstream
	repeatable bool
	ctx        context.Context
	stop       context.CancelCauseFunc
	last       *framed // the connection that was chosen before
}

// chosen is told of the connection that the request goes out on, before it does. HTTP/2 sends again only what the server
// says that it has not looked at (RFC 9113 §8.7).
func (a *attempt) chosen(info httptrace.GotConnInfo) {
	conn, _ := info.Conn.(*framed)
	switch {
	case a.last == nil || conn == nil:
		a.u.asked()
	case !a.last.sent.Load(): // nothing of it went out before
	case a.repeatable && a.u.repeats.take():
		a.u.repeated.Add(1)
		a.u.asked()
	default:
		a.stop(errBroke)
		conn.Close() // net/http may have written before it looks
		return
	}
	if conn != nil {
		conn.expectHead()
	}
	a.last = conn
}

func (u *Upstream) asked() {
	u.requests.Add(1)
	u.repeats.earn()
}

// repeatable: a method that RFC 9110 §9.2.1 calls safe, and that has no body that may be half sent.
func repeatable(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return req.Body == nil || req.Body == http.NoBody
	}
	return false
}

const (
	// each request allows for a tenth of a repeat, and so many are kept for a time of need.
	each = 10
	kept = 10 * each
)

// allowance is how many requests may be sent again: when every kept connection breaks at once, the upstream that comes
// back is not asked everything twice.
type allowance struct{ left atomic.Int64 }

func (a *allowance) earn() {
	if a.left.Load() < kept {
		a.left.Add(1)
	}
}

func (a *allowance) take() bool {
	if a.left.Add(-each) >= 0 {
		return true
	}
	a.left.Add(each)
	return false
}

// errNotHTTP: what came can be parsed, and yet means nothing.
var errNotHTTP = errors.New("malformed answer")

// sane refuses what net/http lets through: a status that is none, and another protocol than was asked for (RFC 9110
// §7.8), which would leave our client with a connection that speaks neither.
func sane(req *http.Request, res *http.Response) (*http.Response, error) {
	switch {
	case res.StatusCode < 100 || res.StatusCode > 999:
		res.Body.Close()
		return nil, fmt.Errorf("%w: status %d", errNotHTTP, res.StatusCode)
	case res.StatusCode == http.StatusSwitchingProtocols && !offers(req.Header, res.Header.Get("Upgrade")):
		res.Body.Close()
		return nil, fmt.Errorf("%w: 101 to %q, which the request did not offer", errNotHTTP, res.Header.Get("Upgrade"))
	}
	return res, nil
}

// offers reports whether a request lists a protocol, in whatever version.
func offers(h http.Header, protocol string) bool {
	bare := func(p string) string {
		name, _, _ := strings.Cut(p, "/")
		return strings.ToLower(strings.TrimSpace(name))
	}
	for offer := range strings.SplitSeq(strings.Join(h["Upgrade"], ","), ",") {
		if bare(offer) != "" && bare(offer) == bare(protocol) {
			return true
		}
	}
	return false
}
