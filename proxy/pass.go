package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

// pass is a request that goes straight through, by the standard reverse proxy: upgrades, 1xx, trailers, flushing and
// half-closed connections are already right there.
func pass(why policy.Reason) *state {
	return &state{"pass", func(x *exchange) *state {
		x.report.Action, x.report.Reason = policy.Pass, why
		if answered := x.hops() || x.readIn(); answered {
			return nil
		}
		up := x.h.upstreams[x.plan.Route.Upstream]
		var asks http.RoundTripper = up
		if x.w.expects {
			asks = expecting{up, x.w}
		}
		(&httputil.ReverseProxy{
			Rewrite:        func(p *httputil.ProxyRequest) { x.rewrite(p, up) },
			Transport:      asks,
			FlushInterval:  -1,
			ModifyResponse: x.passed,
			ErrorHandler:   x.notPassed,
			ErrorLog:       log.New(io.Discard, "", 0), // the report has it
		}).ServeHTTP(x.w, x.r)
		return nil
	}}
}

// smallUpload is what is read in before the upstream is asked, so that a slow client does not hold its slot (R24).
const smallUpload = 64 << 10

// readIn takes in a small body, as long as there is memory for it and it comes at the least rate; what it has not taken
// in streams, as a larger one does. It reports whether the exchange ended with that. One that waits to be asked for
// (Expect) is the upstream's to ask for, and of one without a length it is not known whether its client waits for an
// answer in between: both stream.
func (x *exchange) readIn() (answered bool) {
	n := x.r.ContentLength
	if n <= 0 || n > smallUpload || x.w.expects {
		return false
	}
	begun, limit := time.Now(), lastPatience+time.Duration(n)*time.Second/upstream.LeastRate
	body, part := make([]byte, 0, min(n, 4<<10)), make([]byte, 4<<10)
	for int64(len(body)) < n {
		got, err := x.r.Body.Read(part[:min(int64(len(part)), n-int64(len(body)))])
		body = append(body, part[:got]...)
		switch {
		case int64(len(body)) == n:
		case err != nil:
			x.badBody(err)
			return true
		case time.Since(begun) > limit || !x.borrow(int64(got)):
			x.r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(body), x.r.Body), x.r.Body}
			return false
		}
	}
	_, _ = x.r.Body.Read(make([]byte, 1)) // its end, which lifts the deadline
	x.r.Body = io.NopCloser(bytes.NewReader(body))
	return false
}

// borrow takes memory for the request's body until the exchange ends; false: there is none.
func (x *exchange) borrow(n int64) bool {
	if !x.h.table.Borrow(n) {
		return false
	}
	x.borrowed += n
	return true
}

// badBody answers a client whose body cannot be read: that says nothing of the upstream.
func (x *exchange) badBody(err error) {
	why := policy.BadRequest
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, upstream.ErrTooSlow) {
		why = policy.TooSlow
	}
	x.report.Action, x.report.Reason, x.report.Err = policy.Refuse, why, err
	x.problem(why, 0)
}

// hops counts down Max-Forwards, and answers as the last recipient when it is used up (RFC 9110 §7.6.2).
func (x *exchange) hops() (answered bool) {
	left := x.r.Header.Get("Max-Forwards")
	if left == "" || x.r.Method != http.MethodTrace && x.r.Method != http.MethodOptions {
		return false
	}
	n, err := strconv.ParseUint(left, 10, 31)
	if err != nil || n > 0 {
		x.r.Header.Set("Max-Forwards", strconv.FormatUint(max(n, 1)-1, 10))
		return false
	}
	status := http.StatusNoContent
	if x.r.Method == http.MethodTrace {
		status = http.StatusMethodNotAllowed
	}
	x.report.Action, x.report.Reason = policy.Refuse, policy.LastHop
	x.w.Header().Set("Allow", "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE")
	x.head(status)
	return true
}

// rewrite aims the request, as it came, at the upstream. What it says of the client's side is our own view.
func (x *exchange) rewrite(p *httputil.ProxyRequest, up *upstream.Upstream) {
	target := policy.EscapedPath(x.r.URL)
	if x.r.URL.RawQuery != "" || x.r.URL.ForceQuery {
		target += "?" + x.r.URL.RawQuery
	}
	if err := up.Aim(p.Out, target); err != nil {
		x.report.Err = err // an escaped path that net/http has parsed unescapes
	}
	p.Out.Host = x.plan.Authority
	policy.StripFalse(p.Out.Header)
	if x.h.trusted(x.r.RemoteAddr) {
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	p.Out.Header.Set("X-Forwarded-Host", x.plan.Authority)
	p.Out.Header.Set("X-Forwarded-Proto", x.plan.Request.Scheme)
	p.Out.Header.Add("Via", "1.1 weir")
	if strings.Contains(strings.ToLower(p.Out.Header.Get("Upgrade")), "h2c") {
		// A tunnel past every rule of ours. No client needs it any more (RFC 9113 §3.1).
		for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
			p.Out.Header.Del(name)
		}
	}
	if _, named := p.In.Header["User-Agent"]; !named {
		p.Out.Header["User-Agent"] = nil
	}
	policy.StripTrailers(p.In.Trailer)
	p.Out.Trailer = p.In.Trailer // which fills when the body has been read, and is copied before that
	x.out = p.Out
}

// passed is called with the upstream's head, before ours is sent: an unsafe method has invalidated by then (R13).
func (x *exchange) passed(res *http.Response) error {
	x.report.FwdStatus = res.StatusCode
	x.invalidate(res)
	keep := x.posted(res)
	x.dress(res.Header)
	res.Header.Add("Via", "1.1 weir")
	if res.StatusCode == http.StatusSwitchingProtocols {
		// The client offers a list (RFC 9110 §7.8), and httputil wants to see but the one that was chosen.
		x.out.Header["Upgrade"] = res.Header["Upgrade"]
	}
	x.report.Status = res.StatusCode
	x.cacheStatus(res.Header)
	// Trailers come with the body's end, and are read where the body is: that one is not taken ahead.
	if !upstream.Endless(res) && (res.Body != http.NoBody || keep != nil) && len(res.Trailer) == 0 {
		up := x.h.upstreams[x.plan.Route.Upstream]
		ahead := x.h.table.ReadAhead(res.Body, up, keep)
		ahead.OnCut(x.w.sever)
		res.Body = ahead
	} else if len(res.Trailer) > 0 {
		res.Body = &stalling{res.Body, x.h.upstreams[x.plan.Route.Upstream].Config().IdleTimeout}
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		policy.StripTrailers(res.Trailer)
		res.Body = &trailed{res.Body, &res.Trailer}
	}
	return nil
}

// trailed is a body behind which comes only what may: httputil and net/http hand on every field that was not announced.
type trailed struct {
	io.ReadCloser
	trailer *http.Header
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		policy.StripTrailers(*t.trailer)
	}
	return n, err
}

// stalling is an upstream's body that ends when nothing comes for as long as idle.
type stalling struct {
	io.ReadCloser
	idle time.Duration
}

func (s *stalling) Read(p []byte) (int, error) {
	timer := time.AfterFunc(s.idle, func() { s.Close() })
	defer timer.Stop()
	return s.ReadCloser.Read(p)
}

func (x *exchange) invalidate(res *http.Response) {
	mode := store.MustValidate
	if x.plan.Route.Cache.Invalidate == "soft" {
		mode = store.Soft
	}
	for _, sel := range x.policy.Invalidates(x.plan, policy.Response{Status: res.StatusCode, Header: res.Header}) {
		x.void(sel, mode)
	}
}

// void purges on an exchange's own account. That it could not is the store's fault, and the client has its answer.
func (x *exchange) void(sel policy.Selector, mode store.Mode) {
	if _, err := x.h.store.Purge(context.WithoutCancel(x.r.Context()), sel, mode); err != nil {
		x.report.StoreFault, x.report.StoreWhy, x.report.Err = "purge", policy.StoreUnavailable, err
	}
}

// notPassed is called when the upstream gave no answer.
func (x *exchange) notPassed(_ http.ResponseWriter, _ *http.Request, err error) {
	x.report.Err = err
	refused := x.w.refused()
	switch {
	case errors.Is(refused, os.ErrDeadlineExceeded), errors.Is(err, upstream.ErrTooSlow):
		x.badBody(err) // net/http takes the former for a client that has left; it may still listen
		return
	case x.gone():
		panic(http.ErrAbortHandler)
	case refused != nil:
		x.badBody(refused)
		return
	}
	x.fault = upstream.FaultOf(err)
	x.report.Action, x.report.Reason = policy.Refuse, policy.FaultReason(x.fault)
	x.problem(x.report.Reason, 0)
}

// cutField takes "Name: value" apart.
func cutField(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	return textproto.TrimString(name), textproto.TrimString(value), ok
}
