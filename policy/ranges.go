package policy

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrUnsatisfiable: the ranges asked for lie outside the body (416).
var ErrUnsatisfiable = errors.New("range not satisfiable")

// maxRanges is how many ranges one request may ask for. Players and PDF readers ask for a handful; RFC 9110 §14.2
// lets a server ignore larger sets.
const maxRanges = 16

// Ranges answers which spans of a body of size bytes the request asks for, in its order. nil, nil: the whole (no
// Range, a Range that If-Range or its syntax voids, one that asks for more bytes than there are or more than
// maxRanges, a size that is unknown). An empty body is always whole: no Content-Range can say "nothing".
func Ranges(req Request, stored Stored, size int64) ([]Span, error) {
	lines := req.Header["Range"]
	if req.Method != http.MethodGet || len(lines) != 1 || size <= 0 || !stored.mayPart() || !isUnchanged(req.Header, stored) {
		return nil, nil
	}
	unit, set, _ := strings.Cut(lines[0], "=")
	if !strings.EqualFold(unit, "bytes") {
		return nil, nil
	}
	var spans []Span
	asked, left := 0, size
	for spec := range strings.SplitSeq(set, ",") {
		spec = strings.Trim(spec, " \t")
		if spec == "" {
			continue // RFC 9110 §5.6.1.2
		}
		span, ok := parseSpan(spec, size)
		asked, left = asked+1, left-span.Len()
		if !ok || left < 0 || asked > maxRanges {
			return nil, nil
		}
		if span.Len() > 0 {
			spans = append(spans, span)
		}
	}
	switch {
	case asked == 0:
		return nil, nil
	case len(spans) == 0:
		return nil, ErrUnsatisfiable
	}
	return spans, nil
}

// mayPart: a Range applies to what would be a 200 without it (RFC 9110 §14.2).
func (s Stored) mayPart() bool {
	return s.Kind == Answer && s.Status == http.StatusOK || s.Kind == Part
}

// isUnchanged evaluates If-Range (RFC 9110 §13.1.5): by a strong tag, or by a date that is the very Last-Modified and
// strong itself, which it is when the answer was made at least a second later (§8.8.2.2).
func isUnchanged(h http.Header, stored Stored) bool {
	lines, ok := h["If-Range"]
	if !ok {
		return true
	}
	if len(lines) != 1 {
		return false
	}
	if strings.Contains(lines[0], `"`) {
		return isStrong(lines[0]) && lines[0] == stored.Header.Get("Etag")
	}
	if lines[0] != stored.Header.Get("Last-Modified") {
		return false
	}
	modified, ok := ParseDate(lines[0], stored.Arrived)
	made, _ := ParseDate(stored.Header.Get("Date"), stored.Arrived) // without a Date: long before
	return ok && made.Sub(modified) >= time.Second
}

// parseSpan reads one range of RFC 9110 §14.1.2. An empty span: well formed, but outside the body.
func parseSpan(spec string, size int64) (Span, bool) {
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return Span{}, false
	}
	if first == "" {
		suffix, ok := position(last)
		return Span{max(0, size-suffix), size}, ok
	}
	start, ok := position(first)
	end := size
	if ok && last != "" {
		var inclusive int64
		inclusive, ok = position(last)
		ok = ok && inclusive >= start
		end = min(inclusive, size-1) + 1
	}
	return Span{min(start, end), end}, ok
}

// position reads digits only; what no body can reach is the largest there is.
func position(digits string) (int64, bool) {
	n, err := strconv.ParseUint(digits, 10, 63)
	return int64(n), err == nil || errors.Is(err, strconv.ErrRange)
}
