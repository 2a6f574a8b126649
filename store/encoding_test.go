package store

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/policy"
)

// update rewrites the golden bytes. What it writes, replicas of older versions must still be able to read: a change of
// the bytes is a new version.
var update = flag.Bool("update", false, "rewrite testdata/entry-v1.hex")

// Reasons are numbers in it: new ones go to the end of their list.
const golden = "testdata/entry-v1.hex"

// instant is 2026-11-30T12:00:00.000123Z and some seconds: its microseconds are 1796040000000123.
func instant(seconds int) time.Time {
	return time.Date(2026, 11, 30, 12, 0, seconds, 123000, time.UTC)
}

func full() *Entry {
	return &Entry{
		Key: policy.Key{Primary: "api http example.com:80 /a?b=c", Variant: "accept-language=de"},
		Stored: policy.Stored{
			Response: policy.Response{
				Status: 200,
				Header: http.Header{
					"Content-Type": {"text/html; charset=utf-8"},
					"Etag":         {`W/"5f-a"`},
					"Link":         {"</a>; rel=preload", "</b>; rel=preload"},
					"X-Empty":      {""},
				},
				Asked: instant(-2), Arrived: instant(0), CloseDelimited: true,
			},
			Kind: policy.Part, Audience: policy.NotAuthorized,
			Vary: []string{"accept-language"}, Tags: []string{"a", "b"}, Route: "catalogue",
			Alone: true, NoStale: true, Immutable: true, Age: 7 * time.Second,
			Marked: [2]time.Time{instant(1), instant(2)}, Why: policy.Private,
			Variants: []policy.Variant{{
				Names: []string{"accept-language"}, Values: []string{"de"},
				Language: "de", Coding: "gzip", Variant: "accept-language=de", Arrived: instant(-3),
			}},
			Cost: 1500 * time.Millisecond, Span: policy.Span{Start: 100, End: 200}, Total: -1,
			Leased:     1796040000000001,
			FreshUntil: instant(60), RefreshUntil: instant(90), RescueUntil: instant(3600),
			RefreshStated: true, RescueStated: true,
		},
	}
}

func TestGoldenBytes(t *testing.T) {
	b, err := EncodeHead(full(), 4711)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(hex.Dump(b)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.Dump(b); got != string(text) {
		t.Errorf("entries are written otherwise than replicas of this version read them:\n%s\nwant\n%s", got, text)
	}
}

// TestOtherVersions: in a rolling upgrade replicas of two versions share a Redis. What the other wrote is read as it was
// meant, or is a miss: entry-v2.hex is a later version's, right in itself, with a fact more than this one knows.
func TestOtherVersions(t *testing.T) {
	e, size, err := DecodeHead(dumped(t, golden), full().Key)
	if err != nil || size != 4711 || !reflect.DeepEqual(&e, full()) {
		t.Errorf("this version's: %d bytes, %v\n%+v", size, err, e)
	}
	later := dumped(t, "testdata/entry-v2.hex")
	if _, _, err := DecodeHead(later, full().Key); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version's: %v", err)
	}
	// It is its version that keeps it from being read, not a mistake in it; and what is said to be of this version, but
	// holds more than it knows, is not read by halves.
	if binary.BigEndian.Uint32(later[sumAt:]) != sum(later) || int(binary.BigEndian.Uint32(later[lengthAt:])) != len(later) {
		t.Error("the later version's bytes are not right in themselves")
	}
	later[versionAt] = version
	binary.BigEndian.PutUint32(later[sumAt:], sum(later))
	if _, _, err := DecodeHead(later, full().Key); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("with a fact too many: %v", err)
	}
}

// dumped reads back what hex.Dump wrote.
func dumped(t *testing.T, file string) (b []byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line[8:], "|")
		part, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

// TestScriptsReadFixedBytes spells the offsets out, as the scripts do.
func TestScriptsReadFixedBytes(t *testing.T) {
	b, err := EncodeHead(full(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b[:6]); got != "WEIR\x01\x01" {
		t.Errorf("magic, version, Kind = %q", got)
	}
	const noon = 1796040000000123 // of instant(0), in µs
	for at, want := range map[int]uint64{
		6: noon + 60e6, 14: noon + 90e6, 22: noon + 3600e6, 30: 1796040000000001, 38: noon + 1e6, 46: noon + 2e6,
	} {
		if got := binary.BigEndian.Uint64(b[at:]); got != want {
			t.Errorf("at %d: %d, want %d", at, got, want)
		}
	}
	// FNV-1a by another program, of "tag a", "tag b" and "route catalogue".
	if got := hex.EncodeToString(b[62:88]); got != "0003"+"5b99c829a3702038"+"5b99cb29a3702551"+"7919ce0ccde14bf3" {
		t.Errorf("labels = %s", got)
	}
	if got := binary.BigEndian.Uint32(b[54:]); int(got) != len(b) {
		t.Errorf("length = %d of %d", got, len(b))
	}
	// What a soft purge's script overwrites is read back, and breaks no checksum.
	binary.BigEndian.PutUint64(b[6:], noon)
	e, _, err := DecodeHead(b, full().Key)
	if err != nil || !e.FreshUntil.Equal(instant(0)) {
		t.Errorf("dated: fresh until %v, %v", e.FreshUntil, err)
	}
}

func TestHeadSurvives(t *testing.T) {
	far := full()
	far.Kind, far.Header, far.Variants, far.Vary, far.Tags = policy.Marker, nil, nil, nil, nil
	far.FreshUntil, far.RefreshUntil, far.Marked = time.Time{}, time.Time{}, [2]time.Time{}
	for name, e := range map[string]*Entry{
		"full": full(), "bare": far,
		"nothing": {Key: policy.Key{Primary: "p"}},
	} {
		for _, size := range []int64{0, 1, 1 << 40} {
			b, err := EncodeHead(e, size)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, n, err := DecodeHead(append(b, "a body follows"...), e.Key)
			if err != nil || n != size || !reflect.DeepEqual(&got, e) {
				t.Errorf("%s, %d bytes: %v\n%+v\n%+v", name, n, err, got, e)
			}
		}
	}
}

// TestEveryFactIsWritten fails when a fact is added to policy.Stored and not to the encoding.
func TestEveryFactIsWritten(t *testing.T) {
	e := full()
	v := reflect.ValueOf(e.Stored)
	for _, f := range reflect.VisibleFields(v.Type()) {
		if v.FieldByIndex(f.Index).IsZero() {
			t.Errorf("policy.Stored.%s: set it in full(), and see that it is encoded", f.Name)
		}
	}
}

func TestMomentsAreClamped(t *testing.T) {
	e := &Entry{Stored: policy.Stored{
		FreshUntil:   time.Date(1958, 1, 1, 0, 0, 0, 0, time.UTC),
		RefreshUntil: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
		RescueUntil:  time.Unix(0, 1999),
	}}
	b, err := EncodeHead(e, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := DecodeHead(b, e.Key)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.UnixMicro(1); !got.FreshUntil.Equal(want) || !got.RescueUntil.Equal(want) {
		t.Errorf("long past: %v and %v, want %v", got.FreshUntil, got.RescueUntil, want)
	}
	if want := time.UnixMicro(1<<53 - 1); !got.RefreshUntil.Equal(want) {
		t.Errorf("far ahead: %v, want %v", got.RefreshUntil, want)
	}
}

func TestUnreadable(t *testing.T) {
	key := full().Key
	head := func() []byte {
		b, err := EncodeHead(full(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// resum makes the checksum right again, so that what is wrong is found by what reads it.
	resum := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[lengthAt:], uint32(len(b)))
		binary.BigEndian.PutUint32(b[sumAt:], sum(b))
		return b
	}
	set := func(at int, v byte) []byte {
		b := head()
		b[at] = v
		return resum(b)
	}
	for name, b := range map[string][]byte{
		"nothing":           nil,
		"foreign":           []byte(strings.Repeat("<html>", 20)),
		"the next version":  set(versionAt, 2),
		"version 0":         set(versionAt, 0),
		"cut in the fixed":  head()[:fixed-1],
		"cut in the rest":   head()[:len(head())-1],
		"one byte more":     resum(append(head(), 0)),
		"one byte less":     resum(head()[:len(head())-1]),
		"a kind of later":   set(kindAt, 200),
		"many labels":       set(fixed, 0xff),
		"a flag of later":   set(fixed+2+3*8, 0x80),
		"an audience later": set(fixed+2+3*8+1, 200),
		"a huge length":     append(append(head()[:lengthAt:lengthAt], 0xff, 0xff, 0xff, 0xff), head()[sumAt:]...),
		"a name with space": resum(bytes.Replace(head(), []byte("X-Empty"), []byte("X Empty"), 1)),
		"a value with LF":   resum(bytes.Replace(head(), []byte("</a>; rel"), []byte("</a>;\nrel"), 1)),
		"a name twice":      resum(bytes.Replace(head(), []byte("X-Empty\x01\x00"), []byte("Etag\x01\x03abc"), 1)),
	} {
		if e, _, err := DecodeHead(b, key); !errors.Is(err, ErrUnreadable) || !reflect.DeepEqual(e, Entry{}) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	for _, other := range []policy.Key{{}, {Primary: key.Primary}, {Primary: key.Primary + "x", Variant: key.Variant}} {
		if _, _, err := DecodeHead(head(), other); !errors.Is(err, ErrUnreadable) {
			t.Errorf("under %v: %v", other, err)
		}
	}
	for i := versionAt; i < len(head()); i++ {
		if i >= numbersAt && i < lengthAt {
			continue // the scripts' own
		}
		b := head()
		b[i] ^= 0x10
		if _, _, err := DecodeHead(b, key); !errors.Is(err, ErrUnreadable) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

func TestUnfitIsNotWritten(t *testing.T) {
	many := make([]string, maxItems+1)
	for name, change := range map[string]func(e *Entry){
		"a name with colon":  func(e *Entry) { e.Header["A:B"] = []string{"x"} },
		"an empty name":      func(e *Entry) { e.Header[""] = []string{"x"} },
		"a value with CR":    func(e *Entry) { e.Header["A"] = []string{"x\ry"} },
		"a value with NUL":   func(e *Entry) { e.Header["A"] = []string{"x\x00"} },
		"a value with DEL":   func(e *Entry) { e.Header["A"] = []string{"x\x7f"} },
		"too many values":    func(e *Entry) { e.Header["A"] = many },
		"too many tags":      func(e *Entry) { e.Tags = many },
		"too large a head":   func(e *Entry) { e.Header["A"] = []string{strings.Repeat("x", maxHead)} },
		"a status of four":   func(e *Entry) { e.Status = 1000 },
		"a span that begins": func(e *Entry) { e.Span.Start = 201 },
	} {
		e := full()
		change(e)
		if b, err := EncodeHead(e, 0); err == nil {
			t.Errorf("%s: written as %d bytes", name, len(b))
		}
	}
	if _, err := EncodeHead(full(), -1); err == nil {
		t.Error("a body of -1 bytes is written")
	}
	e := full()
	e.Header["A"] = []string{"\tobs-text \xfc, VCHAR !~"}
	if _, err := EncodeHead(e, 0); err != nil {
		t.Errorf("a field that RFC 9110 allows: %v", err)
	}
}

// Values that share an array must not be writable into each other.
func TestValuesAreApart(t *testing.T) {
	b, err := EncodeHead(full(), 0)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := DecodeHead(b, full().Key)
	if err != nil {
		t.Fatal(err)
	}
	e.Header.Add("Content-Type", "more")
	if got := e.Header.Get("Etag"); got != `W/"5f-a"` {
		t.Errorf("Etag = %q", got)
	}
}

func FuzzDecodeHead(f *testing.F) {
	key := full().Key
	for _, e := range []*Entry{full(), {Key: key}} {
		b, err := EncodeHead(e, 10)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[fixed:], byte(e.Kind), uint64(1))
	}
	// The checksum is right in all that is tried: nothing behind it would be reached else.
	f.Fuzz(func(t *testing.T, rest []byte, kind byte, number uint64) {
		b := append(make([]byte, fixed), rest...)
		copy(b, magic)
		b[versionAt], b[kindAt] = version, kind
		for at := numbersAt; at < lengthAt; at += 8 {
			binary.BigEndian.PutUint64(b[at:], number)
		}
		binary.BigEndian.PutUint32(b[lengthAt:], uint32(len(b)))
		binary.BigEndian.PutUint32(b[sumAt:], sum(b))
		e, size, err := DecodeHead(b, key)
		if err != nil {
			return
		}
		again, err := EncodeHead(&e, size)
		if err != nil {
			t.Fatalf("read, but not to be written: %v", err)
		}
		e2, size2, err := DecodeHead(again, key)
		if err != nil || size2 != size || !reflect.DeepEqual(e2, e) {
			t.Errorf("%v: %d, %d\n%+v\n%+v", err, size, size2, e, e2)
		}
	})
}

func BenchmarkDecodeHead(b *testing.B) {
	e := full()
	for i := range 12 {
		e.Header[fmt.Sprintf("X-Header-%d", i)] = []string{"some value of usual length"}
	}
	head, err := EncodeHead(e, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := DecodeHead(head, e.Key); err != nil {
			b.Fatal(err)
		}
	}
}
