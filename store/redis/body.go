package redis

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

// errGone: a segment is not there, or is not what the head says. At look-up the entry is a miss then; later the reader's
// connection ends.
var errGone = errors.New("segment missing or damaged")

// body reads a stored body, whose segments are fetched when they are needed. It keeps the last two of them, so that
// readers side by side ask once, and a plain copy from front to back moves each byte once.
type body struct {
	plan
	name  string // of the segments, without their numbers
	fetch func(ctx context.Context, name string, p []byte) error

	mu   sync.Mutex
	kept []*segment // the newest last
}

type segment struct {
	n    int
	done chan struct{}
	data []byte // once done
	err  error
}

func (b *body) Size() int64 { return b.size }

func (b *body) Spans() []policy.Span { return slices.Clone(b.spans) }

func (b *body) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		if off >= b.size {
			return n, io.EOF
		}
		at, room, ok := b.place(off)
		if !ok {
			return n, fmt.Errorf("byte %d is not held", off)
		}
		data, err := b.load(ctx, int(at/segmentSize))
		if err != nil {
			return n, err
		}
		c := copy(p[n:min(int64(len(p)), int64(n)+room)], data[at%segmentSize:])
		n, off = n+c, off+int64(c)
	}
	return n, nil
}

// load waits for the one who fetches a segment, or is that one. The fetch itself heeds no reader's context, as others may
// wait for it too; its own deadline ends it.
func (b *body) load(ctx context.Context, n int) ([]byte, error) {
	b.mu.Lock()
	i := slices.IndexFunc(b.kept, func(s *segment) bool { return s.n == n })
	if i >= 0 {
		s := b.kept[i]
		b.mu.Unlock()
		select {
		case <-s.done:
			return s.data, s.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s := &segment{n: n, done: make(chan struct{})}
	if len(b.kept) == 2 {
		b.kept = b.kept[1:]
	}
	b.kept = append(b.kept, s)
	b.mu.Unlock()

	from, to := b.segment(n)
	s.data = make([]byte, to-from)
	s.err = b.fetch(context.WithoutCancel(ctx), b.name+strconv.Itoa(n), s.data)
	if s.err == nil && sum(s.data) != b.sums[n] {
		s.err = errGone
	}
	if s.err != nil {
		b.forget(s) // a passing fault must not outlive itself
	}
	close(s.done)
	return s.data, s.err
}

func (b *body) forget(s *segment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = slices.DeleteFunc(b.kept, func(k *segment) bool { return k == s })
}

// bodyOf reads the body's plan, and what lies in the value itself.
func (s *Store) bodyOf(n names, rest []byte, size int64) (*body, error) {
	p, data, err := parsePlan(rest, size)
	if err != nil {
		return nil, err
	}
	b := &body{plan: p, name: segmentName(n, p.generation), fetch: s.fetch}
	if p.inline() && len(p.sums) > 0 {
		if sum(data) != p.sums[0] {
			return nil, fmt.Errorf("%w: body's checksum", store.ErrUnreadable)
		}
		done := make(chan struct{})
		close(done)
		b.kept = []*segment{{done: done, data: data}}
	}
	return b, nil
}

// begins sees to it that the first segment is at hand: what cannot even be begun is a miss, not a broken answer.
func (b *body) begins(ctx context.Context) error {
	if b.inline() || len(b.sums) == 0 {
		return nil
	}
	_, err := b.load(ctx, 0)
	return err
}

func segmentName(n names, generation [16]byte) string {
	return n.segments + ":" + hex.EncodeToString(generation[:]) + ":"
}

// segmentNames are all of a body's, none for a body that lies in its value.
func segmentNames(n names, t tail) []string {
	if t.generation == [16]byte{} {
		return nil
	}
	list := make([]string, t.sums)
	for i := range list {
		list[i] = segmentName(n, t.generation) + strconv.Itoa(i)
	}
	return list
}

// slowest is how many bytes a second a bulk transfer moves at least, or it is given up.
const slowest = 1 << 20

// transfer runs a large command, by its own connections and with a deadline by size. It tells the breaker nothing: that a megabyte
// takes long says little about Redis.
func (s *Store) transfer(ctx context.Context, size int, run func(ctx context.Context, c redis.UniversalClient) error) error {
	if !s.breaker.closed() || s.life.Err() != nil {
		return fmt.Errorf("%w: not tried", store.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout+time.Duration(size)*time.Second/slowest)
	defer cancel()
	return again(func() error { return run(ctx, s.bulk) })
}

// fetch reads one segment. Its length is the checksum's to judge.
func (s *Store) fetch(ctx context.Context, name string, p []byte) error {
	err := s.transfer(ctx, len(p), func(ctx context.Context, c redis.UniversalClient) error {
		got, err := c.Get(ctx, name).Bytes()
		copy(p, got)
		return err
	})
	switch {
	case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		return errGone
	case err != nil:
		return sentinel(ctx, err)
	}
	return nil
}

// draft is an entry on its way into the store.
type draft struct {
	names
	entry *store.Entry
	token string
}

// stage brings a body to where its plan says: a small one is answered, a large one is written under the lease's
// token, where no reader looks until the commit script has written the head. The plan names what was written, even
// when an error ended it.
func (s *Store) stage(ctx context.Context, d draft) (p plan, inline []byte, err error) {
	p.spans = spansOf(d.entry.Body)
	if d.entry.Kind == policy.Marker {
		p.why = d.entry.Why
	}
	if d.entry.Body == nil {
		return p, nil, nil
	}
	if b, ok := d.entry.Body.(*body); ok && !b.inline() && b.name == segmentName(d.names, b.generation) {
		// Read from under the same key, as after a 304: it lies where it should. The commit script looks whether it does.
		why := p.why
		p = b.plan
		p.why = why
		return p, nil, nil
	}
	p.size = d.entry.Body.Size()
	r := &heldReader{body: d.entry.Body, spans: slices.Clone(p.spans)}
	if held := p.held(); held <= inlineSize {
		inline = make([]byte, held)
		if held > 0 {
			err = r.fill(ctx, inline)
			p.sums = []uint32{sum(inline)}
		}
		return p, inline, err
	}
	p.generation = generationOf(d.token)
	name := segmentName(d.names, p.generation)
	buffer := make([]byte, segmentSize)
	for from := int64(0); from < p.held(); from += segmentSize {
		data := buffer[:min(segmentSize, p.held()-from)]
		if err = r.fill(ctx, data); err != nil {
			return p, nil, err
		}
		n := len(p.sums)
		p.sums = append(p.sums, sum(data))
		err = s.transfer(ctx, len(data), func(ctx context.Context, c redis.UniversalClient) error {
			return c.Set(ctx, name+strconv.Itoa(n), data, staging).Err()
		})
		if err != nil {
			return p, nil, sentinel(ctx, err)
		}
	}
	return p, nil, nil
}

// heldReader reads a body's spans as one stream.
type heldReader struct {
	body  store.Body
	spans []policy.Span
}

func (r *heldReader) fill(ctx context.Context, p []byte) error {
	for len(p) > 0 {
		span := &r.spans[0]
		if span.Len() == 0 {
			r.spans = r.spans[1:]
			continue
		}
		n := min(int64(len(p)), span.Len())
		// As of io.ReaderAt, an error beside all the bytes is none.
		if got, err := r.body.ReadAt(ctx, p[:n], span.Start); int64(got) < n {
			return fmt.Errorf("body to be stored: %d of %d bytes at %d: %w", got, n, span.Start, err)
		}
		span.Start += n
		p = p[n:]
	}
	return nil
}

// drop deletes what was staged for a commit that was refused, but not what others' heads name.
func (s *Store) drop(ctx context.Context, d draft, p plan) {
	if p.generation == generationOf(d.token) {
		s.each(ctx, segmentNames(d.names, p.tail()), func(c redis.Pipeliner, name string) { c.Unlink(ctx, name) })
	}
}

// retire leaves the segments of what was replaced to those who are reading them, for a while. now is what lies there.
func (s *Store) retire(ctx context.Context, n names, value string, now plan) {
	if t, ok := parseTail([]byte(value)); ok && t.generation != now.generation {
		s.each(ctx, segmentNames(n, t), func(c redis.Pipeliner, name string) { c.Expire(ctx, name, readers) })
	}
}

// each changes segments in one go. It may fail: each has a term of its own.
func (s *Store) each(ctx context.Context, list []string, change func(c redis.Pipeliner, name string)) {
	if len(list) == 0 {
		return
	}
	_ = s.transfer(context.WithoutCancel(ctx), 0, func(ctx context.Context, c redis.UniversalClient) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range list {
				change(p, name)
			}
			return nil
		})
		return err
	})
}
