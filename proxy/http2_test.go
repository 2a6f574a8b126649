package proxy

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// HTTP/2 frames, of those that a request and its end need (RFC 9113 §6).
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	endStream, endHeaders = 1, 4
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// block is fields as HPACK literals (RFC 7541 §6.2.2): nothing is tidied up.
func block(fields ...string) (b []byte) {
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		b = append(b, 0)
		for _, text := range []string{name, value} {
			b = append(append(b, byte(len(text))), text...)
		}
	}
	return b
}

// send2 sends one request over HTTP/2, and reports whether it was answered by 200; else it was refused somehow.
func (c *corner) send2(t *testing.T, fields []string, body string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...)
	if body == "" {
		sent = append(sent, frame(frameHeaders, endHeaders|endStream, 1, block(fields...))...)
	} else {
		sent = append(sent, frame(frameHeaders, endHeaders, 1, block(fields...))...)
		sent = append(sent, frame(frameData, endStream, 1, []byte(body))...)
	}
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			return false
		}
		payload := make([]byte, binary.BigEndian.Uint32(head)>>8)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return false
		}
		switch head[3] {
		case frameHeaders:
			return payload[0] == 0x88 // :status 200 (RFC 7541, appendix A)
		case frameReset, frameGoAway:
			return false
		}
	}
}

// Over HTTP/2 a request has one meaning too, here and upstream, or none: what HTTP/1.1 would read otherwise is refused
// (RFC 9113 §8.2, §8.3). Where a body ends the frames tell, and nothing that the fields say of it goes on.
func TestHTTP2sCorners(t *testing.T) {
	const host = ":authority=a.test"
	get := func(path string, fields ...string) []string {
		return append([]string{":method=GET", ":scheme=http", ":path=" + path}, fields...)
	}
	for name, c := range map[string]struct {
		fields []string
		body   string
		want   string // what the upstream receives; "": it is refused
	}{
		"plain":                           {get("/x?a=1", host), "", "GET /x?a=1 HTTP/1.1 @ a.test"},
		"authority in capitals":           {get("/x", ":authority=A.Test.:80"), "", "GET /x HTTP/1.1 @ a.test"},
		"a host in its place":             {get("/x", "host=b.test"), "", "GET /x HTTP/1.1 @ b.test"},
		"an authority and the same host":  {get("/x", host, "host=a.test"), "", "GET /x HTTP/1.1 @ a.test"},
		"an authority and another host":   {get("/x", host, "host=b.test"), "", "GET /x HTTP/1.1 @ a.test"},
		"two authorities":                 {get("/x", host, ":authority=b.test"), "", ""},
		"an authority with a user":        {get("/x", ":authority=u@a.test"), "", ""},
		"an authority with a path":        {get("/x", ":authority=a.test/y"), "", ""},
		"slashes":                         {get("//b.test/y", host), "", "GET //b.test/y HTTP/1.1 @ a.test"},
		"an encoded slash":                {get("/x%2fy", host), "", "GET /x%2Fy HTTP/1.1 @ a.test"},
		"semicolons":                      {get("/x?a=1;b", host), "", "GET /x?a=1;b HTTP/1.1 @ a.test"},
		"a path with a host":              {get("http://b.test/x", host), "", "GET /x HTTP/1.1 @ a.test"},
		"a path without a slash":          {get("x", host), "", ""},
		"no path":                         {get("", host), "", ""},
		"a star":                          {get("*", host), "", ""},
		"a blank in the path":             {get("/x HTTP/1.1", host), "", "GET /x%20HTTP/1.1 HTTP/1.1 @ a.test"},
		"a line in the path":              {get("/x\r\nX-A: 1", host), "", ""},
		"two paths":                       {get("/x", host, ":path=/y"), "", ""},
		"a method with a line":            {[]string{":method=GET / HTTP/1.1\r\nX-A: 1", ":scheme=http", ":path=/x", host}, "", ""},
		"a line in a value":               {get("/x", host, "x-a=1\r\nx-b: 2"), "", ""},
		"a line in a name":                {get("/x", host, "x-a: 1\r\nx-b=2"), "", ""},
		"a name in capitals":              {get("/x", host, "X-A=1"), "", ""},
		"a name with a blank":             {get("/x", host, "x-a =1"), "", ""},
		"no name":                         {get("/x", host, "=1"), "", ""},
		"a field of the connection":       {get("/x", host, "connection=x-a", "x-a=1"), "", ""},
		"a coding of the transfer":        {get("/x", host, "transfer-encoding=chunked"), "", ""},
		"a pseudo field behind others":    {[]string{":method=GET", ":scheme=http", "x-a=1", ":path=/x", host}, "", ""},
		"a pseudo field that is unknown":  {get("/x", host, ":x-a=1"), "", ""},
		"a length without a body":         {get("/x", host, "content-length=2"), "", "GET /x HTTP/1.1 @ a.test"},
		"a body":                          {[]string{":method=POST", ":scheme=http", ":path=/x", host, "content-length=2"}, "ab", "POST /x HTTP/1.1 @ a.test ab"},
		"a body without a length":         {[]string{":method=POST", ":scheme=http", ":path=/x", host}, "ab", "POST /x HTTP/1.1 @ a.test ab"},
		"a body that exceeds its length":  {[]string{":method=POST", ":scheme=http", ":path=/x", host, "content-length=1"}, "ab", ""},
		"a body that is a request's head": {[]string{":method=POST", ":scheme=http", ":path=/x", host}, "GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n", "POST /x HTTP/1.1 @ a.test GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n"},
		"two lengths":                     {[]string{":method=POST", ":scheme=http", ":path=/x", host, "content-length=2", "content-length=3"}, "ab", "POST /x HTTP/1.1 @ a.test ab"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCorner(t, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
			ok := k.send2(t, c.fields, c.body)
			k.mu.Lock()
			defer k.mu.Unlock()
			switch {
			case strings.Join(k.seen, "; ") != c.want || ok != (c.want != ""):
				t.Errorf("answered %v, upstream saw %q; want %q", ok, k.seen, c.want)
			case ok:
				k.sameAsKey(t)
			}
		})
	}
}
