package policy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// partOf reads what a 206 says of itself (RFC 9110 §15.3.7): which bytes of how many; total -1: it does not say. A
// length that does not fit makes it no part of anything (R7).
func partOf(h http.Header) (span Span, total int64, ok bool) {
	lines := h["Content-Range"]
	if len(lines) != 1 {
		return Span{}, 0, false
	}
	unit, rest, _ := strings.Cut(lines[0], " ")
	bytes, of, _ := strings.Cut(rest, "/")
	first, last, both := strings.Cut(bytes, "-")
	start, okFirst := position(first)
	end, okLast := position(last)
	if !strings.EqualFold(unit, "bytes") || !both || !okFirst || !okLast || end < start || end >= 1<<62 {
		return Span{}, 0, false
	}
	total = -1
	if of != "*" {
		if total, ok = position(of); !ok || total <= end {
			return Span{}, 0, false
		}
	}
	span = Span{start, end + 1}
	if lines := h["Content-Length"]; len(lines) == 1 && lines[0] != strconv.FormatInt(span.Len(), 10) {
		return Span{}, 0, false
	}
	return span, total, true
}

// covers reports whether all that the request asks for lies inside the part.
func (s *Stored) covers(req Request) bool {
	spans, err := Ranges(req, *s, s.Total)
	if err != nil || len(spans) == 0 {
		return false
	}
	for _, span := range spans {
		if span.Start < s.Span.Start || span.End > s.Span.End {
			return false
		}
	}
	return true
}

// part decides on a part: it serves the ranges inside it while it is fresh, and nothing else.
func (p *Plan) part(s *Stored, at Moment) Decision {
	if d := p.decide(s, at); s.FreshUntil.After(at.Now) && d.Action != Validate && d.Action != Fetch && s.covers(p.Request) {
		d.Action, d.Reason = Serve, Fresh
		return d
	}
	return p.upstream(Decision{Action: Fetch, Reason: PartialMiss, Collapse: true})
}

// Promoted is the whole that a part is when it turns out to have every byte (RFC 9110 §15.3.7.3); any other is left as
// it is.
func (s Stored) Promoted() Stored {
	if s.Kind != Part || s.Span != (Span{0, s.Total}) {
		return s
	}
	s.Kind, s.Status, s.Header = Answer, http.StatusOK, s.Header.Clone()
	delete(s.Header, "Content-Range")
	s.Header.Set("Content-Length", strconv.FormatInt(s.Total, 10))
	s.Span, s.Total = Span{}, -1
	return s
}

// Missing is what asks upstream for the bytes that a part lacks, on the condition that it is still a part of what is
// there. ok is false when the whole is to be asked for: two gaps are not worth it.
func Missing(part Stored) (fields http.Header, ok bool) {
	if part.Kind != Part || part.Total <= 0 {
		return nil, false
	}
	gap, ok := part.gap()
	if !ok {
		return nil, false
	}
	return Rest(part, gap)
}

// Rest is what asks upstream for some bytes of an answer, on the condition that they are the same answer's still (RFC
// 9110 §13.1.5). ok is false without a strong validator: nothing can be combined then (RFC 9111 §3.4).
func Rest(stored Stored, lack Span) (fields http.Header, ok bool) {
	tag := stored.Header.Get("Etag")
	if !isStrong(tag) || lack.Len() <= 0 {
		return nil, false
	}
	return http.Header{"If-Range": {tag}, "Range": {fmt.Sprintf("bytes=%d-%d", lack.Start, lack.End-1)}}, true
}

// Continues reports whether res is just those bytes, of an answer of total bytes, under the same validator. The same
// tag over another coding is the upstream's mistake, and not to be mixed.
func Continues(stored Stored, lack Span, total int64, res Response) bool {
	span, of, ok := partOf(res.Header)
	return ok && res.Status == http.StatusPartialContent && span == lack && of == total &&
		res.Header.Get("Etag") == stored.Header.Get("Etag") &&
		strings.Join(res.Header["Content-Encoding"], ",") == strings.Join(stored.Header["Content-Encoding"], ",")
}

// gap is what a part lacks, when that is one piece.
func (s *Stored) gap() (Span, bool) {
	switch {
	case s.Span.Start == 0 && s.Span.End < s.Total:
		return Span{s.Span.End, s.Total}, true
	case s.Span.End == s.Total && s.Span.Start > 0:
		return Span{0, s.Span.Start}, true
	}
	return Span{}, false
}

// Complete is the whole that a part and the answer to Missing make: the stored head with the new one's fields in place
// of its own (RFC 9111 §3.4). ok is false when the answer is not just those bytes under that validator.
func Complete(part Stored, res Response) (whole Response, ok bool) {
	gap, one := part.gap()
	if !one || !Continues(part, gap, part.Total, res) {
		return Response{}, false
	}
	whole = res
	whole.Status = http.StatusOK
	whole.CloseDelimited = false // its length is known
	whole.Header = part.Header.Clone()
	news := res.Header.Clone()
	StripHop(news)
	for name, lines := range news {
		whole.Header[name] = lines
	}
	delete(whole.Header, "Content-Range")
	whole.Header.Set("Content-Length", strconv.FormatInt(part.Total, 10))
	return whole, true
}
