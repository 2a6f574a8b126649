package config

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"weir/policy"
)

func TestParse(t *testing.T) {
	day := 24 * time.Hour
	for text, want := range map[string]any{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "0": time.Duration(0), "0s": time.Duration(0),
		"2d": 2 * day, "1w": 7 * day, "1w2d3h": 9*day + 3*time.Hour, "1.5d": 36 * time.Hour,
		"0%": policy.Percent(0), "20%": policy.Percent(0.2), "12.5 %": policy.Percent(0.125),
		"64MiB": Size(67108864), "64MB": Size(64000000), "64Mi": Size(67108864), "1.5KiB": Size(1536), "10": Size(10), "4EiB": Size(1 << 62),
		"10.0.0.0/8": netip.MustParsePrefix("10.0.0.0/8"), "10.1.2.3/8": netip.MustParsePrefix("10.0.0.0/8"),
		"192.0.2.1": netip.MustParsePrefix("192.0.2.1/32"), "::1": netip.MustParsePrefix("::1/128"),
		"::ffff:192.0.2.1": netip.MustParsePrefix("192.0.2.1/32"),
	} {
		got, err := parse(text, reflect.TypeOf(want))
		if err != nil || got != want {
			t.Errorf("parse(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, typ := range map[string]reflect.Type{
		"90": durationType, "": durationType, "1d-1h": durationType, "-1d": durationType, "1e300d": durationType, "NaNd": durationType,
		"106751d": durationType, "1x": durationType, "53375d2562047h": durationType, "d": durationType, "1d1w": durationType,
		"20": percentType, "100%": percentType, "-1%": percentType, "NaN%": percentType, "%": percentType,
		"9EiB": sizeType, "-1KiB": sizeType, "64 apples": sizeType, "64": prefixType, "10.0.0.0/33": prefixType,
		"fe80::1%eth0/64": prefixType, "99999999999999999999": reflect.TypeFor[int](), "-1": reflect.TypeFor[int](),
		"Inf": reflect.TypeFor[float64](), "on": reflect.TypeFor[bool](), "10.0.0.0/8,x": reflect.TypeFor[[]netip.Prefix](),
	} {
		if got, err := parse(text, typ); err == nil {
			t.Errorf("parse(%q, %v) = %v; want an error", text, typ, got)
		}
	}
}

func TestWhatIsPrintedReadsBack(t *testing.T) {
	for _, want := range []any{
		90 * time.Second, time.Hour, 24 * time.Hour, 90 * time.Minute, time.Duration(0), 250 * time.Millisecond, 36*time.Hour + time.Second,
		policy.Percent(0.2), policy.Percent(0.125), policy.Percent(1.0 / 3), Size(0), Size(1 << 30), Size(1000), Size(3 << 19),
	} {
		text, _ := scalar(want)
		if got, err := parse(text, reflect.TypeOf(want)); err != nil || !near(got, want) {
			t.Errorf("%v is printed as %q, which reads as %v, %v", want, text, got, err)
		}
	}
	for d, want := range map[time.Duration]string{24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Minute: "1m", 0: "0s", 10 * time.Second: "10s"} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

func near(got, want any) bool {
	a, isShare := got.(policy.Percent)
	if b, ok := want.(policy.Percent); ok && isShare {
		return a-b < 1e-9 && b-a < 1e-9
	}
	return got == want
}

// A duration that is accepted is what its text says: printing and reading it again changes nothing, and no text is
// read as a negative one.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"90s", "1w2d", "1.5d", "-1d", "90", "1e9d", "d", "9223372036s", "0.1w"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDuration(text)
		if err != nil {
			return
		}
		if again, err := parseDuration(formatDuration(d)); d < 0 || err != nil || again != d {
			t.Errorf("%q is %d, printed %q, read again %d, %v", text, d, formatDuration(d), again, err)
		}
	})
}

func TestNearest(t *testing.T) {
	words := []string{"listen", "admin", "cache", "ttl", "grace", "keep"}
	for word, want := range map[string]string{
		"lisen": "listen", "listenn": "listen", "lsiten": "listen", "tll": "ttl", "tt": "ttl", "grave": "grace", "xyz": "", "": "", "colour": "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"kitten", "sitting", 3}, {"", "abc", 3}, {"abc", "", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
