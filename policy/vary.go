package policy

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxVariants of a page; a page with more is not worth keeping (R5).
	maxVariants = 64
	// maxSelecting names in a Vary: a longer one selects nothing again.
	maxSelecting = 32
	// maxValue bytes of a selecting value stand in a signpost; a longer one is told by its digest.
	maxValue = 256
	// maxListed bytes of a list of preferences are put in order.
	maxListed = 4 << 10
	// overflowMark is how long a page with too many variants is not collapsed.
	overflowMark = 2 * time.Minute

	absent = "-" // a field that was not sent; one that was, empty or not, begins with "="
)

// Follow turns a plan for a page into a plan for the variant of it that the request selects (R5). Of several that
// match, the most recent counts (RFC 9111 §4.1); when none does, the key is the one under which the newest answer's
// Vary would file the request.
func (p *Policy) Follow(plan Plan, sign Stored) Plan {
	if sign.Kind != Signpost || len(sign.Variants) == 0 {
		return plan
	}
	match := plan.rule.match(plan.Request.Header, sign.Variants)
	if match != nil {
		plan.Vary, plan.Key.Variant = match.Names, match.Variant
		return plan
	}
	plan.Vary = sign.Variants[len(sign.Variants)-1].Names
	plan.Key.Variant = variantKey(plan.Page, plan.Vary, plan.rule.selectingAll(plan.Request.Header, plan.Vary))
	return plan
}

// VariantOf is the signpost's line for an answer brought for plan, and the key the answer is kept under. An answer
// that varies on nothing is kept under the page's key and has no line (nil).
func (p *Policy) VariantOf(plan Plan, stored Stored) (Key, *Variant) {
	if len(stored.Vary) == 0 {
		return plan.Page, nil
	}
	values := plan.rule.selectingAll(plan.Request.Header, stored.Vary)
	key := Key{plan.Page.Primary, variantKey(plan.Page, stored.Vary, values)}
	return key, &Variant{
		Names: stored.Vary, Values: values,
		Language: lower(stored.Header.Get("Content-Language")), Coding: lower(stored.Header.Get("Content-Encoding")),
		Variant: key.Variant, Arrived: stored.Arrived,
	}
}

// Parted turns the plan of an exchange that Vary parted from a fill (May said Lookup) into one for its own variant
// (R2): at the fill's head, long before its commit lays the signpost that Follow would read.
func (p *Policy) Parted(plan Plan, brought Admission) Plan {
	plan.Key, _ = p.VariantOf(plan, brought.Stored)
	plan.Vary = brought.Stored.Vary
	return plan
}

// AddVariant returns the signpost with one line more (or replaced), the newest last, at most 64. Past that it returns
// a Marker. sign may be anything else that lies under the page's key: then the signpost begins here.
func AddVariant(sign Stored, v Variant) Stored {
	var lines []Variant
	if sign.Kind == Signpost {
		lines = slices.DeleteFunc(slices.Clone(sign.Variants), func(old Variant) bool { return old.Variant == v.Variant })
	}
	s := Stored{Kind: Signpost, Leased: sign.Leased}
	s.Asked, s.Arrived = v.Arrived, v.Arrived
	if len(lines) >= maxVariants {
		until := v.Arrived.Add(overflowMark)
		s.Kind, s.Why, s.Marked = Marker, VaryStar, [2]time.Time{until, until}
		s.FreshUntil, s.RefreshUntil, s.RescueUntil = v.Arrived, v.Arrived, v.Arrived
		return s
	}
	s.Variants = append(lines, v)
	// A signpost is never stale: Take answers it without a lease, which is had under the variant's key.
	never := time.Unix(1<<32, 0)
	s.FreshUntil, s.RefreshUntil, s.RescueUntil = never, never, never
	return s
}

func variantKey(page Key, names, values []string) string {
	return digest(slices.Concat([]string{page.Variant}, names, values))
}

// varies lists the selecting fields of an answer, lower case and sorted; ok is false when no request can be known to
// select it again (RFC 9111 §4.1). What no fill sends upstream selects nothing: the answer was made without it, and a
// client could make as many variants of one answer as it likes. Two fields count though Vary forgot them: without
// Accept-Encoding somebody gets bytes he cannot decode, without Origin a browser refuses another site's permission.
func (r *rule) varies(plan *Plan, h http.Header) (names []string, ok bool) {
	for _, line := range h["Vary"] {
		for name := range strings.SplitSeq(line, ",") {
			name = lower(strings.Trim(name, " \t"))
			if name == "" || isToken(name) && !r.sends(http.CanonicalHeaderKey(name)) {
				continue
			}
			if name == "*" || !isToken(name) || len(names) == maxSelecting {
				return nil, false
			}
			names = append(names, name)
		}
	}
	if len(h["Content-Encoding"]) > 0 {
		names = append(names, "accept-encoding")
	}
	if origin := h["Access-Control-Allow-Origin"]; len(origin) > 0 && origin[0] != "*" {
		names = append(names, "origin")
	}
	// The plain form of a page that has coded forms is one more of them. Under the page's own key it would take the
	// signpost's place, and the two would drive each other out.
	if len(names) == 0 && len(plan.Vary) > 0 && !slices.ContainsFunc(plan.Vary, isDeclared) {
		names = append(names, plan.Vary...)
	}
	return sorted(names), true
}

// isDeclared: only an upstream's Vary can have named it.
func isDeclared(name string) bool { return name != "accept-encoding" && name != "origin" }

// match finds the newest line that the request selects. Lines mostly share their names, and so the request's values.
func (r *rule) match(h http.Header, lines []Variant) (newest *Variant) {
	var names, values []string
	best := bestLanguage(h["Accept-Language"])
	for i := range lines {
		v := &lines[i]
		if i == 0 || !slices.Equal(names, v.Names) {
			names, values = v.Names, r.selectingAll(h, v.Names)
		}
		if v.fits(values, best) && (newest == nil || !v.Arrived.Before(newest.Arrived)) {
			newest = v
		}
	}
	return newest
}

func (v *Variant) fits(values []string, language string) bool {
	if len(v.Names) != len(v.Values) {
		return false
	}
	for i, name := range v.Names {
		if values[i] != v.Values[i] && (name != "accept-language" || v.Language == "" || v.Language != language) {
			return false
		}
	}
	return true
}

func (r *rule) selectingAll(h http.Header, names []string) []string {
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = r.selecting(h, name)
	}
	return values
}

// selecting is a request field as it is compared (RFC 9111 §4.1): lines joined, blanks round commas gone, preferences
// in one order. It is what the upstream sees, without ignored cookies.
func (r *rule) selecting(h http.Header, name string) string {
	name = http.CanonicalHeaderKey(name)
	lines, sent := h[name]
	if !sent {
		return absent
	}
	v := strings.Join(lines, ",")
	switch {
	case name == "Cookie" && len(r.Cache.Ignore.Cookies) > 0:
		left := slices.DeleteFunc(cookiePairs(h), func(pair string) bool {
			return listed(r.Cache.Ignore.Cookies, cookieName(pair))
		})
		if len(left) == 0 {
			return absent
		}
		v = strings.Join(left, "; ")
	case name == "Accept-Encoding" || name == "Accept-Language":
		v = preferences(v)
	default:
		v = tightened(v)
	}
	if len(v) > maxValue {
		v = "#" + digest([]string{v})
	}
	return "=" + v
}

// tightened drops the blanks round commas and at the ends, but not those inside quotes.
func tightened(v string) string {
	var b strings.Builder
	quoted, start := false, 0
	for i := 0; i <= len(v); i++ {
		switch {
		case i == len(v) || v[i] == ',' && !quoted:
			if start > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.Trim(v[start:i], " \t"))
			start = i + 1
		case v[i] == '"':
			quoted = !quoted
		case v[i] == '\\' && quoted && i+1 < len(v): // one that ends the value escapes nothing
			i++
		}
	}
	return b.String()
}

// preferences is a list of weighted names in one order: their order says nothing (RFC 9110 §12.4.2, §12.5).
// What is malformed, or too long to be sorted for a stranger, is compared as it is.
func preferences(v string) string {
	if len(v) > maxListed {
		return tightened(v)
	}
	var members []string
	for name, q := range weighted(v) {
		switch {
		case q < 0:
			return tightened(v)
		case q < 1000:
			name += ";q=" + strconv.Itoa(q)
		}
		members = append(members, name)
	}
	return strings.Join(sorted(members), ",")
}

// weighted yields the names of an Accept- field in lower case, with their weights in thousandths; -1 is malformed.
func weighted(v string) func(yield func(string, int) bool) {
	return func(yield func(string, int) bool) {
		for member := range strings.SplitSeq(v, ",") {
			name, params, has := strings.Cut(member, ";")
			name, q := lower(strings.Trim(name, " \t")), 1000
			if has {
				q = weight(params)
			}
			if name != "" && !yield(name, q) {
				return
			}
		}
	}
}

// weight reads q=0.5 as 500 (RFC 9110 §12.4.2), -1 when it is malformed.
func weight(params string) int {
	k, v, _ := strings.Cut(params, "=")
	if lower(strings.Trim(k, " \t")) != "q" {
		return -1
	}
	whole, part, _ := strings.Cut(strings.Trim(v, " \t"), ".")
	n, ok := seconds(part + "000"[min(len(part), 3):])
	switch {
	case !ok || len(part) > 3 || whole != "0" && whole != "1" || whole == "1" && n > 0:
		return -1
	case whole == "1":
		return 1000
	}
	return int(n)
}

// bestLanguage is the one language the client prefers to all others; "" when it has no such favourite. Whatever else
// is in the list, an upstream that has this one sends it, so an answer in it is the answer (RFC 9111 §4.1).
func bestLanguage(lines []string) string {
	best, top := "", 0
	for name, q := range weighted(strings.Join(lines, ",")) {
		switch {
		case q < 0:
			return ""
		case q > top:
			best, top = name, q
		case q == top:
			best = ""
		}
	}
	if best == "*" {
		return ""
	}
	return best
}

// acceptable reports whether the client can decode an answer (RFC 9110 §12.5.3). No Accept-Encoding accepts anything,
// and so does everyone a coding that is not registered: it is an application's own affair.
func acceptable(h http.Header, codings []string) bool {
	if len(codings) == 0 {
		return true
	}
	lines, sent := h["Accept-Encoding"]
	if !sent {
		return true
	}
	accepted := strings.Join(lines, ",")
	for coding := range strings.SplitSeq(strings.Join(codings, ","), ",") {
		coding = lower(strings.Trim(coding, " \t"))
		switch coding {
		case "gzip", "x-gzip", "br", "zstd", "deflate", "compress", "x-compress", "dcb", "dcz":
			if !accepts(accepted, strings.TrimPrefix(coding, "x-")) {
				return false
			}
		}
	}
	return true
}

func accepts(accepted, coding string) bool {
	star := false
	for name, q := range weighted(accepted) {
		switch strings.TrimPrefix(name, "x-") {
		case coding:
			return q > 0
		case "*":
			star = q > 0
		}
	}
	return star
}
