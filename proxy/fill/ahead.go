package fill

import (
	"context"
	"io"
	"sync"
	"time"

	"weir/proxy/upstream"
	"weir/store"
)

// Borrow takes n bytes of the memory for bodies under way; false: there is no room for them.
func (t *Table) Borrow(n int64) bool { return t.budget.take(n) }

// GiveBack returns what was borrowed.
func (t *Table) GiveBack(n int64) { t.budget.give(n) }

// Lend notes that a client reads a stored body that lies in memory, until the reader is closed: it counts from when the
// store lets go of it (R25), for all who read it once. Who is too slow then is severed.
func (t *Table) Lend(e *store.Entry, sever func()) *Reader {
	r := t.budget.lend(e)
	r.OnCut(sever)
	return r
}

// ReadAhead takes the body of a pass off the upstream's hands as fast as it comes, within the memory budget, so that a
// slow client does not hold the upstream's slot (R24). Keep, unless it is nil, is called once, whether the client reads
// or not: with the whole body at its end, or with nil when it did not come whole.
func (t *Table) ReadAhead(body io.ReadCloser, up *upstream.Upstream, keep func(store.Body)) *Ahead {
	ctx, cancel := context.WithCancelCause(t.ctx)
	s := NewSpool(t.budget, t.options.MaxBody, func() { cancel(errDeserted) })
	s.Hurry(up.Crowded)
	if keep == nil {
		s.Unkeep()
		keep = func(store.Body) {}
	}
	reader, _ := s.Join() // nothing has come yet: byte 0 is there to be joined
	a := &Ahead{reader: reader, ctx: ctx, body: body}
	a.ended = sync.OnceFunc(func() {
		if whole, ok := s.Body(); ok {
			keep(whole)
		} else {
			keep(nil)
		}
	})
	stop := context.AfterFunc(ctx, a.closeBody) // a drain that is over ends a read that is not
	t.running.Go(func() {
		defer stop()
		defer cancel(nil)
		defer a.closeBody()
		s.End(pump(ctx, source{body, up.Config().IdleTimeout, a.closeBody, a.ended}, s))
		a.ended() // whether the client has read it by now or not: others wait for what becomes of it
	})
	return a
}

// source is a body that comes from upstream: between two of its bytes at most idle may pass, then stalled is called.
type source struct {
	body     io.Reader
	idle     time.Duration
	stalled  func()
	outgrown func() // called once, when the body is no longer kept whole
}

// pump moves a body into a spool; nil is its clean end.
func pump(ctx context.Context, from source, s *Spool) error {
	whole := s.Whole()
	timer := time.AfterFunc(from.idle, from.stalled)
	defer timer.Stop()
	for {
		timer.Stop() // waiting for readers is not the upstream's doing
		space, err := s.Space(ctx)
		if err != nil {
			return err
		}
		timer.Reset(from.idle)
		n, err := from.body.Read(space)
		if n > 0 {
			s.Wrote(n)
		}
		if whole && !s.Whole() {
			whole = false
			from.outgrown()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Ahead is a body that is read ahead of its client.
type Ahead struct {
	reader *Reader
	ctx    context.Context
	left   []byte
	close  sync.Once
	body   io.ReadCloser
	ended  func()
}

// OnCut is the reader's.
func (a *Ahead) OnCut(sever func()) { a.reader.OnCut(sever) }

func (a *Ahead) Read(p []byte) (int, error) {
	if len(a.left) == 0 {
		var err error
		// The table's context ends only after every body; whoever leaves closes.
		if a.left, err = a.reader.Next(context.WithoutCancel(a.ctx)); err != nil {
			a.ended()
			return 0, err
		}
	}
	n := copy(p, a.left)
	a.left = a.left[n:]
	return n, nil
}

// Close ends the upstream's side too when the client left early.
func (a *Ahead) Close() error {
	a.ended()
	a.reader.Close()
	a.closeBody()
	return nil
}

func (a *Ahead) closeBody() { a.close.Do(func() { a.body.Close() }) }
