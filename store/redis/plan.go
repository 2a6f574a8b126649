package redis

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"weir/policy"
	"weir/store"
)

// An entry's value is its head (store.EncodeHead), then the body where that is small, then the plan of the body, read
// from its end:
//
//	spans       16 bytes each: from where to where the held bytes lie in the whole
//	sums         4 bytes each: CRC-32C of each segment
//	generation  16 bytes: whose segments; zero when the body lies in the value
//	spans, sums  4 bytes each: how many
//	sum          4 bytes: CRC-32C of all of the plan before it
//	version      1 byte
//	why          1 byte, outside the sum: the reason of a marker's marks, which the commit script lends with them
const (
	tailSize    = 16 + 4 + 4 + 4 + 1 + 1
	planVersion = 1

	inlineSize  = 16 << 10 // a larger value costs less by a plain read than by a script
	segmentSize = 1 << 20
	maxParts    = 1 << 16 // spans, and segments
)

// plan tells where the bytes of a body are. Held bytes count through, span after span, cut into segments.
type plan struct {
	size       int64
	spans      []policy.Span
	sums       []uint32
	generation [16]byte
	why        policy.Reason
}

func (p plan) held() (n int64) {
	for _, s := range p.spans {
		n += s.Len()
	}
	return n
}

// inline reports whether the body lies in the value itself.
func (p plan) inline() bool { return p.generation == [16]byte{} }

// segment is where a segment begins and ends among the held bytes.
func (p plan) segment(n int) (from, to int64) {
	from = int64(n) * segmentSize
	return from, min(from+segmentSize, p.held())
}

// generationOf names the segments of what a lease brings: whoever commits again writes the same ones.
func generationOf(token string) (g [16]byte) {
	sum := sha256.Sum256([]byte(token))
	copy(g[:], sum[:])
	return g
}

func (p plan) append(value []byte) []byte {
	from := len(value)
	for _, s := range p.spans {
		value = binary.BigEndian.AppendUint64(value, uint64(s.Start))
		value = binary.BigEndian.AppendUint64(value, uint64(s.End))
	}
	for _, sum := range p.sums {
		value = binary.BigEndian.AppendUint32(value, sum)
	}
	value = append(value, p.generation[:]...)
	value = binary.BigEndian.AppendUint32(value, uint32(len(p.spans)))
	value = binary.BigEndian.AppendUint32(value, uint32(len(p.sums)))
	value = binary.BigEndian.AppendUint32(value, sum(value[from:]))
	return append(value, planVersion, byte(p.why))
}

// parsePlan reads a plan from the end of what follows a head, and answers what is left: the inline body. The value may
// be anybody's, so nothing in it is believed.
func parsePlan(rest []byte, size int64) (p plan, body []byte, err error) {
	bad := func(what string) (plan, []byte, error) {
		return plan{}, nil, fmt.Errorf("%w: body's plan: %s", store.ErrUnreadable, what)
	}
	t, ok := parseTail(rest)
	if !ok {
		return bad("too short, or of another version")
	}
	p.size, p.generation, p.why = size, t.generation, t.why
	from := len(rest) - tailSize - 16*t.spans - 4*t.sums
	if from < 0 {
		return bad("too long")
	}
	if sum(rest[from:len(rest)-6]) != t.sum {
		return bad("bad checksum")
	}
	at := from
	last := int64(0)
	for range t.spans {
		s := policy.Span{
			Start: int64(binary.BigEndian.Uint64(rest[at:])),
			End:   int64(binary.BigEndian.Uint64(rest[at+8:])),
		}
		if s.Start < last || s.End <= s.Start || s.End > size {
			return bad("spans out of order")
		}
		p.spans, last, at = append(p.spans, s), s.End, at+16
	}
	for range t.sums {
		p.sums, at = append(p.sums, binary.BigEndian.Uint32(rest[at:])), at+4
	}
	held := p.held()
	if int64(t.sums) != (held+segmentSize-1)/segmentSize || (p.inline() && held != int64(from)) || (!p.inline() && from != 0) {
		return bad("bytes missing")
	}
	return p, rest[:from], nil
}

// tail is the fixed end of a plan, which the scripts hand back of what they replaced.
type tail struct {
	generation  [16]byte
	spans, sums int
	sum         uint32
	why         policy.Reason
}

func (p plan) tail() tail {
	return tail{generation: p.generation, spans: len(p.spans), sums: len(p.sums)}
}

func parseTail(b []byte) (t tail, ok bool) {
	if len(b) < tailSize || b[len(b)-2] != planVersion {
		return tail{}, false
	}
	b = b[len(b)-tailSize:]
	copy(t.generation[:], b)
	spans, sums := binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])
	if spans > maxParts || sums > maxParts {
		return tail{}, false
	}
	t.spans, t.sums, t.sum, t.why = int(spans), int(sums), binary.BigEndian.Uint32(b[24:]), policy.Reason(b[29])
	return t, true
}

func sum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// place finds a byte of the whole among those held: where, and how many follow it without a gap.
func (p plan) place(off int64) (at, room int64, ok bool) {
	for _, s := range p.spans {
		if off < s.Start {
			break
		}
		if off < s.End {
			return at + off - s.Start, s.End - off, true
		}
		at += s.Len()
	}
	return 0, 0, false
}

// spansOf is what a body holds, without what is empty.
func spansOf(body store.Body) []policy.Span {
	if body == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(body.Spans()), func(s policy.Span) bool { return s.Len() <= 0 })
}
