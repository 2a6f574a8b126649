package policy

import (
	"net/http"
	"strings"
	"time"
)

const (
	// LongestKeep bounds how long anything is kept. Notes of purges are kept as long (R8).
	LongestKeep = 30 * 24 * time.Hour
	// longestHeuristic bounds a lifetime guessed from Last-Modified: a guess should not outlive a day.
	longestHeuristic = 24 * time.Hour
	// heuristicShare of the time since the last modification is the usual guess (RFC 9111 §4.2.2).
	heuristicShare = 10
	// longest is the most a lifetime or age can be (RFC 9111 §1.2.2); it keeps sums of them in range.
	longest = maxSeconds * time.Second
)

// source says who set a lifetime.
type source uint8

const (
	nobody source = iota
	stated        // the response, by s-maxage, max-age or Expires
	ours          // the route or a heuristic: jitter may shorten it, and nobody particular is answered by it (R1)
	forced        // force_ttl: ours too, and whatever the response says
)

// term is how long an answer is fresh, counted from its arrival; not positive when it arrived stale.
type term struct {
	left time.Duration
	by   source
}

// initialAge is corrected_initial_age (RFC 9111 §4.2.3). Dates count whole seconds, so the arrival they are compared
// with does too: else every answer would seem up to a second old.
func initialAge(res Response, date time.Time) time.Duration {
	apparent := max(0, res.Arrived.Truncate(time.Second).Sub(date))
	delay := max(0, res.Arrived.Sub(res.Asked))
	return min(max(apparent, ageValue(res.Header)+delay), longest)
}

// ageValue is the first member of Age, or nothing when that is no non-negative integer (RFC 9111 §5.1).
func ageValue(h http.Header) time.Duration {
	if len(h["Age"]) == 0 {
		return 0
	}
	list := members(h["Age"])
	if len(list) == 0 {
		return 0
	}
	n, ok := seconds(list[0])
	if !ok {
		return 0
	}
	return duration(n)
}

// dateValue is when the answer was made: its Date, else its arrival (RFC 9110 §6.6.1).
func dateValue(res Response) time.Time {
	if date, ok := ownDate(res); ok {
		return date
	}
	return res.Arrived.Truncate(time.Second)
}

// ownDate is the one Date that the answer has; two of them tell nothing.
func ownDate(res Response) (time.Time, bool) {
	lines := res.Header["Date"]
	if len(lines) != 1 {
		return time.Time{}, false
	}
	return ParseDate(lines[0], res.Arrived)
}

// statedLifetime is the response's own word (RFC 9111 §4.2.1). An Expires that is no date, or stands twice, has passed.
func (d *responseDirectives) statedLifetime(res Response, date time.Time) (time.Duration, bool) {
	switch {
	case d.SMaxAge >= 0:
		return duration(int64(d.SMaxAge)), true
	case d.MaxAge >= 0:
		return duration(int64(d.MaxAge)), true
	}
	lines := res.Header["Expires"]
	if len(lines) == 0 || d.targeted {
		// Pragma: no-cache alone is the word of an upstream that knows no other: at least nobody else's guess is put in
		// its place.
		return 0, !d.targeted && saysNoCache(res.Header)
	}
	expires, ok := ParseDate(lines[0], res.Arrived)
	if !ok || len(lines) > 1 {
		return 0, true
	}
	return min(max(0, expires.Sub(date)), longest), true
}

// saysNoCache: Pragma: no-cache where there is no Cache-Control.
func saysNoCache(h http.Header) bool {
	if len(h["Cache-Control"]) > 0 || len(h["Pragma"]) == 0 {
		return false
	}
	members, _ := readDirectives(h["Pragma"])
	_, found := members.find("no-cache")
	return found
}

// term finds who says how long the answer is fresh. The order: force_ttl, the response, then what fills its silence:
// negative, ttl, the heuristic. ttl and its like count from arrival, whatever the answer's age: an answer that took
// longer than its ttl to come would else never be kept. negative only ever shortens what an error says of itself, or
// what is forced on it.
func (r *rule) term(plan *Plan, res Response, d *responseDirectives, dice float64) term {
	date := dateValue(res)
	own, isStated := d.statedLifetime(res, date)
	age := initialAge(res, date)
	c, plain := &r.Cache, len(plan.Particular) == 0
	jittered := func(t time.Duration) time.Duration {
		return time.Duration(float64(t) * (1 - float64(c.Jitter)*dice))
	}
	negative := jittered(c.negativeTTL(res.Status))
	switch {
	case c.ForceTTL > 0 && plain && takesTTL(res.Status) && negative > 0:
		return term{min(jittered(c.ForceTTL), negative), forced}
	case c.ForceTTL > 0 && plain && takesTTL(res.Status):
		return term{jittered(c.ForceTTL), forced}
	case isStated && negative > 0:
		return term{min(own-age, negative), stated}
	case isStated:
		return term{own - age, stated}
	case !plain:
		return term{left: -age}
	case negative > 0:
		return term{negative, ours}
	case c.TTL > 0 && takesTTL(res.Status):
		return term{jittered(c.TTL), ours}
	}
	if guess := heuristic(res, d, date); guess > 0 && c.Heuristic {
		return term{jittered(guess) - age, ours}
	}
	return term{left: -age} // stale from the day it was made, as its windows are counted
}

// isNegative: an error, or what the route calls one: an empty answer hides for as long as it lives that something has come.
func (c *Cache) isNegative(status int) bool { return status >= 400 || c.negativeTTL(status) > 0 }

// negativeTTL is what the route gives an error, or an empty answer; 0: nothing.
func (c *Cache) negativeTTL(status int) time.Duration {
	for _, n := range c.Negative {
		for _, s := range n.Status {
			if s == status {
				return n.TTL
			}
		}
	}
	return 0
}

// heuristic guesses from Last-Modified where RFC 9111 §4.2.2 allows it.
func heuristic(res Response, d *responseDirectives, date time.Time) time.Duration {
	lines := res.Header["Last-Modified"]
	if len(lines) != 1 || !d.Public && !isHeuristic(res.Status) {
		return 0
	}
	modified, ok := ParseDate(lines[0], res.Arrived)
	if !ok {
		return 0
	}
	return min(max(0, date.Sub(modified)/heuristicShare), longestHeuristic)
}

// isHeuristic lists the statuses of RFC 9110 §15.1.
func isHeuristic(status int) bool {
	switch status {
	case 200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501:
		return true
	}
	return false
}

// takesTTL lists the statuses that a route's ttl may keep: those above that are neither temporary nor, like 405 and
// 414, about the one request that earned them, nor a failure.
func takesTTL(status int) bool {
	switch status {
	case 200, 203, 204, 206, 300, 301, 308, 404, 410:
		return true
	}
	return false
}

// isOnesOwnFault lists errors that say something of one request, and are kept by the upstream's word or a heuristic
// only, never by ours (R27).
func isOnesOwnFault(status int) bool {
	switch status {
	case 400, 405, 408, 412, 413, 414, 416, 417, 425, 431:
		return true
	}
	return false
}

// isNeverKept lists answers that are not kept by the upstream's word either: what Range and conditions have earned, which
// no key has, and what no cache may store (RFC 6585 §3 to §6). A route may name 429: it is its upstream's, and in need.
func isNeverKept(status int) bool {
	switch status {
	case 412, 416, 428, 429, 431, 511:
		return true
	}
	return false
}

// isAskersOwn lists answers to what one request has carried and no key has: a difference to the copy that A-IM's client
// holds (RFC 3229), and too early, to who sent Early-Data (RFC 8470 §5.2).
func isAskersOwn(status int) bool {
	return status == http.StatusIMUsed || status == http.StatusTooEarly
}

// isUnderstood lists the statuses whose demands on a cache are met here (must-understand, RFC 9111 §5.2.2.3).
func isUnderstood(status int) bool {
	switch {
	case status >= 200 && status <= 206, status >= 300 && status <= 303, status == 307, status == 308,
		status >= 400 && status <= 417, status == 421, status == 422, status == 426, status >= 500 && status <= 505:
		return true
	}
	return false
}

const months = "janfebmaraprmayjunjulaugsepoctnovdec"

// ParseDate reads an HTTP date in each of the three forms of RFC 9110 §5.6.7, in one pass and whatever the letters'
// case. now is what the two-digit year of the RFC 850 form is read against. Anything looser (another zone, one-digit
// hours, doubled spaces) is false: a lenient reader gives a lifetime to what its author got wrong.
func ParseDate(value string, now time.Time) (time.Time, bool) {
	v := strings.Trim(value, " \t")
	if fits(v, "aaa, 00 aaa 0000 00:00:00 gmt") && weekday(v[:3]) {
		return date(v[12:16], v[8:11], v[5:7], v[17:25])
	}
	if fits(v, "aaa aaa _0 00:00:00 0000") && weekday(v[:3]) {
		return date(v[20:24], v[4:7], v[8:10], v[11:19])
	}
	day, rest, _ := strings.Cut(v, ",")
	if !fits(rest, " 00-aaa-00 00:00:00 gmt") || !longWeekday(day) {
		return time.Time{}, false
	}
	year := now.UTC().Year()/100*100 + number(rest[8:10])
	t, ok := dateIn(year, rest[4:7], rest[1:3], rest[11:19])
	// More than 50 years ahead is the past century's year; and near a century's end the next one's is nearer.
	switch latest := now.AddDate(50, 0, 0); {
	case ok && t.After(latest):
		return dateIn(year-100, rest[4:7], rest[1:3], rest[11:19])
	case !ok || !t.AddDate(100, 0, 0).After(latest):
		return dateIn(year+100, rest[4:7], rest[1:3], rest[11:19])
	}
	return t, ok
}

// fits reports whether v has the mask's shape: a is a letter, 0 a digit, _ a digit or space, the rest itself.
func fits(v, mask string) bool {
	if len(v) != len(mask) {
		return false
	}
	for i := range len(v) {
		c := v[i]
		switch m := mask[i]; m {
		case 'a':
			if c|0x20 < 'a' || c|0x20 > 'z' {
				return false
			}
		case '0', '_':
			if (c < '0' || c > '9') && (m == '0' || c != ' ') {
				return false
			}
		case 'g', 'm', 't':
			if c|0x20 != m {
				return false
			}
		default:
			if c != m {
				return false
			}
		}
	}
	return true
}

func weekday(short string) bool {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(d.String()[:3], short) {
			return true
		}
	}
	return false
}

func longWeekday(long string) bool {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(d.String(), long) {
			return true
		}
	}
	return false
}

func date(year, month, day, clock string) (time.Time, bool) {
	return dateIn(number(year), month, day, clock)
}

// dateIn is false for a day the month does not have; second 60 is a leap second's and rolls over.
func dateIn(year int, month, day, clock string) (time.Time, bool) {
	m := strings.Index(months, strings.ToLower(month))
	if m < 0 || m%3 != 0 {
		return time.Time{}, false
	}
	hour, minute, second := number(clock[:2]), number(clock[3:5]), number(clock[6:])
	t := time.Date(year, time.Month(m/3+1), number(day), 0, 0, 0, 0, time.UTC)
	if t.Day() != number(day) || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	return t.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second), true
}

// number reads digits that fits has seen; a leading space counts as nought.
func number(digits string) int {
	n := 0
	for _, c := range []byte(digits) {
		if c != ' ' {
			n = n*10 + int(c-'0')
		}
	}
	return n
}
