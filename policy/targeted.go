package policy

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
)

// directives are those that count for us: the targeted ones where there are any, else Cache-Control's.
func (r *rule) directives(h http.Header) responseDirectives {
	value, ok := r.targeted(h)
	if !ok {
		return parseResponse(h)
	}
	d := parseResponse(http.Header{"Cache-Control": {value}})
	d.targeted = true
	return d
}

// targeted is the Cache-Control that was written for caches like this one (RFC 9213): the first field of the route's
// list that is present, well formed and not empty counts, and then Cache-Control and Expires do not. It returns the
// directives in Cache-Control's own form, so that they are read by the same code; ok is false when there is none.
func (r *rule) targeted(h http.Header) (value string, ok bool) {
	for _, name := range r.Cache.Targeted.Fields {
		lines := h[http.CanonicalHeaderKey(name)]
		if len(lines) == 0 || sizeOf(lines) > maxDirectiveBytes {
			continue
		}
		// A field that cannot be parsed as a whole is as good as absent (RFC 9213 §2.1): the next one counts.
		dict, err := httpsfv.UnmarshalDictionary(lines)
		if err != nil || len(dict.Names()) > maxDirectives {
			continue
		}
		// Surrogate-Control is older than that, and tells by this which language the answer is to be read in.
		if dict.Del("content"); len(dict.Names()) == 0 {
			continue
		}
		var members []string
		for _, name := range dict.Names() {
			if m, _ := dict.Get(name); m != nil {
				if text, ok := directiveText(name, m); ok {
					members = append(members, text)
				}
			}
		}
		return strings.Join(members, ", "), true
	}
	return "", false
}

// directiveText writes a member as Cache-Control would. One whose value is of another type than its directive's is
// ignored (RFC 9213 §2.1); parameters mean nothing.
func directiveText(name string, m httpsfv.Member) (string, bool) {
	item, ok := m.(httpsfv.Item)
	if !ok {
		return "", false
	}
	form := responseForm(name)
	switch v := item.Value.(type) {
	case bool:
		return name, v && form != lifetime && form != window
	case int64:
		return name + "=" + strconv.FormatInt(v, 10), v >= 0 && (form == lifetime || form == window)
	case string:
		return name + `="` + v + `"`, form == fields && !strings.ContainsAny(v, `"\\`)
	}
	return "", false
}

// groups reads Cache-Groups and its like (RFC 9875): a list of strings. Parameters and members of another type mean
// nothing; what cannot be parsed as a whole is as good as absent.
func groups(lines []string) (names []string) {
	if len(lines) == 0 || sizeOf(lines) > maxDirectiveBytes {
		return nil
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			if name, ok := item.Value.(string); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

func sizeOf(lines []string) (n int) {
	for _, line := range lines {
		n += len(line)
	}
	return n
}
