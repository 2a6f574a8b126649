package policy

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pquerna/cachecontrol/cacheobject"
)

// The library's parser is quadratic on quoted strings, lets one bad directive hide a no-store beside it, and takes
// the last of two that disagree. So it is only ever given what cleaned wrote, which it cannot misread.
const (
	maxDirectiveBytes = 4 << 10
	maxDirectives     = 64
	maxSeconds        = 1<<31 - 1 // RFC 9111 §1.2.2
)

// responseDirectives is a response's Cache-Control (RFC 9111 §5.2.2), -1 where a number is absent.
type responseDirectives struct {
	cacheobject.ResponseCacheDirectives
	mustUnderstand bool
	targeted       bool // written for caches like this one: Expires and Pragma do not count beside them (RFC 9213 §2.1)
}

// requestDirectives is a request's Cache-Control (RFC 9111 §5.2.1), -1 where a number is absent.
type requestDirectives struct {
	noCache, noStore, onlyIfCached           bool
	maxAge, minFresh, maxStale, staleIfError int64 // seconds
	anyStale                                 bool  // max-stale without a value
}

// parseResponse reads the directives of a response. What cannot be read in full is no-store: a directive that was
// missed could be the one that forbids.
func parseResponse(h http.Header) responseDirectives {
	members, ok := readDirectives(h["Cache-Control"])
	if !ok {
		members = directives{{name: "no-store"}}
	}
	d, err := cacheobject.ParseResponseCacheControl(members.cleaned(responseForm))
	if err != nil {
		d = &cacheobject.ResponseCacheDirectives{NoStore: true, MaxAge: -1, SMaxAge: -1, StaleIfError: -1, StaleWhileRevalidate: -1}
	}
	_, understand := members.find("must-understand")
	return responseDirectives{ResponseCacheDirectives: *d, mustUnderstand: understand}
}

// bareNoCache: no-cache for the whole response. Its list form only strips the fields it names (RFC 9111 §5.2.2.4).
func (d *responseDirectives) bareNoCache() bool { return d.NoCachePresent && len(d.NoCache) == 0 }

func (d *responseDirectives) barePrivate() bool { return d.PrivatePresent && len(d.Private) == 0 }

// parseRequest reads what the client asks for. Pragma counts only where there is no Cache-Control (RFC 9111 §5.4).
func parseRequest(h http.Header) requestDirectives {
	none := requestDirectives{maxAge: -1, minFresh: -1, maxStale: -1, staleIfError: -1}
	lines := h["Cache-Control"]
	if len(lines) == 0 {
		if pragma := h["Pragma"]; len(pragma) > 0 {
			members, _ := readDirectives(pragma)
			_, none.noCache = members.find("no-cache")
		}
		return none
	}
	members, ok := readDirectives(lines)
	if !ok {
		none.noStore = true
		return none
	}
	d, err := cacheobject.ParseRequestCacheControl(members.cleaned(requestForm))
	if err != nil {
		return none
	}
	r := requestDirectives{
		noCache: d.NoCache, noStore: d.NoStore, onlyIfCached: d.OnlyIfCached, anyStale: d.MaxStaleSet,
		maxAge: int64(d.MaxAge), minFresh: int64(d.MinFresh), maxStale: int64(d.MaxStale), staleIfError: -1,
	}
	// The library has 0 for an absent stale-if-error.
	if _, sent := members.find("stale-if-error"); sent {
		r.staleIfError = int64(d.StaleIfError)
	}
	return r
}

// directive is one member as it was written.
type directive struct {
	name     string // lower case
	value    string
	hasValue bool
}

type directives []directive

func (d directives) find(name string) (directive, bool) {
	for _, m := range d {
		if m.name == name {
			return m, true
		}
	}
	return directive{}, false
}

// readDirectives splits a field's lines in one pass. Commas separate, and so do blanks and stray bytes, so that
// "no-cache no-store" or "no-store; max-age=1" lose nothing. ok is false past the caps and for a quote left open.
func readDirectives(lines []string) (d directives, ok bool) {
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	if size > maxDirectiveBytes {
		return nil, false
	}
	for _, s := range lines {
		for s != "" {
			n := 0
			for n < len(s) && isTokenByte(s[n]) {
				n++
			}
			if n == 0 {
				if s[0] == '"' { // a quoted string that is nobody's value
					if _, s, ok = unquote(s); !ok {
						return nil, false
					}
					continue
				}
				s = s[1:]
				continue
			}
			m := directive{name: lower(s[:n])}
			if s = s[n:]; strings.HasPrefix(s, "=") {
				m.hasValue = true
				if m.value, s, ok = value(s[1:]); !ok {
					return nil, false
				}
			}
			if d = append(d, m); len(d) > maxDirectives {
				return nil, false
			}
		}
	}
	return d, true
}

// value reads what follows the equals sign: a quoted string, or whatever stands before a comma or blank.
func value(s string) (v, rest string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		return unquote(s)
	}
	end := strings.IndexAny(s, ", \t")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:], true
}

// unquote reads a quoted string (RFC 9110 §5.6.4); ok is false when it has no end.
func unquote(s string) (v, rest string, ok bool) {
	var b []byte
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return string(b), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b = append(b, s[i])
	}
	return "", "", false
}

// form says how a directive is to be written for the library.
type form uint8

const (
	unknown  form = iota
	bare          // an argument means nothing: no-store=1 is no-store
	lifetime      // an unreadable number is 0: invalid freshness is stale (RFC 9111 §4.2.1); the lowest wins
	window        // an unreadable number is nothing at all; the lowest wins
	floor         // the same; the highest wins
	optional      // a number, or none for any
	fields        // a quoted list of names, or none for all; the bare form wins
)

func responseForm(name string) form {
	switch name {
	case "no-store", "no-transform", "public", "must-revalidate", "proxy-revalidate", "immutable":
		return bare
	case "max-age", "s-maxage":
		return lifetime
	case "stale-while-revalidate", "stale-if-error":
		return window
	case "no-cache", "private":
		return fields
	}
	return unknown
}

func requestForm(name string) form {
	switch name {
	case "no-cache", "no-store", "no-transform", "only-if-cached":
		return bare
	case "max-age", "stale-if-error":
		return window
	case "min-fresh":
		return floor
	case "max-stale":
		return optional
	}
	return unknown
}

// cleaned writes the directives that are known, each once, so that they mean one thing only.
func (d directives) cleaned(formOf func(string) form) string {
	var out []string
	for i, m := range d {
		if first, _ := d[:i].find(m.name); first.name == m.name {
			continue
		}
		switch f := formOf(m.name); f {
		case bare:
			out = append(out, m.name)
		case lifetime, window, floor, optional:
			if n, ok := d.number(m.name, f); ok {
				out = append(out, m.name+"="+strconv.FormatInt(n, 10))
			} else if f == optional && !m.hasValue {
				out = append(out, m.name)
			}
		case fields:
			if names := d.fields(m.name); len(names) > 0 {
				out = append(out, m.name+`="`+strings.Join(names, ",")+`"`)
			} else {
				out = append(out, m.name)
			}
		}
	}
	return strings.Join(out, ", ")
}

// number is the one that counts of all that were sent under a name.
func (d directives) number(name string, f form) (n int64, ok bool) {
	for _, m := range d {
		if m.name != name {
			continue
		}
		v, valid := seconds(m.value)
		if !valid {
			if f != lifetime {
				continue
			}
			v = 0
		}
		if !ok || f == floor && v > n || f != floor && v < n {
			n, ok = v, true
		}
	}
	return n, ok
}

// seconds reads delta-seconds (RFC 9111 §1.2.2): digits only, as many as one likes.
func seconds(s string) (n int64, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), maxSeconds)
	}
	return n, s != ""
}

// fields are the names listed by all of a directive's forms. None when one of them is bare, or lists none, or what is no
// name: of "a b" nobody can tell what was meant, so all is.
func (d directives) fields(name string) []string {
	var names []string
	for _, m := range d {
		if m.name != name {
			continue
		}
		listed := members([]string{m.value})
		for _, f := range listed {
			if !isToken(f) || isSwitch(f) {
				return nil
			}
		}
		if len(listed) == 0 {
			return nil
		}
		names = append(names, listed...)
	}
	return names
}

// isSwitch: private=1 and private=true name no field; whoever wrote them meant private.
func isSwitch(value string) bool {
	switch lower(value) {
	case "true", "yes", "on":
		return true
	}
	return value[0] >= '0' && value[0] <= '9'
}

func duration(seconds int64) time.Duration { return time.Duration(seconds) * time.Second }
