package policy

import (
	"net/http"
	"testing"
)

func aPart(etag string, start, end, total int64) Stored {
	return Stored{Response: Response{Status: 206, Header: http.Header{"Etag": {etag}, "X-Old": {"1"}}}, Kind: Part, Span: Span{start, end}, Total: total}
}

// A part is completed by one more request only, and under one strong validator (RFC 9111 §3.4).
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		part Stored
		want string // of Range; "": the whole is to be asked for
	}{
		{aPart(`"a"`, 0, 4, 10), "bytes=4-9"},
		{aPart(`"a"`, 4, 10, 10), "bytes=0-3"},
		{aPart(`"a"`, 2, 4, 10), ""},
		{aPart(`"a"`, 0, 4, -1), ""},
		{aPart(`W/"a"`, 0, 4, 10), ""},
		{aPart("", 0, 4, 10), ""},
		{Stored{Kind: Answer, Response: Response{Header: http.Header{"Etag": {`"a"`}}}, Total: 10}, ""},
	} {
		fields, ok := Missing(c.part)
		if ok != (c.want != "") || fields.Get("Range") != c.want || ok && fields.Get("If-Range") != `"a"` {
			t.Errorf("%v of %d: %v, %v; want %q", c.part.Span, c.part.Total, fields, ok, c.want)
		}
	}
}

// What has every byte is no part; what lacks one, or does not know, stays one.
func TestPromoted(t *testing.T) {
	for _, c := range []struct {
		part  Stored
		whole bool
	}{
		{aPart("", 0, 10, 10), true}, {aPart("", 0, 9, 10), false}, {aPart("", 1, 10, 10), false}, {aPart("", 0, 10, -1), false},
	} {
		got := c.part.Promoted()
		if whole := got.Kind == Answer && got.Status == 200 && got.Header.Get("Content-Length") == "10"; whole != c.whole || c.part.Header.Get("Content-Length") != "" {
			t.Errorf("%v of %d: %+v", c.part.Span, c.part.Total, got)
		}
	}
}

func TestComplete(t *testing.T) {
	part := aPart(`"a"`, 0, 4, 10)
	answer := func(contentRange, etag string) Response {
		return Response{Status: 206, Header: http.Header{"Content-Range": {contentRange}, "Etag": {etag}, "X-New": {"2"}, "Connection": {"close"}}}
	}
	whole, ok := Complete(part, answer("bytes 4-9/10", `"a"`))
	h := whole.Header
	if !ok || whole.Status != 200 || h.Get("Content-Length") != "10" || h.Get("Content-Range") != "" || h.Get("X-Old") != "1" || h.Get("X-New") != "2" || h.Get("Connection") != "" {
		t.Errorf("%v %+v", ok, whole)
	}
	for name, res := range map[string]Response{
		"another tag": answer("bytes 4-9/10", `"b"`), "other bytes": answer("bytes 5-9/10", `"a"`),
		"another whole": answer("bytes 4-9/11", `"a"`), "no range": {Status: 206, Header: http.Header{"Etag": {`"a"`}}},
	} {
		if whole, ok := Complete(part, res); ok {
			t.Errorf("%s completes it: %+v", name, whole)
		}
	}
}
