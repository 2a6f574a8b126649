package store

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"weir/policy"
)

// TestBytes reads every run of a body that lies in pieces, some of them empty.
func TestBytes(t *testing.T) {
	const whole = "abcdefghij"
	b := Bytes{[]byte("abc"), nil, []byte("d"), []byte("efghij"), {}}
	if b.Size() != 10 || !slices.Equal(b.Spans(), []policy.Span{{Start: 0, End: 10}}) {
		t.Errorf("size %d, spans %v", b.Size(), b.Spans())
	}
	for from := range whole {
		for to := from; to <= len(whole); to++ {
			p := make([]byte, to-from)
			n, err := b.ReadAt(context.Background(), p, int64(from))
			if string(p[:n]) != whole[from:to] || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("bytes %d to %d: %q, %v", from, to, p[:n], err)
			}
			var pieces []byte
			for piece := range b.Pieces(policy.Span{Start: int64(from), End: int64(to)}) {
				pieces = append(pieces, piece...)
			}
			if string(pieces) != whole[from:to] {
				t.Errorf("pieces %d to %d: %q", from, to, pieces)
			}
		}
	}
	// As io.ReaderAt says: fewer bytes than asked for come with an error.
	for _, off := range []int64{5, 10, 99} {
		p := make([]byte, 9)
		if n, err := b.ReadAt(context.Background(), p, off); n != int(max(10-off, 0)) || !errors.Is(err, io.EOF) {
			t.Errorf("from %d: %d bytes, %v", off, n, err)
		}
	}
	for piece := range b.Pieces(policy.Span{Start: 0, End: 10}) {
		if string(piece) != "abc" {
			t.Errorf("first piece %q", piece)
		}
		break
	}
}
