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

// ReadAhead takes the body of a pass off the upstream's hands as fast as it comes, within the memory budget, so that a
// slow client does not hold the upstream's slot (R24). Keep, unless it is nil, is called once, whether the client reads
// or not: with the whole body at its end, or with nil when it did not come whole.
func (t *Table) ReadAhead(body io.ReadCloser, up *upstream.Upstream, keep func(store.Body)) io.ReadCloser {
	ctx, cancel := context.WithCancelCause(t.ctx)
	s := NewSpool(t.budget, t.options.MaxBody, func() { cancel(errDeserted) })
	s.Hurry(up.Crowded)
	if keep == nil {
		s.Unkeep()
		keep = func(store.Body) {}
	}
	reader, _ := s.Join() // nothing has come yet: byte 0 is there to be joined
	a := &ahead{reader: reader, ctx: ctx, body: body}
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

type ahead struct {
	reader *Reader
	ctx    context.Context
	left   []byte
	close  sync.Once
	body   io.ReadCloser
	ended  func()
}

func (a *ahead) Read(p []byte) (int, error) {
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
func (a *ahead) Close() error {
	a.ended()
	a.reader.Close()
	a.closeBody()
	return nil
}

func (a *ahead) closeBody() { a.close.Do(func() { a.body.Close() }) }
