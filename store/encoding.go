package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"weir/policy"
)

// The head of an entry as it lies in a far store. The fixed part is for scripts: they read it, and may overwrite
// the six numbers when they date an entry or lend it marks, so those lie outside the checksum. Numbers are
// big-endian; moments are microseconds since 1970, 0 for none, and stay below 2^53, which is as far as Lua counts.
//
//	offset  Lua  bytes
//	     0    1      4  "WEIR"
//	     4    5      1  version
//	     5    6      1  Kind
//	     6    7      8  FreshUntil
//	    14   15      8  RefreshUntil
//	    22   23      8  RescueUntil
//	    30   31      8  Leased
//	    38   39      8  Marked[0]
//	    46   47      8  Marked[1]
//	    54   55      4  length of the head, this part included
//	    58   59      4  CRC-32C of version, Kind and all that follows
//	    62   63      2  how many labels follow (notes.go)
//	    64   65      8  each: by these, notes of purges find the entry
//	                    the rest, in the order of appendRest
//
// A head knows its length: what follows it, as a small body may, is not looked at.
const (
	magic   = "WEIR"
	version = 1

	versionAt = 4
	kindAt    = 5
	numbersAt = 6
	lengthAt  = 54
	sumAt     = 58
	fixed     = 62

	maxHead  = 256 << 10
	maxItems = 1000 // of any list: header values, tags, variants
	maxMicro = 1<<53 - 1
)

// The bits of the flags byte.
const (
	alone = 1 << iota
	noStale
	immutable
	closeDelimited
	refreshStated
	rescueStated
	known = alone | noStale | immutable | closeDelimited | refreshStated | rescueStated
)

// ErrUnreadable: the bytes are no entry that this replica may use. It counts as a miss.
var ErrUnreadable = errors.New("entry not readable")

// errUnfit: the entry must not be written, as nobody would read it.
var errUnfit = errors.New("entry not fit to be kept")

// EncodeHead is all of an entry but its body, of which it records the size.
func EncodeHead(e *Entry, bodySize int64) ([]byte, error) {
	if bodySize < 0 {
		return nil, fmt.Errorf("%w: a body of %d bytes", errUnfit, bodySize)
	}
	for name, values := range e.Header {
		if !fitField(name, values) {
			return nil, fmt.Errorf("%w: field %q", errUnfit, name)
		}
	}
	b := make([]byte, fixed, 1024)
	copy(b, magic)
	b[versionAt], b[kindAt] = version, byte(e.Kind)
	at := numbersAt
	for _, n := range [...]uint64{
		micro(e.FreshUntil), micro(e.RefreshUntil), micro(e.RescueUntil),
		min(e.Leased, maxMicro), micro(e.Marked[0]), micro(e.Marked[1]),
	} {
		binary.BigEndian.PutUint64(b[at:], n)
		at += 8
	}
	b = appendRest(b, e, bodySize)
	if len(b) > maxHead {
		return nil, fmt.Errorf("%w: a head of %d bytes, at most %d are kept", errUnfit, len(b), maxHead)
	}
	binary.BigEndian.PutUint32(b[lengthAt:], uint32(len(b)))
	binary.BigEndian.PutUint32(b[sumAt:], sum(b))
	// What would not be read is not written: lists past their caps, numbers out of range.
	if _, _, err := DecodeHead(b, e.Key); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnfit, err)
	}
	return b, nil
}

// DecodeHead reads what EncodeHead wrote under key; the body is the caller's to add. The bytes may come from another
// version, another deployment or a broken disk: whatever is wrong with them is ErrUnreadable.
func DecodeHead(b []byte, key policy.Key) (e Entry, bodySize int64, err error) {
	if len(b) < fixed || string(b[:versionAt]) != magic {
		return Entry{}, 0, fmt.Errorf("%w: foreign data", ErrUnreadable)
	}
	if b[versionAt] != version {
		return Entry{}, 0, fmt.Errorf("%w: version %d", ErrUnreadable, b[versionAt])
	}
	length := binary.BigEndian.Uint32(b[lengthAt:])
	if length < fixed || length > maxHead || int64(length) > int64(len(b)) {
		return Entry{}, 0, fmt.Errorf("%w: a head of %d bytes in %d", ErrUnreadable, length, len(b))
	}
	b = b[:length]
	if binary.BigEndian.Uint32(b[sumAt:]) != sum(b) {
		return Entry{}, 0, fmt.Errorf("%w: bad checksum", ErrUnreadable)
	}
	e.Kind = policy.Kind(b[kindAt])
	e.Leased = number(b, 3)
	e.FreshUntil, e.RefreshUntil, e.RescueUntil = moment(number(b, 0)), moment(number(b, 1)), moment(number(b, 2))
	e.Marked = [2]time.Time{moment(number(b, 4)), moment(number(b, 5))}

	// One copy, from which every string of the entry is cut.
	c := cursor{b: b[fixed:], s: string(b[fixed:])}
	bodySize = c.rest(&e)
	switch {
	case c.bad || c.at != len(c.b):
		return Entry{}, 0, fmt.Errorf("%w: malformed", ErrUnreadable)
	case e.Key != key:
		return Entry{}, 0, fmt.Errorf("%w: another key's", ErrUnreadable)
	case e.Kind > policy.Marker, e.Audience > policy.Everyone,
		e.Span.Start < 0, e.Span.End < e.Span.Start, e.Total < -1:
		return Entry{}, 0, fmt.Errorf("%w: out of range", ErrUnreadable)
	}
	return e, bodySize, nil
}

func appendRest(b []byte, e *Entry, bodySize int64) []byte {
	var flags byte
	for flag, set := range map[byte]bool{
		alone: e.Alone, noStale: e.NoStale, immutable: e.Immutable, closeDelimited: e.CloseDelimited,
		refreshStated: e.RefreshStated, rescueStated: e.RescueStated,
	} {
		if set {
			flags |= flag
		}
	}
	labels := Labels(&e.Stored)
	b = binary.BigEndian.AppendUint16(b, uint16(min(len(labels), math.MaxUint16)))
	for _, l := range labels {
		b = append(b, l[:]...)
	}
	b = append(b, flags, byte(e.Audience), byte(e.Why))
	for _, n := range [...]uint64{uint64(e.Status), micro(e.Asked), micro(e.Arrived), uint64(bodySize)} {
		b = binary.AppendUvarint(b, n)
	}
	for _, n := range [...]int64{int64(e.Age), int64(e.Cost), e.Span.Start, e.Span.End, e.Total} {
		b = binary.AppendVarint(b, n)
	}
	b = appendText(b, e.Key.Primary)
	b = appendText(b, e.Key.Variant)
	b = appendList(b, e.Vary)
	b = appendList(b, e.Tags)
	b = appendText(b, e.Route)
	b = binary.AppendUvarint(b, uint64(len(e.Variants)))
	for _, v := range e.Variants {
		b = appendList(b, v.Names)
		b = appendList(b, v.Values)
		b = appendText(b, v.Language)
		b = appendText(b, v.Coding)
		b = appendText(b, v.Variant)
		b = binary.AppendUvarint(b, micro(v.Arrived))
	}
	return appendHeader(b, e.Header)
}

// appendHeader writes the names in order, so that equal entries are equal bytes, and the number of all values
// first, so that reading needs one array for them.
func appendHeader(b []byte, h http.Header) []byte {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	b = binary.AppendUvarint(b, uint64(n))
	b = binary.AppendUvarint(b, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b = appendText(b, name)
		b = appendList(b, h[name])
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendList(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func sum(b []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // made once, in that package
	return crc32.Update(crc32.Checksum(b[versionAt:numbersAt], castagnoli), castagnoli, b[fixed:])
}

// micro is t as it is written. A moment before 1970 is long past, whichever it was.
func micro(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(min(max(t.UnixMicro(), 1), maxMicro))
}

func number(b []byte, i int) uint64 { return min(binary.BigEndian.Uint64(b[numbersAt+8*i:]), maxMicro) }

func moment(n uint64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(min(n, maxMicro))).UTC()
}
