package proxy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"time"

	"weir/policy"
	"weir/proxy/fill"
)

// content is an answer before the client's conditionals, range and method are applied to it.
type content struct {
	status int
	stored policy.Stored
	size   int64 // -1: unknown
	body   source
}

// source copies a span of a body. A source of unknown size is asked for all of it: End is -1.
type source interface {
	copy(w io.Writer, span policy.Span) error
}

// deliver answers, from what is stored or from a running fill.
func deliver(d policy.Decision) *state {
	return &state{"deliver", func(x *exchange) *state {
		x.report.Action, x.report.Reason, x.report.Age = d.Action, d.Reason, d.Age
		if x.fill != nil && x.fill.Result().Entry == nil && x.fill.Result().Outcome == nil {
			x.fromFill(d)
		} else {
			x.fromEntry(d)
		}
		return nil
	}}
}

// fromEntry answers from what is stored: a hit, or what another replica or a 304 has just made good again.
func (x *exchange) fromEntry(d policy.Decision) {
	e := x.entry
	x.report.Hit = x.unasked || x.report.Reason.Forward() == "" && x.report.Reason != policy.StaleIfError && x.report.Reason != policy.SoftTimeout
	if x.report.Hit {
		x.report.TTL = time.Until(e.FreshUntil)
	} else {
		x.report.Action = policy.Fetch
	}
	h := x.w.Header()
	x.askersOwn(h)
	replace(h, e.Header)
	h.Set("Age", strconv.FormatInt(int64(max(d.Age, 0)/time.Second), 10))
	c := content{status: e.Status, stored: e.Stored, size: e.Body.Size(), body: entrySource{x}}
	if e.Kind == policy.Part {
		// Only ranges inside it come here: they are taken from the whole that it is a part of.
		h.Del("Content-Range")
		c.status, c.size = http.StatusOK, e.Total
	}
	x.send(c)
}

// askersOwn are the fields of a 304 that are not stored (RFC 9111 §5.2.2.4): who made it come has them, and nobody else.
func (x *exchange) askersOwn(h http.Header) {
	if !x.mine {
		return
	}
	r := x.fill.Result()
	if r.Entry == nil || r.Response.Status != http.StatusNotModified {
		return
	}
	replace(h, r.Response.Header)
	policy.StripHop(h)
	withoutContent(h)
}

// withoutContent takes away what tells of the bytes that follow, and not of the page.
func withoutContent(h http.Header) {
	for _, name := range [...]string{
		"Content-Type", "Content-Length", "Content-Encoding", "Content-Language", "Content-Range", "Accept-Ranges", "Content-Digest", "Content-Md5",
	} {
		h.Del(name)
	}
}

// fromFill answers from a body that is still coming. The asker has the upstream's own head, joiners the shared one.
func (x *exchange) fromFill(d policy.Decision) {
	r := x.fill.Result()
	x.report.Action = policy.Fetch
	x.report.Stored = x.mine && x.fill.Keeps()
	if r.Admission.Reason != policy.None {
		x.report.Detail = r.Admission.Reason
	}
	h := x.w.Header()
	if x.mine {
		replace(h, r.Response.Header)
		policy.StripHop(h)
		for _, name := range r.Trailer {
			h.Add("Trailer", name)
		}
	} else {
		replace(h, r.Admission.Shared)
		h.Set("Age", strconv.FormatInt(int64(max(d.Age, 0)/time.Second), 10))
	}
	x.send(content{status: r.Response.Status, stored: r.Admission.Stored, size: r.Length, body: fillSource{x}})
	if x.mine && len(r.Trailer) > 0 && x.r.Method != "HEAD" && x.report.Status == r.Response.Status {
		replace(h, x.fill.Trailer())
	}
}

// replace makes h a copy of from. The values are shared: nobody writes into them.
func replace(h, from http.Header) {
	for name, values := range from {
		h[name] = values
	}
}

// send applies the client's conditionals, range and method (RFC 9110 §13.2.2), and writes.
func (x *exchange) send(c content) {
	h := x.w.Header()
	x.dress(h)
	if c.status/100 == 2 && policy.NotModified(x.plan.Request, c.stored) {
		withoutContent(h)
		x.head(http.StatusNotModified)
		return
	}
	spans, err := x.spans(&c)
	if err != nil || len(spans) > 0 {
		h.Del("Content-Digest") // they are of the whole (RFC 9530 §2)
		h.Del("Content-Md5")
	}
	switch {
	case err != nil:
		for _, name := range [...]string{"Content-Length", "Content-Encoding", "Age", "Expires", "Set-Cookie"} {
			h.Del(name)
		}
		h.Set("Cache-Control", "no-store") // it is about this range, and nobody else's
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", c.size))
		x.head(http.StatusRequestedRangeNotSatisfiable)
	case len(spans) == 0:
		x.whole(c)
	case len(spans) == 1:
		h.Set("Content-Range", contentRange(spans[0], c.size))
		h.Set("Content-Length", strconv.FormatInt(spans[0].Len(), 10))
		x.head(http.StatusPartialContent)
		x.body(c, spans[0])
	default:
		x.parts(c, spans)
	}
}

// spans is what the client asks for of c; none: the whole. While the length is not known, one range that names both
// its ends is answered once its last byte is here, and says that the length is unknown (RFC 9110 §14.4, R7); of any
// other the whole is sent.
func (x *exchange) spans(c *content) ([]policy.Span, error) {
	if c.status != http.StatusOK || x.r.Header["Range"] == nil {
		return nil, nil
	}
	if c.size < 0 {
		spans, err := policy.Ranges(x.plan.Request, c.stored, math.MaxInt64)
		if err != nil || len(spans) != 1 || spans[0].End == math.MaxInt64 {
			return nil, nil
		}
		size, ok := x.reader.Reach(x.r.Context(), spans[0].End)
		switch {
		case !ok:
			return nil, nil
		case size < 0:
			return spans, nil
		}
		c.size = size
	}
	spans, err := policy.Ranges(x.plan.Request, c.stored, c.size)
	if _, growing := c.body.(fillSource); growing && len(spans) > 1 {
		return nil, nil // it is read once, from its beginning
	}
	return spans, err
}

// whole writes all of it.
func (x *exchange) whole(c content) {
	bodiless := c.status == http.StatusNoContent || c.status == http.StatusNotModified
	if c.size >= 0 && !bodiless {
		x.w.Header().Set("Content-Length", strconv.FormatInt(c.size, 10))
	}
	x.head(c.status)
	if !bodiless {
		x.body(c, policy.Span{Start: 0, End: c.size})
	}
}

// parts writes several ranges as multipart/byteranges (RFC 9110 §14.6).
func (x *exchange) parts(c content, spans []policy.Span) {
	h := x.w.Header()
	kind := h.Get("Content-Type")
	m := multipart.NewWriter(x.w)
	h.Set("Content-Type", "multipart/byteranges; boundary="+m.Boundary())
	h.Del("Content-Length")
	x.head(http.StatusPartialContent)
	for _, span := range spans {
		part := textproto.MIMEHeader{"Content-Range": {contentRange(span, c.size)}}
		if kind != "" {
			part.Set("Content-Type", kind)
		}
		if _, err := m.CreatePart(part); err != nil {
			x.broken(err)
		}
		x.body(c, span)
	}
	if err := m.Close(); err != nil {
		x.broken(err)
	}
}

func contentRange(s policy.Span, size int64) string {
	if size < 0 {
		return fmt.Sprintf("bytes %d-%d/*", s.Start, s.End-1)
	}
	return fmt.Sprintf("bytes %d-%d/%d", s.Start, s.End-1, size)
}

// head writes the status line and fields, Cache-Status last: it says what has been decided by now.
func (x *exchange) head(status int) {
	h := x.w.Header()
	h.Add("Via", "1.1 weir")
	x.report.Status = status
	x.cacheStatus(h)
	x.w.WriteHeader(status)
}

// dress applies the route's own changes to a response.
func (x *exchange) dress(h http.Header) {
	if t := &x.plan.Route.Cache.Targeted; t.Strip {
		for _, name := range t.Fields {
			h.Del(name)
		}
	}
	for _, name := range x.plan.Route.Headers.Remove {
		h.Del(name)
	}
	for _, line := range x.plan.Route.Headers.Set {
		if name, value, ok := cutField(line); ok {
			h.Set(name, value)
		}
	}
}

// body copies a span. Once the head is out an error can only be told by breaking the connection off: a short answer
// must never look whole (RFC 9112 §8).
func (x *exchange) body(c content, span policy.Span) {
	if x.r.Method == "HEAD" {
		return
	}
	if err := c.body.copy(x.w, span); err != nil {
		x.broken(err)
	}
}

func (x *exchange) broken(err error) {
	x.report.Aborted, x.report.Err = true, err
	switch {
	case x.gone():
	case errors.Is(err, fill.ErrTooSlow), errors.Is(err, os.ErrDeadlineExceeded):
		x.report.Detail = policy.TooSlow
	case x.report.Detail == policy.None:
		x.report.Detail = policy.UpstreamTruncated
	}
	panic(http.ErrAbortHandler)
}

// entrySource reads a stored body.
type entrySource struct{ x *exchange }

func (s entrySource) copy(w io.Writer, span policy.Span) error {
	e := s.x.entry
	if e.Kind == policy.Part {
		span = policy.Span{Start: span.Start - e.Span.Start, End: span.End - e.Span.Start}
	}
	return s.x.stored(w, e, span)
}

// fillSource reads a body that grows. What has come is flushed whenever there is nothing more at hand: a client is
// never kept waiting for bytes that are here.
type fillSource struct{ x *exchange }

func (s fillSource) copy(w io.Writer, span policy.Span) error {
	x := s.x
	x.reader.OnCut(x.w.sever)
	for off := int64(0); span.End < 0 || off < span.End; {
		if !x.reader.Pending() {
			if err := x.flush(); err != nil {
				return err
			}
		}
		p, err := x.reader.Next(x.r.Context())
		switch {
		case err == io.EOF && span.End < 0:
			return nil
		case err == fill.ErrMoved:
			return x.moved(w, policy.Span{Start: max(off, span.Start), End: span.End})
		case err != nil:
			return unexpected(err)
		}
		at := off
		off += int64(len(p))
		p = cut(p, at, span)
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// cut returns those bytes of p, which lies at off, that are in the span.
func cut(p []byte, off int64, span policy.Span) []byte {
	if span.End >= 0 && off+int64(len(p)) > span.End {
		p = p[:span.End-off]
	}
	if off < span.Start {
		p = p[min(span.Start-off, int64(len(p))):]
	}
	return p
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (x *exchange) flush() error {
	if err := x.w.FlushError(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
