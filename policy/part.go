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

// Missing is what asks upstream for the bytes that a part lacks, on the condition that it is still a part of what is
// there (RFC 9110 §13.1.5). ok is false when the whole is to be asked for: without a strong validator nothing can be
// combined (RFC 9111 §3.4), and two gaps are not worth it.
func Missing(part Stored) (fields http.Header, ok bool) {
	tag := part.Header.Get("Etag")
	if part.Kind != Part || !isStrong(tag) || part.Total <= 0 {
		return nil, false
	}
	gap, ok := part.gap()
	if !ok {
		return nil, false
	}
	return http.Header{"If-Range": {tag}, "Range": {fmt.Sprintf("bytes=%d-%d", gap.Start, gap.End-1)}}, true
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
	span, total, ok := partOf(res.Header)
	gap, one := part.gap()
	if strings.Join(res.Header["Content-Encoding"], ",") != strings.Join(part.Header["Content-Encoding"], ",") {
		return Response{}, false // the same tag over another coding is the upstream's mistake, and not to be mixed
	}
	if !ok || !one || span != gap || total != part.Total || res.Header.Get("Etag") != part.Header.Get("Etag") {
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
	whole.Header.Set("Content-Length", strconv.FormatInt(total, 10))
	return whole, true
}
