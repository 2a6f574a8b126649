package policy

import (
	"strings"
	"time"
)

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
