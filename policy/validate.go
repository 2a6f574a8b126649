package policy

import (
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Validators are the conditional fields that ask upstream whether stored still holds (RFC 9111 §4.3.1), as the
// upstream wrote them: what compares validators as plain text must find its own text. Empty: there are none. Only
// successes are asked about: a kept 404 with a date would be confirmed by whatever older file has come to lie there.
func Validators(stored Stored) http.Header {
	h := http.Header{}
	if !stored.holdsSuccess() {
		return h
	}
	if tag := stored.Header.Get("Etag"); tag != "" {
		h.Set("If-None-Match", tag)
	}
	if date := stored.Header.Get("Last-Modified"); date != "" {
		h.Set("If-Modified-Since", date)
	}
	return h
}

// Own are the client's conditions and range, for a fill that is its alone: the upstream may spare itself the answer.
// conditional: 304 is an answer to them.
func Own(req Request) (fields http.Header, conditional bool) {
	fields = http.Header{}
	for name, lines := range req.Header {
		if asksOwn(name) {
			fields[name] = lines
		}
	}
	return fields, has(fields, "If-None-Match") || has(fields, "If-Modified-Since")
}

// MayAskAbout reports whether the upstream may be asked on the client's behalf if the stored answer still holds: there is
// something to ask by, and what a 304 would confirm is the client's to have.
func (p *Plan) MayAskAbout(s Stored) bool {
	return s.Kind == Answer && s.hasValidator() && admits(s.Audience, p.Particular) && !p.HasPrecondition()
}

// HasPrecondition: the client wants one certain answer or none. That is the upstream's to decide (RFC 9111 §4.3.2).
func (p *Plan) HasPrecondition() bool {
	return has(p.Request.Header, "If-Match") || has(p.Request.Header, "If-Unmodified-Since")
}

// meets reports whether the stored answer is one that the upstream would let through the client's preconditions (RFC 9110
// §13.1.1, §13.1.4). That they fail is never said here: then they are handed on.
func (p *Plan) meets(s *Stored) bool {
	if !p.HasPrecondition() || !s.holdsSuccess() {
		return true
	}
	if lines := p.Request.Header["If-Match"]; len(lines) > 0 {
		return isStar(lines) || isStrong(s.Header.Get("Etag")) && slices.Contains(slices.Collect(tags(lines)), s.Header.Get("Etag"))
	}
	lines := p.Request.Header["If-Unmodified-Since"]
	limit, ok := ParseDate(lines[0], s.Arrived)
	modified, dated := ParseDate(s.Header.Get("Last-Modified"), s.Arrived)
	return len(lines) > 1 || !ok || !dated || !modified.After(limit)
}

// NotModified reports whether the client's own copy, as its conditionals describe it, is the stored one (RFC 9110 §13,
// RFC 9111 §4.3.2).
func NotModified(req Request, stored Stored) bool {
	if req.Method != http.MethodGet && req.Method != http.MethodHead || !stored.holdsSuccess() {
		return false
	}
	if lines, ok := req.Header["If-None-Match"]; ok {
		return anyTag(lines, stored.Header.Get("Etag"))
	}
	lines := req.Header["If-Modified-Since"]
	return len(lines) == 1 && stored.isNotNewer(lines[0])
}

// Freshen is Admit for a 304: the stored answer with what the 304 says of it (RFC 9111 §4.3.4). Reason Mismatched:
// the 304 is about another answer, and the upstream is to be asked again without validators (R28).
func (p *Policy) Freshen(plan Plan, stored Stored, res304 Response, at Moment) Admission {
	if !confirms(res304.Header, stored.Header) {
		return Admission{Reason: Mismatched}
	}
	whole := res304
	whole.Status = stored.Status
	whole.Header = updated(stored.Header, res304.Header)
	whole.CloseDelimited = false // its body is here
	// What is confirmed to a HEAD is the answer to GET: that is what was asked about.
	plan.Request.Method = http.MethodGet
	adm := p.Admit(plan, &stored, whole, at)
	adm.Changed = false
	return adm
}

// Headed is what an answer to HEAD tells of the answer to GET that is stored under the same key, had that been the one
// to give (RFC 9111 §4.3.5). outdated: it is another by now. Otherwise it is freshened as by a 304; Keep 0: it is not,
// and stays as it is.
func (p *Policy) Headed(plan Plan, stored Stored, head Response, at Moment) (adm Admission, outdated bool) {
	if head.Status != http.StatusOK || !stored.holdsSuccess() || !admits(stored.Audience, plan.Particular) ||
		!acceptable(plan.Request.Header, stored.Header["Content-Encoding"]) {
		return Admission{}, false
	}
	length := stored.Header.Get("Content-Length")
	if stored.Kind == Part {
		length = strconv.FormatInt(stored.Total, 10)
	}
	for name, own := range map[string]string{
		"Etag": stored.Header.Get("Etag"), "Last-Modified": stored.Header.Get("Last-Modified"), "Content-Length": length,
	} {
		unknown := name == "Content-Length" && (own == "" || own == "-1")
		if news := head.Header.Get(name); news != "" && opaque(news) != opaque(own) && !unknown {
			return Admission{}, true
		}
	}
	if stored.Kind == Part {
		return Admission{}, false
	}
	return p.Freshen(plan, stored, head, at), false
}

// holdsSuccess: conditions are evaluated against 2xx answers only (RFC 9110 §13.2.1).
func (s Stored) holdsSuccess() bool {
	return (s.Kind == Answer || s.Kind == Part) && s.Status >= 200 && s.Status < 300
}

// isNotNewer compares a client's date with the answer's Last-Modified, else its Date, else its arrival (RFC 9111
// §4.3.2). A date that is none makes the whole answer due, the client's (RFC 9110 §13.1.3) as well as the upstream's.
func (s Stored) isNotNewer(since string) bool {
	limit, ok := ParseDate(since, s.Arrived)
	if !ok {
		return false
	}
	for _, name := range [...]string{"Last-Modified", "Date"} {
		if own := s.Header.Get(name); own != "" {
			t, ok := ParseDate(own, s.Arrived)
			return ok && !t.After(limit)
		}
	}
	return !s.Arrived.After(limit)
}

// confirms reports whether a 304 is about the stored answer. A 304 that names no validator answers those we sent.
// Where both have a tag they are compared weakly, which is looser than §4.3.4's "same strong validator": servers that
// weaken the tag of what they compress (nginx) send the strong one in the 304, and would be asked twice each time.
func confirms(fresh, stored http.Header) bool {
	tag, own := fresh.Get("Etag"), stored.Get("Etag")
	if tag != "" && (own != "" || isStrong(tag)) {
		return opaque(tag) == opaque(own)
	}
	if date := fresh.Get("Last-Modified"); date != "" {
		return date == stored.Get("Last-Modified")
	}
	return tag == ""
}

// updated is the stored head with the 304's fields in place of its own, each name once (RFC 9111 §3.2). Excepted are
// hop-by-hop fields and those without which the stored bytes cannot be read: a 304 has no body that its own could be
// about, and frameworks stamp their default type on it. A weak tag is never strengthened. Age and Date told of the
// former answer's journey, so they are the 304's or nobody's.
func updated(stored, fresh http.Header) http.Header {
	h, news := stored.Clone(), fresh.Clone()
	StripHop(news)
	for _, name := range [...]string{"Content-Length", "Content-Encoding", "Content-Type", "Content-Range"} {
		delete(news, name)
	}
	if has(stored, "Etag") && !isStrong(stored.Get("Etag")) {
		delete(news, "Etag")
	}
	delete(h, "Age")
	delete(h, "Date")
	for name, lines := range news {
		h[name] = lines
	}
	return h
}

// anyTag compares a list of entity tags weakly with one (RFC 9110 §13.1.2, §8.8.3.2). A member that is no entity tag
// equals only itself, so that a server which writes its tags bare is still understood.
func anyTag(lines []string, tag string) bool {
	if isStar(lines) {
		return true
	}
	if tag == "" {
		return false
	}
	for member := range tags(lines) {
		if opaque(member) == opaque(tag) {
			return true
		}
	}
	return false
}

func isStar(lines []string) bool { return len(lines) == 1 && strings.Trim(lines[0], " \t") == "*" }

// tags yields a list's members in one pass. A comma between quotes is part of a tag, a backslash is itself
// (RFC 9110 §8.8.3), and a quote left open ends with its line.
func tags(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			quoted, start := false, 0
			for i := 0; i <= len(line); i++ {
				switch {
				case i < len(line) && line[i] == '"':
					quoted = !quoted
				case i == len(line) || line[i] == ',' && !quoted:
					if member := strings.Trim(line[start:i], " \t"); member != "" && !yield(member) {
						return
					}
					start = i + 1
				}
			}
		}
	}
}

// opaque is a tag without its mark of weakness, whose case counts.
func opaque(tag string) string { return strings.TrimPrefix(tag, "W/") }

// isStrong reports whether the tag is a well-formed strong one.
func isStrong(tag string) bool {
	return len(tag) >= 2 && tag[0] == '"' && strings.IndexByte(tag[1:], '"') == len(tag)-2
}

func has(h http.Header, name string) bool { return len(h[name]) > 0 }
