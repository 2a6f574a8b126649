package config

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"weir/policy"
	"weir/proxy/warm"
)

// Size is a number of bytes, written as "256MiB" (powers of 1024) or "256MB" (powers of 1000).
type Size int64

// parse turns the text of one value into t's. Its errors say what to write instead.
func parse(text string, t reflect.Type) (any, error) {
	text = strings.TrimSpace(text)
	switch t {
	case durationType:
		return parseDuration(text)
	case percentType:
		return parsePercent(text)
	case sizeType:
		return parseSize(text)
	case prefixType:
		return parsePrefix(text)
	case graceType:
		d, err := parseDuration(text)
		return policy.Grace{Well: d}, err
	case everyType:
		return warm.ParseEvery(text, parseDuration)
	}
	switch t.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Bool:
		return parseBool(text)
	case reflect.Int, reflect.Int64:
		return parseInt(text, t)
	case reflect.Float64:
		return parseFloat(text)
	case reflect.Slice:
		return parseList(text, t)
	}
	return nil, fmt.Errorf("cannot be set from text")
}

func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return text == "true", nil
}

func parseInt(text string, t reflect.Type) (any, error) {
	n, err := strconv.ParseInt(text, 10, t.Bits())
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", text)
	}
	if n < 0 {
		return nil, fmt.Errorf("must not be negative, is %d", n)
	}
	return reflect.ValueOf(n).Convert(t).Interface(), nil
}

func parseFloat(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	if f < 0 {
		return 0, fmt.Errorf("must not be negative, is %v", f)
	}
	return f, nil
}

// parseList reads a comma list: how the environment writes what is a list in the file.
func parseList(text string, t reflect.Type) (any, error) {
	list := reflect.MakeSlice(t, 0, 0)
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		v, err := parse(item, t.Elem())
		if err != nil {
			return nil, err
		}
		list = reflect.Append(list, reflect.ValueOf(v))
	}
	return list.Interface(), nil
}

// parseDuration is time.ParseDuration with days and weeks, and without its two silences: a bare number is refused
// (elsewhere "90" has meant nanoseconds), and so is a negative span, which none of our keys can use.
func parseDuration(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n != 0 {
		return 0, fmt.Errorf("%s needs a unit: write %ss, %sm, %sh or %sd", text, text, text, text, text)
	}
	if strings.HasPrefix(text, "-") {
		return 0, fmt.Errorf("must not be negative, is %s", text)
	}
	if strings.Contains(text, "-") {
		return 0, badDuration(text)
	}
	rest, total := text, time.Duration(0)
	for _, unit := range []struct {
		letter string
		days   float64
	}{{"w", 7}, {"d", 1}} {
		number, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(math.Abs(n)*unit.days < math.MaxInt64/float64(24*time.Hour)/2) {
			return 0, badDuration(text)
		}
		total += time.Duration(n * unit.days * float64(24*time.Hour))
		rest = after
	}
	if rest != "" || text == "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d > math.MaxInt64-total {
			return 0, badDuration(text)
		}
		total += d
	}
	return total, nil
}

func badDuration(text string) error {
	return fmt.Errorf("%q is not a duration: write 90s, 5m, 1h30m or 2d", text)
}

func parsePercent(text string) (policy.Percent, error) {
	number, found := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !found {
		return 0, fmt.Errorf("%q is not a percentage: write 20%%", text)
	}
	if !(f >= 0 && f < 100) {
		return 0, fmt.Errorf("%s is out of range: from 0%% to less than 100%%", text)
	}
	return policy.Percent(f / 100), nil
}

func parseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write 64MiB, 512KiB or 1GiB", text)
	}
	if n > math.MaxInt64 { // as 9EiB is
		return 0, fmt.Errorf("%s is out of range", text)
	}
	return Size(n), nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a network: write 10.0.0.0/8 or ::1", text)
	}
	return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
}

// The forms that parse reads, for those who print a Config.

func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (s Size) String() string {
	for _, unit := range []struct {
		name  string
		bytes Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= unit.bytes && s%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", s/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}
