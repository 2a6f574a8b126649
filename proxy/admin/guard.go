package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// guard decides who may ask. It comes before methods and bodies, so a stranger learns nothing but that.
type guard struct {
	token    [sha256.Size]byte
	tokened  bool // there is one
	loopback bool
	origin   *http.CrossOriginProtection
}

func newGuard(c Config) guard {
	return guard{sha256.Sum256([]byte(c.Token)), c.Token != "", c.loopback(), http.NewCrossOriginProtection()}
}

// open guards what needs no token.
func (g guard) open(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !g.known(r) && !g.bears(r) {
			refuse(w, http.StatusMisdirectedRequest, "this listener is for this machine: ask for it as 127.0.0.1 or localhost")
			return
		}
		next(w, r)
	}
}

// closed guards what needs the token. Off loopback without one, which Validate refuses, it stays closed.
func (g guard) closed(next http.HandlerFunc) http.HandlerFunc {
	return g.open(func(w http.ResponseWriter, r *http.Request) {
		if (g.tokened || !g.loopback) && !g.bears(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
			refuse(w, http.StatusUnauthorized, "send Authorization: Bearer with the token that admin.token (or WEIR_ADMIN_TOKEN) is set to")
			return
		}
		if g.origin.Check(r) != nil {
			refuse(w, http.StatusForbidden, "a page of another origin may not ask this: use weir or curl")
			return
		}
		next(w, r)
	})
}

// known reports whether the request names a host that nobody else's DNS can point here. Off loopback that says
// nothing. Browsers always name a host; probes that speak HTTP/1.0 do not.
func (g guard) known(r *http.Request) bool {
	if !g.loopback || r.Host == "" {
		return true
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]") // there is no port
	}
	return isLoopback(host)
}

// bears reports whether the request carries the token. Digests are compared: a comparison of texts would tell their lengths.
func (g guard) bears(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !g.tokened || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}
