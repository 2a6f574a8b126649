package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"time"

	"weir/policy"
	"weir/proxy/upstream"
	"weir/store"
)

func enter(f *Fill) step {
	began := time.Now()
	slot, err := f.up.Enter(f.ctx, f.place)
	f.report.Queued = time.Since(began)
	if err != nil {
		return f.fail(err, f.faultOf(err))
	}
	f.slot = slot
	if len(f.ask.Plan.Particular) == 0 {
		slot.For(f.ask.Plan.Key.Primary)
	}
	return ask
}

// faultOf names an error; one of ours (a drain, a deserted body) is no fault of the upstream's.
func (f *Fill) faultOf(err error) policy.Fault {
	switch cause := context.Cause(f.ctx); {
	case errors.Is(cause, ErrStalled), errors.Is(cause, context.DeadlineExceeded):
		return policy.Fault{Kind: policy.TimeoutBefore}
	case cause != nil:
		return policy.Fault{Kind: policy.BrokenWait}
	}
	return upstream.FaultOf(err)
}

// ErrStalled is how a body ends between whose bytes more than idle_timeout has passed.
var ErrStalled = errors.New("upstream stalled")

// ask sends the request: for confirmation when an answer is there that its asker may have, for the rest when a part is
// (R7). Who asks for himself alone does it on his own conditions, unless there is something to confirm.
func ask(f *Fill) step {
	p, plan := f.prior, &f.ask.Plan
	own, conditional := policy.Own(plan.Request)
	switch alone := f.ask.Why == Alone; {
	case f.ask.Why == Part:
		return f.send(http.Header{"Range": own["Range"], "If-Range": own["If-Range"]}) // others may join it
	case p != nil && plan.MayAskAbout(p.Stored):
		return f.send(policy.Validators(p.Stored))
	case alone && len(own) > 0:
		f.conditional = conditional
		return f.send(own)
	case p != nil && p.Kind == policy.Part && plan.Request.Method == http.MethodGet:
		if rest, ok := policy.Missing(p.Stored); ok {
			f.gap = true
			return f.send(rest)
		}
	}
	return f.send(nil)
}

func (f *Fill) send(extra http.Header) step {
	req, err := f.request(extra)
	if err != nil {
		return f.fail(err, policy.Fault{Kind: policy.BrokenWait})
	}
	asked := time.Now()
	f.sent.CompareAndSwap(0, f.table.order.Add(1))
	f.report.Requests++
	f.res, err = f.slot.Do(req)
	if err != nil {
		return f.fail(err, f.faultOf(err))
	}
	arrived := time.Now()
	f.report.Head, f.report.Status = arrived.Sub(f.report.Started), f.res.StatusCode
	res := policy.Response{Status: f.res.StatusCode, Header: f.res.Header, Asked: asked, Arrived: arrived, CloseDelimited: closeDelimited(f.res)}
	switch {
	case res.Status == http.StatusNotModified && !f.conditional:
		return func(f *Fill) step { return f.confirm(res) }
	case f.gap && (res.Status == http.StatusPartialContent || res.Status == http.StatusRequestedRangeNotSatisfiable):
		return func(f *Fill) step { return f.complete(res) }
	}
	return func(f *Fill) step { return f.answer(res) }
}

// again asks once more, for a whole answer and without conditions, in the same slot (R28).
func (f *Fill) again(why string) step {
	f.res.Body.Close()
	if f.prior == nil || f.plain {
		return f.fail(errors.New(why), policy.Fault{Kind: policy.Garbage})
	}
	f.plain, f.gap, f.conditional = true, false, false
	return func(f *Fill) step { return f.send(nil) }
}

// closeDelimited reports a body whose end is the connection's (RFC 9112 §6.3): it looks whole when it was cut.
func closeDelimited(res *http.Response) bool {
	return res.ContentLength < 0 && len(res.TransferEncoding) == 0 && res.ProtoMajor == 1
}

func (f *Fill) request(extra http.Header) (*http.Request, error) {
	plan := f.ask.Plan
	trace := &httptrace.ClientTrace{Got1xxResponse: f.got1xx}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(f.ctx, trace), plan.Request.Method, "http://upstream/", nil)
	if err != nil {
		return nil, err
	}
	if err := f.up.Aim(req, plan.Target); err != nil {
		return nil, err
	}
	req.Host = plan.Authority
	req.Header = f.ask.Policy.Outgoing(plan)
	for name, values := range extra {
		if len(values) > 0 {
			req.Header[name] = values
		}
	}
	// What the upstream is told about the client's side is what the key says: nothing else may shape the answer (B050).
	req.Header.Set("X-Forwarded-Host", plan.Authority)
	req.Header.Set("X-Forwarded-Proto", plan.Request.Scheme)
	req.Header.Add("Via", "1.1 weir")
	if _, named := req.Header["User-Agent"]; !named {
		req.Header["User-Agent"] = nil // do not let net/http add its own
	}
	return req, nil
}

func (f *Fill) got1xx(code int, h textproto.MIMEHeader) error {
	select {
	case f.interim <- Interim{Code: code, Header: http.Header(h)}:
	default: // nobody listens: a 1xx is a hint
	}
	return nil
}

// confirm is a 304's way: the stored answer is good for another lifetime.
func (f *Fill) confirm(res policy.Response) step {
	prior := f.prior
	if prior == nil || prior.Kind != policy.Answer || f.plain || f.lost.Load() {
		return f.again("304 to a request without conditions")
	}
	adm := f.ask.Policy.Freshen(f.ask.Plan, prior.Stored, res, f.moment())
	if adm.Reason == policy.Mismatched || adm.Private && adm.Reason != policy.RequestDirective {
		// It confirms something else, or what was kept may not be shared any more.
		return f.again("304 for something else")
	}
	f.res.Body.Close()
	f.slot.Leave()
	entry := &store.Entry{Stored: adm.Stored, Key: prior.Key, Body: prior.Body}
	entry.Header = adm.Shared
	f.spool.End(nil)
	f.publish(Result{Response: res, Admission: adm, Entry: entry})
	f.report.End = Confirmed
	if f.lease != nil || f.lateLease() {
		f.keep(entry, adm)
	}
	return nil
}

// complete joins the rest to the part that is stored: from here on it is an answer like any other.
func (f *Fill) complete(res policy.Response) step {
	part := f.prior
	whole, ok := policy.Complete(part.Stored, res)
	if !ok {
		return f.again("a range that was not asked for")
	}
	held := io.NewSectionReader(readerAt{f.ctx, part.Body}, 0, part.Body.Size())
	body := []io.Reader{held, f.res.Body}
	if part.Span.Start > 0 {
		body = []io.Reader{f.res.Body, held}
	}
	f.res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(body...), f.res.Body}
	f.res.ContentLength = part.Total
	f.prior = nil
	return f.answer(whole)
}

// readerAt reads a stored body.
type readerAt struct {
	ctx  context.Context
	body store.Body
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.body.ReadAt(r.ctx, p, off) }

// answer is everything but a 304: admitted or not, it is streamed to those aboard.
func (f *Fill) answer(res policy.Response) step {
	var prior *policy.Stored
	if p := f.prior; p != nil {
		prior = &p.Stored
	}
	adm := f.ask.Policy.Admit(f.ask.Plan, prior, res, f.moment())
	// Trailers are the asker's; what never ends is nobody else's (R6).
	switch {
	case upstream.Endless(f.res):
		adm.Keep, adm.Private, adm.Reason = 0, true, policy.StreamType
	case len(f.res.Trailer) > 0:
		adm.Keep, adm.Private, adm.Reason = 0, true, policy.Trailers
	}
	switch {
	case adm.Keep <= 0:
	case f.res.ContentLength > f.table.options.MaxBody:
		adm.Keep, adm.Reason = 0, policy.TooLarge
	}
	r := Result{Response: res, Admission: adm, Length: f.res.ContentLength, Trailer: slices.Collect(maps.Keys(f.res.Trailer))}
	if fault, failed := upstream.FaultOfStatus(f.res, res.Arrived); failed && adm.Keep == 0 {
		r.Fault = &fault
	}
	f.report.Reason = adm.Reason
	if upstream.Endless(f.res) {
		f.endless = true
		f.limit.Stop()
		if err := f.slot.Stream(); err != nil {
			return f.fail(err, policy.Fault{Kind: policy.Busy})
		}
	}
	if adm.Keep == 0 {
		f.spool.Unkeep()
	}
	if r.Fault != nil {
		f.report.End = Failed
		f.giveUp(*r.Fault)
	}
	early := adm.Private && adm.Particular // those who regroup must not find it again
	if early {
		f.dismiss(adm)
	}
	f.publish(r)
	if adm.Keep == 0 && !early {
		f.dismiss(adm)
	}
	if adm.Outdates {
		f.outdate()
	}
	return stream
}

// stream reads the body into the spool and, when it ended whole, commits.
func stream(f *Fill) step {
	err := f.read()
	if f.spool.Whole() { // the store reads it too, and until then it is held
		if copying, ok := f.spool.Join(); ok {
			copying.Stay()
			defer copying.Close()
		}
	}
	if err != nil {
		fault := policy.Fault{Kind: policy.Truncated}
		switch {
		case errors.Is(err, errDeserted):
			fault = policy.Fault{Kind: policy.BrokenWait}
		case context.Cause(f.ctx) != nil:
			if fault = f.faultOf(err); fault.Kind == policy.TimeoutBefore {
				fault.Kind = policy.TimeoutAfter
			}
			err = context.Cause(f.ctx)
		}
		if !isOurs(fault) {
			f.slot.Broke()
		}
		return f.fail(fmt.Errorf("body: %w", err), fault)
	}
	f.slot.Leave()
	f.trailer = f.res.Trailer // before the end that readers see
	f.spool.End(nil)
	if f.result.Admission.Keep == 0 || f.ended {
		if f.report.End == "" {
			f.report.End = Unstored
		}
		return nil
	}
	body, whole := f.spool.Body()
	if !whole {
		f.report.End, f.report.Reason = Unstored, f.unkept()
		return nil
	}
	if s := f.result.Admission.Stored; s.Kind == policy.Part && body.Size() != s.Span.Len() {
		f.report.End, f.report.Reason = Unstored, policy.PartialRefused
		return nil
	}
	f.report.End = Stored
	if f.lease == nil && !f.lateLease() {
		f.report.End = Unstored
		return nil
	}
	adm := f.result.Admission
	adm.Stored.Header = adm.Shared
	entry := &store.Entry{Stored: adm.Stored.Promoted(), Key: f.lease.Key, Body: body}
	f.keep(entry, adm)
	return nil
}

// read moves the body into the spool. Between two bytes at most idle_timeout may pass, unless it is a stream of events.
func (f *Fill) read() error {
	idle := f.up.Config().IdleTimeout
	if f.endless {
		idle = forever
	}
	return pump(f.ctx, source{f.res.Body, idle, func() { f.cancel(ErrStalled) }, f.outgrown}, f.spool)
}

// outgrown is called when a body turns out to be more than is kept: others need not wait for its end.
func (f *Fill) outgrown() {
	f.table.remove(f)
	if f.lease != nil && !f.ended {
		f.report.Reason = f.unkept()
		f.release(store.Outcome{End: store.Lapsed})
	}
}

// unkept is why the spool has given up keeping the body.
func (f *Fill) unkept() policy.Reason {
	if f.spool.Refused() {
		return policy.NoRoom
	}
	return policy.TooLarge
}

// forever is longer than any stream of events goes on.
const forever = 365 * 24 * time.Hour

func (f *Fill) moment() policy.Moment { return f.table.moment(f.ask.Plan) }
