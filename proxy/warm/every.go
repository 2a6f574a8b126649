package warm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"weir/policy"
)

const (
	// least is how often a page is brought anew at most, however short it lives.
	least = time.Second
	// unlived is after what time a page is tried again that has no lifetime to take a share of.
	unlived = 10 * time.Minute
	// rarest is how many years two moments of a clock may lie apart: a 29th of February, over a year like 2100, eight.
	rarest = 9
)

// Every says when a page is brought anew: after a share of its lifetime, after a time, or at moments of the clock.
type Every struct {
	text   string
	share  float64
	period time.Duration
	clock  cron.Schedule
}

// ParseEvery reads 80%, a duration, or five fields of cron, which are in UTC unless they begin with CRON_TZ=. How
// durations are written is the caller's to say.
func ParseEvery(text string, duration func(string) (time.Duration, error)) (Every, error) {
	e := Every{text: strings.TrimSpace(text)}
	number, isShare := strings.CutSuffix(e.text, "%")
	switch {
	case isShare:
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent >= 1 && percent <= 99) {
			return e, fmt.Errorf("%q is no share of a lifetime: write 80%%, or another from 1%% to 99%%", e.text)
		}
		e.share = percent / 100
	case strings.ContainsAny(e.text, " \t@*"):
		return e, e.readClock()
	default:
		d, err := duration(e.text)
		if err != nil {
			return e, fmt.Errorf("%q is none of a share (80%%), a duration (30s), and cron (*/5 * * * *)", e.text)
		}
		if d < least {
			return e, fmt.Errorf("%s is too often: write %s or more", e.text, least)
		}
		e.period = d
	}
	return e, nil
}

func (e *Every) readClock() error {
	// Where day and weekday are both named either will do, as in every crontab.
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom)
	if err == nil {
		e.clock, err = parser.WithMaxSearchYears(rarest).Parse(e.text)
	}
	if err != nil {
		return fmt.Errorf("%q is not cron (%w): write minute, hour, day, month and weekday, */5 * * * * for every five minutes", e.text, err)
	}
	if e.clock.Next(time.Unix(0, 0).UTC()).IsZero() {
		return fmt.Errorf("%q is a moment that never comes", e.text)
	}
	return nil
}

// String is what was written.
func (e Every) String() string { return e.text }

// after is when a page is due that arrived then: before the moment by up to a tenth of the time until it, by the dice,
// so that what arrived together is not brought anew together. The clock's moments are exact.
func (e Every) after(s policy.Stored, dice float64) time.Time {
	wait := e.period
	switch {
	case e.clock != nil:
		return e.clock.Next(s.Arrived.UTC())
	case e.share > 0:
		wait = time.Duration(e.share * float64(s.Lifetime()))
		if wait <= 0 {
			wait = unlived
		}
	}
	return s.Arrived.Add(max(least, wait-time.Duration(dice*float64(wait)/10)))
}
