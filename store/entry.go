package store

import (
	"context"
	"io"
	"iter"

	"weir/policy"
)

// Bytes is a body in memory: segments that nobody writes to any more.
type Bytes [][]byte

func (b Bytes) Size() int64 {
	var n int64
	for _, s := range b {
		n += int64(len(s))
	}
	return n
}

func (b Bytes) Spans() []policy.Span { return []policy.Span{{Start: 0, End: b.Size()}} }

// Same reports whether b and o lie in the same memory. Of an empty body there is nothing to share.
func (b Bytes) Same(o Bytes) bool { return b.Address() != nil && b.Address() == o.Address() }

// Address is where its first byte lies; nil: there is none.
func (b Bytes) Address() *byte {
	for _, s := range b {
		if len(s) > 0 {
			return &s[0]
		}
	}
	return nil
}

// Pieces are the bytes of a span as they lie in memory; nobody writes to them.
func (b Bytes) Pieces(span policy.Span) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := int64(0)
		for _, seg := range b {
			from, to := max(span.Start-at, 0), min(span.End-at, int64(len(seg)))
			if from < to && !yield(seg[from:to]) {
				return
			}
			at += int64(len(seg))
		}
	}
}

func (b Bytes) ReadAt(_ context.Context, p []byte, off int64) (n int, err error) {
	for _, s := range b {
		if off >= int64(len(s)) {
			off -= int64(len(s))
			continue
		}
		c := copy(p[n:], s[off:])
		n, off = n+c, 0
		if n == len(p) {
			return n, nil
		}
	}
	return n, io.EOF
}
