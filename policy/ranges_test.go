package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

func TestRanges(t *testing.T) {
	eachScene(t, "ranges.txt", func(t *testing.T, s scene) string {
		size := int64(0)
		for _, x := range s.subjects {
			if x.words[0] == "size" {
				size, _ = strconv.ParseInt(x.words[1], 10, 64)
			}
		}
		return printSpans(Ranges(s.request(t), s.stored(t), size))
	})
}

func printSpans(spans []Span, err error) string {
	switch {
	case errors.Is(err, ErrUnsatisfiable):
		return "416"
	case spans == nil:
		return "whole"
	}
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, " %d-%d", s.Start, s.End-1)
	}
	return b.String()[1:]
}

// No text makes Ranges name a byte that is not there, an empty span, or more bytes than there are.
func FuzzRanges(f *testing.F) {
	for _, seed := range []string{"bytes=0-0", "bytes=-5", "bytes=5-,0-1", "bytes=5-2", "bytes=99999999999999999999-", "BYTES=, 1-2 ,", "items=0-1"} {
		f.Add(seed, int64(10))
	}
	f.Add("bytes=0-9223372036854775807", int64(1)<<62)
	f.Fuzz(func(t *testing.T, field string, size int64) {
		req := Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{"Range": {field}}}
		spans, err := Ranges(req, Stored{Response: Response{Status: http.StatusOK}}, size)
		if err != nil && (spans != nil || size <= 0) {
			t.Fatalf("%q of %d: %v and %v", field, size, spans, err)
		}
		total := int64(0)
		for _, s := range spans {
			if s.Start < 0 || s.Start >= s.End || s.End > size {
				t.Fatalf("%q of %d names %v", field, size, s)
			}
			total += s.Len()
		}
		if total > max(size, 0) || len(spans) > maxRanges {
			t.Fatalf("%q of %d names %d ranges, %d bytes", field, size, len(spans), total)
		}
		checkPlainRange(t, field, size, printSpans(spans, err))
	})
}

// checkPlainRange holds a single range to the arithmetic of RFC 9110 §14.1.2 and §14.4, done the plain way.
func checkPlainRange(t *testing.T, field string, size int64, got string) {
	t.Helper()
	var first, last int64
	if n, _ := fmt.Sscanf(field, "bytes=%d-%d", &first, &last); n != 2 || size <= 0 || fmt.Sprintf("bytes=%d-%d", first, last) != field || first < 0 || last < 0 {
		return
	}
	want := fmt.Sprintf("%d-%d", first, min(last, size-1))
	switch {
	case last < first:
		want = "whole"
	case first >= size:
		want = "416"
	}
	if got != want {
		t.Fatalf("%q of %d is %s, not %s", field, size, got, want)
	}
}
