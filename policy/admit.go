package policy

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// brought is an answer on its way through Admit.
type brought struct {
	rule  *rule
	plan  *Plan
	prior *Stored
	res   Response
	d     responseDirectives
	term  term
	adm   Admission
}

// Admit answers whether an upstream's answer may be kept and shared, how long, and under which tags.
func (p *Policy) Admit(plan Plan, prior *Stored, res Response, at Moment) Admission {
	b := brought{rule: plan.rule, plan: &plan, prior: prior, res: res, d: plan.rule.directives(res.Header)}
	if b.d.mustUnderstand {
		// Beside must-understand, no-store is for those who do not (RFC 9111 §5.2.2.3).
		b.d.NoStore = !isUnderstood(res.Status)
	}
	b.term = b.rule.term(&plan, res, &b.d, at.Dice)
	b.describe()
	b.windows()
	b.judge()
	b.adm.Key, _ = p.VariantOf(plan, b.adm.Stored)
	return b.adm
}

// AdmitPosted is Admit for an answer to POST. One that is, as its Content-Location says, what lies by now at the very
// URI it was posted to, and that states how long, is kept for GETs (RFC 9110 §9.3.3). The plan returned is a GET's.
func (p *Policy) AdmitPosted(plan Plan, res Response, at Moment) (Plan, Admission) {
	req := plan.Request
	req.Method, req.HasBody = http.MethodGet, false
	get := p.Plan(req)
	if plan.Request.Method != http.MethodPost || res.Status != http.StatusOK || get.Action != Lookup ||
		get.Route.Upstream != plan.Route.Upstream || !get.liesAt(res.Header["Content-Location"]) || misled(req.Header) || !p.isPlain(get, res.Header["Vary"]) {
		return get, Admission{Reason: MethodUnstored}
	}
	d := get.rule.directives(res.Header)
	if lifetime, _ := d.statedLifetime(res, dateValue(res)); lifetime <= 0 {
		return get, Admission{Reason: NoLifetime}
	}
	return get, p.Admit(get, nil, res, at)
}

// isPlain reports whether a GET's fill would say what the POST has said: what the route ignores has gone upstream, and
// Vary may name what no fill sends.
func (p *Policy) isPlain(get Plan, vary []string) bool {
	u, r := get.Request.URL, get.rule
	path, query := pathOf(u), unreserve(u.RawQuery)
	if query != "" || u.ForceQuery {
		path += "?" + query
	}
	if get.Target != path || strings.Join(p.Outgoing(get)["Cookie"], "; ") != strings.Join(get.Request.Header["Cookie"], "; ") {
		return false
	}
	for name := range get.Request.Header {
		if slices.Contains(r.ignored, name) {
			return false
		}
	}
	return !slices.ContainsFunc(members(vary), func(name string) bool { return isToken(name) && name != "*" && !r.sends(http.CanonicalHeaderKey(name)) })
}

// liesAt reports whether a Content-Location is the plan's own URI, as the key has it (RFC 9110 §8.7).
func (p *Plan) liesAt(lines []string) bool {
	if len(lines) != 1 {
		return false
	}
	u := p.Request.sibling(lines[0])
	if u == nil {
		return false
	}
	_, target := p.rule.target(u)
	return target == p.Target
}

// describe notes the facts, whether the answer will be kept or not: May needs them of one that is only shared.
func (b *brought) describe() {
	b.adm.Shared = b.shared()
	s := &b.adm.Stored
	s.Response = b.res
	s.Header = b.adm.Shared
	s.Age = initialAge(b.res, dateValue(b.res))
	s.Audience = b.audience()
	s.Route = b.rule.Name
	s.Tags = append(tagsOf(b.res.Header, b.rule.Cache.Tags.Header), b.plan.groupTags(b.res.Header["Cache-Groups"])...)
	s.Alone = b.d.bareNoCache() && b.term.by != forced
	s.Immutable = b.d.Immutable
	s.NoStale = b.forbidsOurs() || b.isMadeForOne()
	s.Total = -1
	if span, total, ok := partOf(b.res.Header); ok && b.res.Status == http.StatusPartialContent && has(b.plan.Request.Header, "Range") {
		s.Kind, s.Span, s.Total = Part, span, total
	}
	s.Cost = max(0, b.res.Arrived.Sub(b.res.Asked))
	if b.prior != nil && b.prior.Cost > 0 {
		// Smoothed, so that neither one slow fetch nor one quick 304 decides when to refresh.
		s.Cost = (3*b.prior.Cost + s.Cost) / 4
	}
	b.adm.Particular = len(b.plan.Particular) > 0
	b.adm.Changed = b.prior != nil && b.prior.hasValidator()
}

// shared is the head that others may see (R2): without hop-by-hop fields, without those that no-cache and private
// name, without Age, which whoever serves it says anew.
func (b *brought) shared() http.Header {
	h := b.res.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	StripHop(h)
	delete(h, "Age")
	for _, fields := range []map[string]bool{b.d.NoCache, b.d.Private} {
		for name := range fields {
			if name != "Vary" && name != "Cache-Control" { // those are to us
				delete(h, name)
			}
		}
	}
	if b.rule.Cache.SetCookie == "strip" {
		delete(h, "Set-Cookie")
		delete(h, "Set-Cookie2")
	}
	if _, ok := ownDate(b.res); !ok {
		h.Set("Date", b.res.Arrived.UTC().Format(http.TimeFormat)) // RFC 9110 §6.6.1
	}
	return h
}

// audience is R1: what the response does not itself call reusable is nobody's who tells who he is. What it calls
// reusable after asking only (no-cache, max-age=0) each of them asks about for himself.
func (b *brought) audience() Audience {
	switch {
	case b.term.by != stated && !b.d.bareNoCache() || b.term.by == forced:
		return PlainOnly
	case b.d.Public || b.d.SMaxAge >= 0 || b.d.MustRevalidate: // RFC 9111 §3.5
		return Everyone
	}
	return NotAuthorized
}

// isMadeForOne: the asker told who he is, and the response states no time in which it is anybody else's (R1).
func (b *brought) isMadeForOne() bool {
	return len(b.plan.Particular) > 0 && b.term.left+b.adm.Stored.Age <= 0
}

// forbidsStale: nothing stale is served for as long as the answer itself says, either.
func (b *brought) forbidsStale() bool {
	return b.d.MustRevalidate || b.d.ProxyRevalidate || b.d.bareNoCache() && b.term.by != forced
}

// forbidsOurs: nothing stale is served for as long as the route says, by a directive that the route does not name
// (decision 9).
func (b *brought) forbidsOurs() bool {
	heeded := func(directive string) bool { return !slices.Contains(b.rule.Cache.StaleDespite, directive) }
	return b.d.MustRevalidate && heeded("must-revalidate") || b.d.ProxyRevalidate && heeded("proxy-revalidate") ||
		b.d.SMaxAge >= 0 && heeded("s-maxage") || b.d.bareNoCache() && b.term.by != forced && heeded("no-cache")
}

// windows sets the three moments. The upstream's own windows hold beside s-maxage, which forbids only ours; beside
// must-revalidate and its like they are void. Ours hold where nothing forbids them that the route heeds. What was made for
// one who tells who he is has none of ours (R1). An error has no grace of ours (R27), and never stands in for another.
func (b *brought) windows() {
	s, c := &b.adm.Stored, &b.rule.Cache
	left := b.term.left
	if s.Alone {
		left = -s.Age // stale from the day it was made, as its windows are counted
	}
	s.FreshUntil = b.res.Arrived.Add(left)
	var refresh, rescue time.Duration
	if !s.NoStale && len(b.plan.Particular) == 0 {
		rescue = c.StaleIfError
		if !c.isNegative(b.res.Status) {
			refresh = c.Grace.longest()
		}
	}
	if own := int64(b.d.StaleWhileRevalidate); own >= 0 && !b.forbidsStale() {
		refresh, s.RefreshStated = duration(own), true
	}
	if own := int64(b.d.StaleIfError); own >= 0 && !b.forbidsStale() {
		rescue, s.RescueStated = duration(own), true
		if !s.RefreshStated {
			refresh = min(refresh, max(c.Grace.Well, rescue)) // what a sick upstream's grace adds is for errors, too
		}
	}
	if refresh > rescue {
		// What may be served while it is refreshed may be served when that fails.
		rescue, s.RescueStated = refresh, s.RefreshStated
	}
	if isFailure(b.res.Status) {
		refresh, rescue = 0, 0
	}
	s.RefreshUntil, s.RescueUntil = s.FreshUntil.Add(refresh), s.FreshUntil.Add(rescue)
}

// judge decides who may have the answer and whether it is kept, and says the first reason against.
func (b *brought) judge() {
	if reason := b.unshareable(); reason != None {
		b.adm.Private, b.adm.Reason = true, reason
		// Only what the answer says of itself tells of the next one (R4), and an error says nothing of the page.
		if b.res.Status < 400 && leavesMark(reason) {
			b.adm.Mark = b.rule.Cache.UncacheableFor
			b.adm.Stored.Why = reason
		}
		return
	}
	if b.adm.Reason = b.unstorable(); b.adm.Reason == None {
		b.adm.Keep = min(b.keep(), LongestKeep)
	}
	b.adm.Outdates = b.adm.Keep == 0 && b.prior != nil && b.prior.isGoodUntil(b.res.Arrived) && b.isNews()
}

// isNews: a whole answer for everybody, or that the page is gone. Other errors may be about the one request. What a 200 to
// HEAD tells of the copy, Headed finds in its fields.
func (b *brought) isNews() bool {
	status := b.res.Status
	if b.plan.Request.Method == http.MethodHead && status == http.StatusOK {
		return false
	}
	return status < 400 || status == http.StatusNotFound || status == http.StatusGone
}

func leavesMark(reason Reason) bool {
	switch reason {
	case NoStore, Private, SetCookie, VaryStar, NoValidator, Authorized, ParticularAsker:
		return true
	}
	return false
}

// unshareable: nobody but the asker may have it.
func (b *brought) unshareable() Reason {
	s := &b.adm.Stored
	names, selectable := b.rule.varies(b.plan, b.res.Header)
	s.Vary = names
	switch {
	case !fitHeader(b.res.Header):
		return BadHeader
	case b.plan.Request.Method != http.MethodGet && b.plan.Request.Method != http.MethodHead:
		return MethodUnstored
	case b.res.Status == http.StatusPartialContent && s.Kind != Part:
		return PartialRefused
	case b.res.Status < 200 || b.res.Status == http.StatusNotModified || b.res.Status > 599, isAskersOwn(b.res.Status):
		return StatusRefused
	case b.d.NoStore:
		return NoStore
	case b.d.barePrivate():
		return Private
	case b.setsCookie():
		return SetCookie
	case !selectable:
		return VaryStar
	case !admits(s.Audience, b.plan.Particular):
		return b.plan.refusedAsker()
	case s.Alone && !s.hasValidator():
		return NoValidator
	case isEndless(b.res.Header):
		return StreamType
	case b.plan.directives.noStore:
		return RequestDirective
	}
	return None
}

func (b *brought) setsCookie() bool {
	if b.rule.Cache.SetCookie == "keep" {
		return false
	}
	return has(b.adm.Shared, "Set-Cookie") || has(b.adm.Shared, "Set-Cookie2")
}

// unstorable: it may be shared with those who wait, but is not kept.
func (b *brought) unstorable() Reason {
	status := b.res.Status
	byDefault := isHeuristic(status) || b.d.Public
	switch {
	case b.plan.Request.Method != http.MethodGet:
		return MethodUnstored
	case b.term.by == nobody && (!byDefault || isFailure(status)):
		return StatusRefused
	case isFailure(status) && b.prior != nil && b.prior.isGoodUntil(b.res.Arrived):
		return GoodCopyKept
	case isNeverKept(status) && b.rule.Cache.negativeTTL(status) <= 0:
		return StatusRefused
	case b.res.CloseDelimited && b.term.by != stated:
		return CloseDelimited
	case b.isUseful():
		return None
	case b.term.by == nobody:
		return NoLifetime
	}
	return UselessStale
}

// isUseful: an answer that arrived stale is worth keeping for what can still be done with it (R34). The route's
// stale_if_error alone is no use to an answer that never was to be reused; to one that merely came late it is.
func (b *brought) isUseful() bool {
	s := &b.adm.Stored
	arrived := b.res.Arrived
	return s.FreshUntil.After(arrived) || s.RefreshUntil.After(arrived) || s.hasValidator() && b.keep() > 0 ||
		s.RescueUntil.After(arrived) && (b.d.StaleIfError > 0 || b.term.by == stated && b.term.left+s.Age > 0)
}

// keep is how long the answer can be of use: until its last moment, and after that for a conditional request.
func (b *brought) keep() time.Duration {
	s := &b.adm.Stored
	last := s.FreshUntil
	for _, t := range []time.Time{s.RefreshUntil, s.RescueUntil, s.Arrived} {
		if t.After(last) {
			last = t
		}
	}
	keep := last.Sub(s.Arrived)
	if s.hasValidator() {
		keep += b.rule.Cache.Keep
	}
	return keep
}

// hasValidator reports whether the upstream can be asked if the answer still holds.
func (s *Stored) hasValidator() bool {
	return s.holdsSuccess() && (s.Header.Get("Etag") != "" || s.Header.Get("Last-Modified") != "")
}

// isGoodUntil reports whether the copy may still be served at t, in whatever case, and is no error.
func (s *Stored) isGoodUntil(t time.Time) bool {
	return s.Kind == Answer && !isFailure(s.Status) && (s.FreshUntil.After(t) || s.RefreshUntil.After(t) || s.RescueUntil.After(t))
}

// admits reports whether an answer for that audience may be given to a request that carries these fields (R1).
func admits(a Audience, particular []string) bool {
	switch {
	case len(particular) == 0 || a == Everyone:
		return true
	case a == PlainOnly:
		return false
	}
	return !slices.Contains(particular, "Authorization")
}

// isEndless names content that is made for one reader while he reads (R6).
func isEndless(h http.Header) bool {
	media, _, _ := strings.Cut(lower(h.Get("Content-Type")), ";")
	media = strings.Trim(media, " \t")
	return media == "text/event-stream" || media == "multipart/x-mixed-replace" ||
		media == "application/grpc" || strings.HasPrefix(media, "application/grpc+")
}

// fitHeader checks what the store and hand-written heads will carry (R30).
func fitHeader(h http.Header) bool {
	for name, lines := range h {
		if !isToken(name) || slices.ContainsFunc(lines, func(v string) bool { return !fitValue(v) }) {
			return false
		}
	}
	return true
}

// tagsOf gathers what purges by tag find the answer under.
func tagsOf(h http.Header, fields []string) []string {
	set := map[string]bool{}
	for _, field := range fields {
		for _, line := range h[http.CanonicalHeaderKey(field)] {
			for _, tag := range strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
				set[tag] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}
