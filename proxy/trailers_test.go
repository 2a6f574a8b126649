package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// What follows a body is told of its own request: it comes behind the body, over either protocol, never as a field of the
// head, and nobody is answered without it or with another's (RFC 9110 §6.5).
func TestTrailersFollowTheirBody(t *testing.T) {
	for name, version := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		for _, asked := range []string{"GET text/plain", "GET application/grpc", "POST application/grpc"} {
			t.Run(name+" "+asked, func(t *testing.T) {
				method, media, _ := strings.Cut(asked, " ")
				var n atomic.Int64
				client, url := behindServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Trailer", "X-Sum, Grpc-Status")
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("Content-Type", media)
					_, _ = io.WriteString(w, "the body")
					w.Header().Set("X-Sum", fmt.Sprint(n.Add(1)))
					w.Header().Set("Grpc-Status", "0")
				}), version)
				for i := range 2 {
					req, err := http.NewRequest(method, url+"/p", nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Te", "trailers")
					res, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if err != nil || string(body) != "the body" || res.Header.Get("X-Sum") != "" {
						t.Errorf("%q, %v, head %v", body, err, res.Header)
					}
					if res.Trailer.Get("X-Sum") != fmt.Sprint(i+1) || res.Trailer.Get("Grpc-Status") != "0" {
						t.Errorf("request %d: trailers %v", i+1, res.Trailer)
					}
				}
			})
		}
	}
}
