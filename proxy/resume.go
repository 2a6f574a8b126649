package proxy

import (
	"errors"
	"io"
	"iter"

	"weir/policy"
	"weir/proxy/fill"
	"weir/store"
)

// morsel is how much of a body that does not lie in memory is in hand for a client: many may be slow.
const morsel = 32 << 10

// stored writes a span of what an entry holds. What lies in memory is written as it lies there; the rest comes a little
// at a time.
func (x *exchange) stored(w io.Writer, e *store.Entry, span policy.Span) error {
	if held, ok := e.Body.(store.Bytes); ok {
		return x.fromMemory(w, e, held.Pieces(span))
	}
	buf := make([]byte, min(span.Len(), morsel))
	for off := span.Start; off < span.End; {
		n, err := e.Body.ReadAt(x.r.Context(), buf[:min(int64(len(buf)), span.End-off)], off)
		if n == 0 && err != nil {
			if failed := x.resume(w, e, policy.Span{Start: off, End: span.End}); failed != nil {
				return errors.Join(failed, err)
			}
			return nil
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// fromMemory writes pieces of what an entry holds in memory. As the store may let go of it meanwhile, who takes long is
// known to the memory budget (R25).
func (x *exchange) fromMemory(w io.Writer, e *store.Entry, pieces iter.Seq[[]byte]) error {
	took := func(int) {}
	if e.Body.Size() > piece {
		reader := x.h.table.Lend(e, x.w.sever)
		defer reader.Close()
		took = reader.Took
	}
	for p := range pieces {
		for len(p) > 0 {
			n := min(len(p), piece)
			took(n)
			if _, err := w.Write(p[:n]); err != nil {
				return err
			}
			p = p[n:]
		}
	}
	return nil
}

// moved goes on in the store with what a fill has brought: nobody else reads it here, and its memory was needed (R25).
func (x *exchange) moved(w io.Writer, span policy.Span) error {
	x.entry = x.reader.Stored()
	x.reader.Close()
	if span.End < 0 {
		span.End = x.entry.Body.Size()
	}
	return x.stored(w, x.entry, span)
}

// resume goes on upstream where the store has lost the rest (R12). What is damaged is refreshed behind the answer, so
// that it is found out, or replaced.
func (x *exchange) resume(w io.Writer, e *store.Entry, lack policy.Span) error {
	if x.gone() {
		return x.report.Err
	}
	x.report.Detail = policy.BodyLost
	total := e.Body.Size()
	if e.Kind == policy.Part {
		lack, total = policy.Span{Start: lack.Start + e.Span.Start, End: lack.End + e.Span.Start}, e.Total
	}
	x.entry = e
	x.h.table.Refresh(x.ask(fill.Refresh))
	body, err := x.h.table.Resume(x.r.Context(), fill.Lack{
		Policy: x.policy, Plan: x.plan, Stored: e.Stored, Span: lack, Total: total,
	})
	if err != nil {
		return err
	}
	defer body.Close()
	body.OnCut(x.w.sever)
	_, err = io.CopyN(w, body, lack.Len())
	return unexpected(err)
}
