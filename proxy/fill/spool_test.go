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

	"weir/proxy/upstream"
	"weir/store"
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
		b := NewBudget(share << 20)
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

// sip reads a body a portion at a time, and rests after each.
func sip(r *Reader, rest time.Duration) (n int, err error) {
	defer r.Close()
	for {
		p, err := r.Next(context.Background())
		if err != nil {
			return n, err
		}
		n += len(p)
		time.Sleep(rest)
	}
}

// Who holds up other readers is cut off once it is so far behind the minimum rate, whether it stands still or moves a
// little now and then. Who keeps the rate is waited for.
func TestSlowestReader(t *testing.T) {
	const size = 1 << 20
	for name, c := range map[string]struct {
		rest time.Duration // after 16 KiB, which are worth a second
		cut  bool
		most time.Duration // that the quick one takes
	}{
		"stands still": {time.Hour, true, patience + time.Second},
		// It is behind by eight more seconds each time, and is to be cut in the second.
		"a little every nine seconds": {9 * time.Second, true, 2*9*time.Second + time.Second},
		// Sixty-four portions, of which the last four are held when the quick one has all.
		"the minimum rate": {time.Second, false, 64 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(0)
				s := NewSpool(b, size, never)
				slow, _ := s.Join()
				quick, _ := s.Join()
				go func() { _ = write(context.Background(), s, random(size)); s.End(nil) }()
				end := make(chan error, 1)
				go func() { _, err := sip(slow, c.rest); end <- err }()
				began := time.Now()
				if got, err := read(quick); err != nil || len(got) != size {
					t.Errorf("quick: %d bytes, %v", len(got), err)
				}
				if d := time.Since(began); d > c.most {
					t.Errorf("held up for %v, want %v at most", d, c.most)
				}
				if err := <-end; errors.Is(err, ErrTooSlow) != c.cut || !c.cut && err != io.EOF {
					t.Errorf("slow: %v", err)
				}
				if b.Used() != 0 {
					t.Errorf("budget: %d", b.Used())
				}
			})
		})
	}
}

// A lone reader holds up nobody, however slow it is; but for those who queue for the upstream's slot, and those who
// lack memory.
func TestLoneSlowReader(t *testing.T) {
	const size = 300 << 10
	for name, c := range map[string]struct {
		queued, short bool
		cut           time.Duration // 0: never
	}{
		"nobody else": {}, "somebody queues": {queued: true, cut: hurry}, "somebody lacks memory": {short: true, cut: patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(4 << 20)
				s := NewSpool(b, size/2, func() {})
				s.Hurry(func() bool { return c.queued })
				s.Announce(-1)
				r, _ := s.Join()
				s.Unkeep()
				began := time.Now()
				stop := make(chan struct{})
				if c.short {
					go func() {
						for tick := time.NewTicker(time.Second); ; {
							select {
							case <-tick.C:
								b.take(8 << 20)
							case <-stop:
								return
							}
						}
					}()
				}
				written := make(chan error, 1)
				go func() { err := write(context.Background(), s, random(size)); s.End(err); written <- err }()
				n, err := sip(r, 4*time.Second) // a quarter of the minimum
				close(stop)
				switch d := time.Since(began); {
				case c.cut == 0 && (err != io.EOF || n != size):
					t.Errorf("cut after %d bytes: %v", n, err)
				case c.cut > 0 && (!errors.Is(err, ErrTooSlow) || !errors.Is(<-written, errDeserted)):
					t.Errorf("read %d bytes: %v", n, err)
				// It may be ahead by a burst, and is behind by three seconds for each four that it takes.
				case c.cut > 0 && d > burst+c.cut*4/3+5*time.Second:
					t.Errorf("cut after %v", d)
				}
				if b.Used() != 0 {
					t.Errorf("budget: %d", b.Used())
				}
			})
		})
	}
}

// What is small is kept whole whatever the budget says; of what is announced there is memory for all, or for a window.
func TestAllOrNothing(t *testing.T) {
	for _, c := range []struct {
		budget, length int64
		whole, refused bool
		used           int64 // at the head
	}{
		{0, window, true, false, 0},
		{0, window + 1, false, true, 0},
		{1 << 20, 1 << 20, true, false, 1 << 20},
		{1<<20 - 1, 1 << 20, false, true, 0},
		{1 << 30, 1<<20 + 1, false, false, 0}, // more than may be kept
	} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBudget(c.budget)
			s := NewSpool(b, 1<<20, never)
			r, _ := s.Join()
			s.Announce(c.length)
			if got := b.Used(); s.Whole() != c.whole || s.Refused() != c.refused || got != c.used {
				t.Errorf("%+v: whole %v, refused %v, %d bytes taken", c, s.Whole(), s.Refused(), got)
			}
			body := random(int(c.length))
			go func() { _ = write(context.Background(), s, body); s.End(nil) }()
			synctest.Wait()
			late, joined := s.Join()
			if c.whole && !joined {
				t.Errorf("%+v: nobody can join", c)
			}
			if joined {
				late.Close()
			}
			if got, err := read(r); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%+v: read %d bytes: %v", c, len(got), err)
			}
			if _, kept := s.Body(); kept != c.whole {
				t.Errorf("%+v: to be stored: %v", c, kept)
			}
			if b.Used() != 0 {
				t.Errorf("%+v: %d bytes of the budget are lost", c, b.Used())
			}
		})
	}
}

// ended is a spool whose body is all here, with a reader that has read none of it.
func ended(t *testing.T, b *Budget, body []byte) (*Spool, *Reader) {
	s := NewSpool(b, int64(len(body)), never)
	s.Announce(int64(len(body)))
	r, _ := s.Join()
	if err := write(t.Context(), s, body); err != nil {
		t.Fatal(err)
	}
	s.End(nil)
	return s, r
}

// Who lacks memory gets that of bodies that are stored by now: they are read there from the byte on that is due.
func TestReadersMoveToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, body := NewBudget(1<<20), random(1<<20)
		s, r := ended(t, b, body)
		first, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		entry := &store.Entry{}
		s.Stored(func() *store.Entry { return entry })
		if b.Used() != 1<<20 {
			t.Errorf("%d bytes held although nobody lacks them", b.Used())
		}
		if b.take(1 << 20) { // or once the store has been looked into
			b.give(1 << 20)
		}
		synctest.Wait()
		if b.Used() != 0 {
			t.Errorf("%d bytes are still held", b.Used())
		}
		if !bytes.Equal(first, body[:len(first)]) {
			t.Error("what is in hand has changed")
		}
		if len(first) < len(body) {
			if _, err := r.Next(t.Context()); err != ErrMoved || r.Stored() != entry {
				t.Errorf("%v, entry %p", err, r.Stored())
			}
		}
		r.Close()
	})
}

// Who can go on in the store is not cut off while that is looked into, however often somebody asks for memory meanwhile.
func TestNobodyIsCutWhileTheStoreIsLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		s, r := ended(t, b, random(1<<20))
		s.Stored(func() *store.Entry {
			time.Sleep(time.Second)
			return &store.Entry{}
		})
		if _, err := r.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + 2*patience) // what is in hand lasts four seconds at the minimum rate
		for range 5 {
			b.take(1)
			time.Sleep(2 * glance)
		}
		if r.cut {
			t.Error("it was cut off")
		}
		time.Sleep(time.Second)
		if b.Used() != 0 {
			t.Errorf("%d bytes are still held", b.Used())
		}
		r.Close()
	})
}

// What is not stored, or is read by who cannot go there, is held as long as its readers keep the minimum rate.
func TestReadersThatCannotMove(t *testing.T) {
	for name, prepare := range map[string]func(*Spool, *Reader){
		"nothing was stored":     func(*Spool, *Reader) {},
		"it is there no more":    func(s *Spool, _ *Reader) { s.Stored(func() *store.Entry { return nil }) },
		"the reader has to stay": func(s *Spool, r *Reader) { r.Stay(); s.Stored(func() *store.Entry { return &store.Entry{} }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(1 << 20)
				s, r := ended(t, b, random(1<<20))
				prepare(s, r)
				began := time.Now()
				for !b.take(1) {
					time.Sleep(time.Second)
				}
				// Since it was first asked for, or a second later when the store was looked into before.
				if d := time.Since(began); d < patience || d > patience+2*time.Second {
					t.Errorf("given back after %v", d)
				}
				if _, err := r.Next(t.Context()); !errors.Is(err, ErrTooSlow) {
					t.Errorf("%v", err)
				}
				r.Close()
				if b.Used() != 1 {
					t.Errorf("budget: %d", b.Used())
				}
			})
		})
	}
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
		table := NewTable(Options{Spool: 16 << 20, MaxBody: 1 << 20})
		server, err := upstream.New(upstream.Config{Name: "api", URL: "http://upstream.test", ConnectTimeout: time.Second, ResponseTimeout: time.Second,
			IdleTimeout: time.Minute, FillTimeout: time.Minute, MaxConcurrent: 1, MaxStreams: 1, Queue: 1, QueueTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		up := &closing{Reader: strings.NewReader(strings.Repeat("x", 300<<10))}
		body := table.ReadAhead(up, server, nil)
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

// Who has all that was announced may leave: nothing but the end is to come, and the fill has not failed.
func TestLeavingBeforeTheEnd(t *testing.T) {
	const size = window + 1
	s := NewSpool(NewBudget(0), size, never)
	s.Announce(size)
	r, _ := s.Join()
	go func() {
		for n := 0; n < size; {
			p, err := r.Next(t.Context())
			if err != nil {
				t.Errorf("after %d bytes: %v", n, err)
				break
			}
			n += len(p)
		}
		r.Close()
	}()
	if err := write(t.Context(), s, random(size)); err != nil {
		t.Fatal(err)
	}
	for open := true; open; {
		s.mu.Lock()
		moved := s.moved
		open = len(s.readers) > 0
		s.mu.Unlock()
		if open {
			<-moved
		}
	}
	if _, err := s.Space(t.Context()); err != nil {
		t.Errorf("where the end is read: %v", err)
	}
}
