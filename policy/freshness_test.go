package policy

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestParseDate(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	right := time.Date(1994, time.November, 6, 8, 49, 37, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Time // zero: it is no date
	}{
		// RFC 9110 §5.6.7 gives these three as one moment.
		{"Sun, 06 Nov 1994 08:49:37 GMT", right},
		{"Sunday, 06-Nov-94 08:49:37 GMT", right},
		{"Sun Nov  6 08:49:37 1994", right},
		{" Sun, 06 Nov 1994 08:49:37 GMT\t", right},
		{"SUN, 06 NOV 1994 08:49:37 gmt", right},
		{"Sun Nov 06 08:49:37 1994", right},
		{"Tue, 19 Jan 2038 14:14:08 GMT", time.Date(2038, 1, 19, 14, 14, 8, 0, time.UTC)},
		{"Sun, 21 Nov 2286 04:46:39 GMT", time.Date(2286, 11, 21, 4, 46, 39, 0, time.UTC)},
		// A leap second rolls over; a leap day is in leap years only.
		{"Sat, 31 Dec 2016 23:59:60 GMT", time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"Thu, 29 Feb 2024 00:00:00 GMT", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"Wed, 29 Feb 2023 00:00:00 GMT", time.Time{}},
		// Two digits: at most 50 years ahead.
		{"Thursday, 18-Aug-50 02:01:18 GMT", time.Date(2050, 8, 18, 2, 1, 18, 0, time.UTC)},
		{"Sunday, 01-Mar-76 12:00:00 GMT", time.Date(2076, 3, 1, 12, 0, 0, 0, time.UTC)},
		{"Sunday, 01-Mar-76 12:00:01 GMT", time.Date(1976, 3, 1, 12, 0, 1, 0, time.UTC)},
		// Near misses.
		{"", time.Time{}},
		{"0", time.Time{}},
		{"Thu, 18 Aug 2050 02:01:18 UTC", time.Time{}},
		{"Thu, 18 Aug 2050 02:01:18 AEST", time.Time{}},
		{"Thu, 18 Aug 50 02:01:18 GMT", time.Time{}},
		{"Thu 18 Aug 2050 02:01:18 GMT", time.Time{}},
		{"Thu, 18  Aug  2050 02:01:18 GMT", time.Time{}},
		{"Thu, 18-Aug-2050 02:01:18 GMT", time.Time{}},
		{"Thu, 18 Aug 2050 02.01.18 GMT", time.Time{}},
		{"Thu, 18 Aug 2050 2:01:18 GMT", time.Time{}},
		{"Thu, 18 Aug 2050 24:00:00 GMT", time.Time{}},
		{"Thu, 18 Aug 2050 02:60:00 GMT", time.Time{}},
		{"Thu, 18 Aug 2050 02:00:61 GMT", time.Time{}},
		{"Thu, 00 Aug 2050 02:00:00 GMT", time.Time{}},
		{"Thu, 32 Aug 2050 02:00:00 GMT", time.Time{}},
		{"Thu, 18 Ugs 2050 02:00:00 GMT", time.Time{}},
		{"Thu, 18 Anf 2050 02:00:00 GMT", time.Time{}},
		{"Xyz, 18 Aug 2050 02:00:00 GMT", time.Time{}},
		{"Thu, 18-Aug-50 02:00:00 GMT", time.Time{}},
	} {
		got, ok := ParseDate(c.value, now)
		if ok == c.want.IsZero() || ok && !got.Equal(c.want) {
			t.Errorf("ParseDate(%q) = %v, %v; want %v", c.value, got, ok, c.want)
		}
	}
}

// Near a century's end two digits mean the next one's, if that is nearer.
func TestTwoDigitYearsCrossTheCentury(t *testing.T) {
	now := time.Date(2099, time.December, 31, 0, 0, 0, 0, time.UTC)
	got, ok := ParseDate("Friday, 01-Jan-00 00:00:00 GMT", now)
	if want := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC); !ok || !got.Equal(want) {
		t.Errorf("got %v, %v; want %v", got, ok, want)
	}
}

// FuzzParseDate: what is a date to us is one to the standard library and the same; whatever is, is within the rule.
func FuzzParseDate(f *testing.F) {
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
		"Friday, 29-Feb-00 00:00:00 GMT", "Thu, 18 Aug 2050 02:01:18 AEST", ",", "Sun Nov    08:49:37 1994",
	} {
		f.Add(s, int64(1772366400))
	}
	f.Fuzz(func(t *testing.T, s string, unix int64) {
		now := time.Unix(unix%(1<<33), 0).UTC()
		got, ok := ParseDate(s, now)
		if !ok {
			return
		}
		if _, long, isShort := strings.Cut(s, "-"); isShort && long != "" && got.After(now.AddDate(50, 0, 1)) {
			t.Fatalf("%q at %v is %v: more than 50 years ahead", s, now, got)
		}
		text := got.Format(http.TimeFormat)
		again, ok := ParseDate(text, now)
		if got.Year() < 10000 && got.Year() >= 0 && (!ok || !again.Equal(got)) {
			t.Fatalf("%q is %v, which is written %q and read %v, %v", s, got, text, again, ok)
		}
	})
}
