package fill

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// write puts p into s as a fill would, and returns the error that Space gave.
func write(ctx context.Context, s *Spool, p []byte) error {
	for len(p) > 0 {
		space, err := s.Space(ctx)
		if err != nil {
			return err
		}
		n := copy(space, p)
		s.Wrote(n)
		p = p[n:]
	}
	return nil
}

func read(r *Reader) ([]byte, error) {
	defer r.Close()
	var all []byte
	for {
		p, err := r.Next(context.Background())
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, p...)
	}
}

func random(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	return p
}

func never() { panic("deserted") }

// Everyone who joins while byte 0 is held reads the same bytes, the store gets them too, and the budget is whole again
// when the last has left.
func TestManyReadOneGrowingBody(t *testing.T) {
	for _, size := range []int{0, 1, smallSegment - 1, smallSegment, smallSegment + 1, largeSegment, largeSegment + 1, 3 << 20} {
		for _, length := range []int64{-1, int64(size)} {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(64 << 20)
				s := NewSpool(b, 8<<20, never)
				s.Announce(length)
				body := random(size)
				var readers sync.WaitGroup
				for range 8 {
					r, ok := s.Join()
					if !ok {
						t.Fatal("byte 0 is not held")
					}
					readers.Go(func() {
						if got, err := read(r); err != nil || !bytes.Equal(got, body) {
							t.Errorf("%d bytes of %d: %v", len(got), size, err)
						}
					})
				}
				synctest.Wait()
				if err := write(t.Context(), s, body); err != nil {
					t.Fatal(err)
				}
				late, ok := s.Join()
				if !ok {
					t.Fatal("byte 0 is gone")
				}
				s.End(nil)
				kept, ok := s.Body()
				if !ok || kept.Size() != int64(size) {
					t.Fatalf("body to store: %v, %d bytes", ok, kept.Size())
				}
				got := make([]byte, size)
				if _, err := kept.ReadAt(t.Context(), got, 0); err != nil && err != io.EOF || !bytes.Equal(got, body) {
					t.Errorf("stored bytes differ: %v", err)
				}
				readers.Wait()
				if size > 0 && b.Used() == 0 {
					t.Error("the budget is given back before the last reader left")
				}
				if got, err := read(late); err != nil || !bytes.Equal(got, body) {
					t.Errorf("who joined late read %d bytes: %v", len(got), err)
				}
				if b.Used() != 0 {
					t.Errorf("%d bytes of the budget are lost", b.Used())
				}
			})
		}
	}
}

// A broken body ends with its error for everyone, and is nothing to store.
func TestBrokenBody(t *testing.T) {
	b := NewBudget(1 << 20)
	s := NewSpool(b, 1<<20, never)
	r, _ := s.Join()
	if err := write(t.Context(), s, []byte("half")); err != nil {
		t.Fatal(err)
	}
	s.End(io.ErrUnexpectedEOF)
	if got, err := read(r); string(got) != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("read %q, %v", got, err)
	}
	if _, ok := s.Body(); ok {
		t.Error("half a body is given to the store")
	}
	if b.Used() != 0 {
		t.Errorf("budget: %d", b.Used())
	}
}

// What is larger than may be kept passes through in a window; nobody can join any more, and memory stays bounded.
func TestTooLargeIsStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(64 << 20)
		s := NewSpool(b, 1<<20, never)
		body := random(5 << 20)
		r, _ := s.Join()
		var got []byte
		var most int64
		var reader sync.WaitGroup
		reader.Go(func() {
			defer r.Close()
			for {
				p, err := r.Next(context.Background())
				if err == io.EOF {
					return
				}
				got = append(got, p...)
				most = max(most, b.Used())
				time.Sleep(time.Millisecond)
			}
		})
		if err := write(t.Context(), s, body); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Join(); ok {
			t.Error("joined although byte 0 is gone")
		}
		s.End(nil)
		reader.Wait()
		if !bytes.Equal(got, body) {
			t.Errorf("read %d bytes, want %d", len(got), len(body))
		}
		if limit := int64(1<<20 + 2*largeSegment); most > limit {
			t.Errorf("held %d bytes, want %d at most", most, limit)
		}
		if _, ok := s.Body(); ok {
			t.Error("a body past the limit is given to the store")
		}
		if b.Used() != 0 {
			t.Errorf("budget: %d", b.Used())
		}
	})
}

// Without budget a fill goes on in a small window, paced by its reader.
func TestNoBudgetLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(0)
		s := NewSpool(b, 1<<20, never)
		r, _ := s.Join()
		body := random(1 << 20)
		written := make(chan error, 1)
		go func() { written <- write(context.Background(), s, body); s.End(nil) }()
		synctest.Wait()
		if held := b.Used(); held > window+largeSegment {
			t.Errorf("%d bytes held without a budget", held)
		}
		got, err := read(r)
		if err != nil || !bytes.Equal(got, body) || <-written != nil {
			t.Errorf("read %d bytes: %v", len(got), err)
		}
		if b.Used() != 0 {
			t.Errorf("budget: %d", b.Used())
		}
	})
}

// Who does not move for a while is cut off when others are held up by it; nobody is cut off for being alone.
func TestSlowestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSpool(NewBudget(0), 1<<20, never)
		slow, _ := s.Join()
		quick, _ := s.Join()
		body := random(1 << 20)
		go func() { _ = write(context.Background(), s, body); s.End(nil) }()
		began := time.Now()
		if got, err := read(quick); err != nil || len(got) != len(body) {
			t.Errorf("quick: %d bytes, %v", len(got), err)
		}
		if d := time.Since(began); d != patience {
			t.Errorf("held up for %v, want %v", d, patience)
		}
		if _, err := read(slow); !errors.Is(err, errTooSlow) {
			t.Errorf("slow: %v", err)
		}
	})
}

func TestDeserted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := 0
		s := NewSpool(NewBudget(1<<20), 1<<20, func() { called++ })
		r, _ := s.Join()
		if err := write(t.Context(), s, []byte("x")); err != nil {
			t.Fatal(err)
		}
		s.Unkeep()
		r.Close()
		if called != 1 {
			t.Errorf("told %d times", called)
		}
		if err := write(t.Context(), s, random(largeSegment)); !errors.Is(err, errDeserted) {
			t.Errorf("writing for nobody: %v", err)
		}
		s.End(errDeserted)
	})
}

// A context that ends frees a writer that waits for its readers.
func TestWriterIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSpool(NewBudget(0), 1<<20, func() {})
		r, _ := s.Join()
		ctx, cancel := context.WithCancel(t.Context())
		written := make(chan error, 1)
		go func() { written <- write(ctx, s, random(1<<20)) }()
		synctest.Wait()
		cancel()
		if err := <-written; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		s.End(context.Canceled)
		r.Close()
	})
}

// ReadAhead frees the upstream although the client has not read a byte.
func TestReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{Spool: 1 << 20, MaxBody: 1 << 20})
		up := &closing{Reader: strings.NewReader(strings.Repeat("x", 300<<10))}
		body := table.ReadAhead(up, time.Minute, nil)
		synctest.Wait()
		if !up.closed {
			t.Error("the upstream is still held")
		}
		got, err := io.ReadAll(body)
		if err != nil || len(got) != 300<<10 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		body.Close()
		if err := table.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if _, bytes, _ := table.Gauges(); bytes != 0 {
			t.Errorf("budget: %d", bytes)
		}
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }
