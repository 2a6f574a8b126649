package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// variantBytes of a SHA-256 name a variant. Two values that meet by chance would need 2^64 of them.
const variantBytes = 16

// primary names a page. It is unambiguous: an upstream's name has no blank, a scheme no colon, an authority no slash.
func (r *rule) primary(scheme, authority, target string) string {
	return r.Upstream + " " + scheme + "://" + authority + target
}

// authority is a Host as key and upstream both have it: lower case, without trailing dot and without the scheme's
// default port (RFC 9110 §4.2.3; were it folded in the key only, a redirect from one spelling to the other would be
// stored as the answer to both). ok is false for what cannot be a host; that HTTP/1.0 may name none is no fault.
func authority(scheme, hostport string) (host, port string, ok bool) {
	host, port = splitHost(lower(hostport))
	if port == "" {
		port = defaultPort(scheme)
	}
	return host, port, hostport == "" || host != "" && fitHost(host) && strings.Trim(port, "0123456789") == ""
}

// joinHost is authority's inverse.
func joinHost(scheme, host, port string) string {
	if port == defaultPort(scheme) {
		return host
	}
	return host + ":" + port
}

// splitHost cuts the port off, and the dot that makes a name absolute.
func splitHost(hostport string) (host, port string) {
	host = hostport
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && strings.IndexByte(hostport[i:], ']') < 0 {
		host, port = hostport[:i], hostport[i+1:]
	}
	return strings.TrimSuffix(host, "."), port
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// fitHost admits registered names and IP literals (RFC 3986 §3.2.2) as they are met: no percent-encoding, nothing
// that could end the authority early.
func fitHost(host string) bool {
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal, ok = strings.CutSuffix(literal, "]")
		return ok && literal != "" && strings.Trim(literal, "0123456789abcdef:.") == ""
	}
	for i := range len(host) {
		c := host[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~') {
			return false
		}
	}
	return true
}

// lower folds ASCII only. Unicode's folding would make the Kelvin sign a k, and two hosts one.
func lower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// pathOf is the path as it goes upstream. Only what RFC 3986 §6.2.2 calls equivalent is made equal; %2F, //, ; and a
// bare ? stay what they are, and dot segments are the upstream's business.
func pathOf(u *url.URL) string {
	if path := unreserve(EscapedPath(u)); path != "" {
		return path
	}
	return "/"
}

// EscapedPath is the path as the client sent it, but for bytes that no path may hold (RFC 3986 §3.3): these are
// encoded. url.URL's method would decode the whole first, and send %2F as a slash for the sake of a | beside it.
func EscapedPath(u *url.URL) string {
	if u.RawPath == "" {
		return u.EscapedPath()
	}
	return escaped(u.RawPath)
}

// escaped encodes what may not stand in a path, and leaves what is encoded already.
func escaped(path string) string {
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case isUnreserved(c), strings.IndexByte("/!$&'()*+,;=:@[]", c) >= 0, c == '%' && isEncoding(path[i:]):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isEncoding(s string) bool {
	if len(s) < 3 {
		return false
	}
	_, err := hex.DecodeString(s[1:3])
	return err == nil
}

// withoutDots is the path without its dot segments (RFC 3986 §5.2.4), for the choice of a route: /static/../account is
// answered by what serves /account.
func withoutDots(path string) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	var kept []string
	last := ""
	for last = range strings.SplitSeq(path[1:], "/") {
		switch {
		case last == ".." && len(kept) > 0:
			kept = kept[:len(kept)-1]
		case last != "." && last != "..":
			kept = append(kept, last)
		}
	}
	if last == "." || last == ".." {
		kept = append(kept, "") // what they end in is a folder
	}
	return "/" + strings.Join(kept, "/")
}

// target is path and query as they go upstream, which is what the key says of them.
func (r *rule) target(u *url.URL) (path, target string) {
	path = pathOf(u)
	query := unreserve(u.RawQuery)
	if k := &r.Cache.Key.Query; query != "" && (k.Sort || len(k.Ignore) > 0 || len(k.Only) > 0) {
		if query = k.shape(query); query == "" {
			return path, path
		}
	}
	if query != "" || u.ForceQuery {
		return path, path + "?" + query
	}
	return path, path
}

// shape drops the parameters that do not count and sorts the rest by name, those of one name staying in their order.
func (k *QueryRules) shape(query string) string {
	params := strings.Split(query, "&")
	name := func(param string) string { n, _, _ := strings.Cut(param, "="); return n }
	params = slices.DeleteFunc(params, func(param string) bool {
		n := name(param)
		return len(k.Only) > 0 && !listed(k.Only, n) || listed(k.Ignore, n)
	})
	if k.Sort {
		slices.SortStableFunc(params, func(a, b string) int { return strings.Compare(name(a), name(b)) })
	}
	return strings.Join(params, "&")
}

// listed matches a name with a list of names, and of prefixes that end in a star.
func listed(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return p == name
	})
}

// unreserve decodes what need not be encoded and upper-cases the digits of what must be (RFC 3986 §6.2.2). What is not
// encoded soundly is left whole: half decoded, %%34%31 would become an encoding it was not.
func unreserve(s string) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return s
		}
		code, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return s
		}
		if isUnreserved(code[0]) {
			b = append(b, code[0])
		} else {
			b = append(b, '%')
			b = append(b, strings.ToUpper(s[i+1:i+3])...)
		}
		i += 2
	}
	return string(b)
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// variant is Key.Variant before Follow: what the request carries of the fields, cookies and body that the route keys.
func (r *rule) variant(req *Request) string {
	cookies := r.Cache.Key.Cookies
	if len(r.keyed) == 0 && len(cookies) == 0 && req.BodyDigest == "" {
		return ""
	}
	parts := []string{r.settings, req.BodyDigest}
	for _, name := range r.keyed {
		parts = append(parts, r.selecting(req.Header, name))
	}
	if len(cookies) > 0 {
		sent := cookiePairs(req.Header)
		for _, name := range sorted(cookies) {
			for _, pair := range sent {
				if cookieName(pair) == name {
					parts = append(parts, pair)
				}
			}
			parts = append(parts, "") // what was said of this name ends here
		}
	}
	return digest(parts)
}

// digest joins parts by their lengths, so that no separator inside a value can make two lists one.
func digest(parts []string) string {
	h := sha256.New()
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:variantBytes])
}

// cookiePairs are the request's cookies as sent, in order.
func cookiePairs(h http.Header) []string {
	var pairs []string
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.Trim(pair, " \t"); pair != "" {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

func cookieName(pair string) string {
	name, _, _ := strings.Cut(pair, "=")
	return strings.TrimRight(name, " \t")
}

// particularFields lists the fields by which the request tells who asks (R1), in order. Cookies that are keyed or
// ignored one by one tell nothing; one other does.
func (r *rule) particularFields(h http.Header) []string {
	var names []string
	for name := range h {
		if r.tells(name) && (name != "Cookie" || r.tellsByCookie(h)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (r *rule) tellsByCookie(h http.Header) bool {
	c := &r.Cache
	return slices.ContainsFunc(cookiePairs(h), func(pair string) bool {
		name := cookieName(pair)
		return !slices.Contains(c.Key.Cookies, name) && !listed(c.Ignore.Cookies, name)
	})
}
