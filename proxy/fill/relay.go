package fill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/policy"
	"weir/store"
)

var (
	// errGone: the holder's process is gone. A connection that is refused or breaks is news: its lease need not run out.
	errGone = errors.New("holder gone")
	// errNotTold: the holder does not answer, or has nothing to give. How its fill ends is learned from the store.
	errNotTold = errors.New("holder does not tell")
)

// relay is a fill that another replica runs. Its bytes come from the holder while it runs; where that is not possible,
// the end of its lease is waited for, and says to look again.
func relay(f *Fill) step {
	f.report.End = Awaited
	ended, told := make(chan store.Outcome, 1), make(chan error, 1)
	f.table.running.Go(func() { ended <- f.await() })
	f.table.running.Go(func() { told <- f.listen() })
	select {
	case out := <-ended:
		// Committed, purged or given up: who comes from now on looks for himself.
		f.table.remove(f)
		// What is shared but not kept ends the lease at the head that the holder is just telling.
		f.hearOut(told)
		if f.learn(out, "") {
			return nil
		}
		return f.heard(f.hearToEnd(out, told))
	case err := <-told:
		switch {
		case errors.Is(err, errGone) && f.learn(store.Outcome{End: store.Lapsed}, f.held.Token):
			f.report.End = Overtaken
			return nil
		case err != nil && f.published():
			f.table.remove(f)
			return f.heard(err)
		}
		// Who comes before the holder has committed would find nothing to look up.
		f.learn(<-ended, "")
		return nil
	}
}

// hearToEnd waits for the rest of the body. When the holder's lease has lapsed although it meant to keep what it fetches,
// it is paused, cut off, or streams what became too large or was purged: only the last two still send.
func (f *Fill) hearToEnd(out store.Outcome, told chan error) error {
	if out.End == store.Filled || out.End == store.Failed {
		return <-told
	}
	tick := time.NewTicker(leaseTTL)
	defer tick.Stop()
	for size := f.spool.Size(); ; size = f.spool.Size() {
		select {
		case err := <-told:
			return err
		case <-tick.C:
			if f.spool.Size() == size {
				f.cancel(ErrStalled)
				return <-told
			}
		}
	}
}

// hearOut gives the holder a moment to say what the end of its lease is already known to be.
func (f *Fill) hearOut(told chan error) {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-f.head:
	case err := <-told:
		told <- err
	case <-timer.C:
	}
}

// heard ends a relay whose head was published; err is how its body ended.
func (f *Fill) heard(err error) step {
	if err != nil && !errors.Is(err, errNotTold) {
		return f.fail(err, policy.Fault{Kind: policy.Truncated})
	}
	return nil
}

// learn makes known how the holder's fill ended, unless its head came before: then it reports false.
func (f *Fill) learn(out store.Outcome, gone string) (first bool) {
	out.Taken = f.held.Taken
	f.heading.Do(func() {
		first = true
		f.cancel(nil)
		f.spool.End(nil)
		f.table.remove(f) // before anybody looks again, and would find it
		f.publish(Result{Outcome: &out, Gone: gone, Late: f.late.Load()})
	})
	return first
}

// await is how the lease ended.
func (f *Fill) await() store.Outcome {
	out, err := f.table.options.Store.Await(f.ctx, *f.held)
	if err != nil {
		return store.Outcome{End: store.Lapsed}
	}
	return out
}

// listen asks the holder for its fill, publishes the head and reads the body.
func (f *Fill) listen() error {
	if f.held.Holder == "" || f.table.options.Advertise == "" {
		return errNotTold
	}
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, "http://"+f.held.Holder+"/fill/"+f.held.Token, nil)
	if err != nil {
		return errNotTold
	}
	req.Header.Set(fieldClass, strconv.Itoa(int(f.place.Class())))
	res, err := f.table.peers.client.Do(req)
	if err != nil {
		return f.silence(err)
	}
	defer res.Body.Close()
	f.table.peers.meet(f.held.Holder)
	if res.StatusCode != http.StatusOK {
		f.late.Store(res.StatusCode == http.StatusNotFound)
		return errNotTold
	}
	adm, err := f.hear(res)
	if err != nil {
		return errNotTold
	}
	length, _ := strconv.ParseInt(res.Header.Get(fieldLength), 10, 64)
	published := false
	f.heading.Do(func() {
		published = true
		f.report.Status, f.report.End = adm.Stored.Status, Relayed
		f.publish(Result{Response: adm.Stored.Response, Admission: adm, Length: length})
	})
	if !published {
		return nil
	}
	idle := f.up.Config().IdleTimeout
	err = pump(f.ctx, source{res.Body, idle, func() { f.cancel(ErrStalled) }, func() { f.table.remove(f) }}, f.spool)
	if err == nil && res.Trailer.Get(fieldEnd) != complete {
		err = fmt.Errorf("holder broke off: %w", io.ErrUnexpectedEOF)
	}
	f.spool.End(err)
	return err
}

// silence says what it means that a holder could not be asked. A connection that breaks, or is refused by an address that
// has answered before, is the news that its process is gone. One that never answered may just not be reachable from here.
func (f *Fill) silence(err error) error {
	lost := f.table.peers.broke
	if errors.Is(err, syscall.ECONNREFUSED) {
		lost = f.table.peers.refused
	}
	switch {
	case f.ctx.Err() != nil:
		return errNotTold
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET):
	case lost(f.held.Holder):
		return errGone
	}
	f.report.StoreFault = "relay"
	return errNotTold
}

// The fields by which a holder tells of its fill. The head follows in the body, as it would lie in the store.
const (
	fieldClass   = "Weir-Class"   // of the request: who waits over there
	fieldNow     = "Weir-Now"     // µs by the holder's clock
	fieldLength  = "Weir-Length"  // of the answer's body; -1: unknown
	fieldKeep    = "Weir-Keep"    // how long it will be kept; 0: it is only shared
	fieldFlags   = "Weir-Flags"   // what else an admission says
	fieldVariant = "Weir-Variant" // the key it belongs under
	fieldEnd     = "Weir-End"     // trailer
	complete     = "complete"
)

// hear reads an admission that tell wrote.
func (f *Fill) hear(res *http.Response) (adm policy.Admission, err error) {
	now, err := strconv.ParseInt(res.Header.Get(fieldNow), 10, 64)
	if err != nil {
		return adm, err
	}
	var size [4]byte
	if _, err = io.ReadFull(res.Body, size[:]); err != nil {
		return adm, err
	}
	head := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	if _, err = io.ReadFull(res.Body, head); err != nil {
		return adm, err
	}
	adm.Key = policy.Key{Primary: f.held.Key.Primary, Variant: res.Header.Get(fieldVariant)}
	e, _, err := store.DecodeHead(head, adm.Key)
	if err != nil {
		return adm, err
	}
	adm.Stored = e.Stored.Shift(time.Since(time.UnixMicro(now)))
	adm.Shared = adm.Stored.Header
	keep, err := strconv.ParseInt(res.Header.Get(fieldKeep), 10, 64)
	adm.Keep = time.Duration(keep) * time.Microsecond
	flags := res.Header.Get(fieldFlags)
	adm.Particular, adm.Changed = strings.Contains(flags, "particular"), strings.Contains(flags, "changed")
	return adm, err
}

// classOf is who waits on another replica. An older one does not say; then the lease does, a little later.
func classOf(h http.Header) policy.Class {
	if n, err := strconv.ParseUint(h.Get(fieldClass), 10, 8); err == nil {
		return policy.Class(n)
	}
	return policy.WarmWaits
}

// Relay serves the fills of this replica to others, each by the token of its lease, which only those know who read the
// store. Nothing else is served.
func (t *Table) Relay(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.URL.Path, "/fill/")
	f := t.leasedAs(token)
	if !ok || f == nil || f.Complete() {
		http.NotFound(w, r) // it is over: what there is to know is in the store, or will be in a moment
		return
	}
	reader, ok := f.Board(classOf(r.Header))
	if !ok {
		http.NotFound(w, r)
		return
	}
	defer reader.Close()
	reader.Stay() // those who read it over there are in mid-body
	select {
	case <-f.Head():
	case <-r.Context().Done():
		return
	}
	head, err := f.tell()
	if err != nil {
		// There is no body to share: the end of the lease says the rest.
		w.WriteHeader(http.StatusNoContent)
		return
	}
	f.label(w.Header())
	if _, err := w.Write(head); err != nil {
		panic(http.ErrAbortHandler)
	}
	control := http.NewResponseController(w)
	for {
		// A peer that is gone without a word must not hold the body in memory.
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		if !reader.Pending() {
			_ = control.Flush()
		}
		p, err := reader.Next(r.Context())
		if err == io.EOF {
			w.Header().Set(fieldEnd, complete)
			return
		}
		if err == nil {
			_, err = w.Write(p)
		}
		if err != nil {
			panic(http.ErrAbortHandler) // a short body must not look whole
		}
	}
}

// tell is the head of a fill for another replica, as it would lie in the store, behind its length.
func (f *Fill) tell() ([]byte, error) {
	res := f.Result()
	if res.Fault != nil || res.Entry != nil || res.Outcome != nil || res.Admission.Private {
		return nil, errNotTold
	}
	e := &store.Entry{Stored: res.Admission.Stored, Key: res.Admission.Key}
	e.Header = res.Admission.Shared
	head, err := store.EncodeHead(e, max(res.Length, 0))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head...), err
}

// label says what the head does not.
func (f *Fill) label(h http.Header) {
	res := f.Result()
	var flags []string
	if res.Admission.Particular {
		flags = append(flags, "particular")
	}
	if res.Admission.Changed {
		flags = append(flags, "changed")
	}
	h.Set("Trailer", fieldEnd)
	h.Set(fieldNow, strconv.FormatInt(time.Now().UnixMicro(), 10))
	h.Set(fieldLength, strconv.FormatInt(res.Length, 10))
	h.Set(fieldKeep, strconv.FormatInt(res.Admission.Keep.Microseconds(), 10))
	h.Set(fieldFlags, strings.Join(flags, " "))
	h.Set(fieldVariant, res.Admission.Key.Variant)
}

func (t *Table) leasedAs(token string) *Fill {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leased[token]
}

// forget takes f out of what other replicas may ask for.
func (t *Table) forget(f *Fill) {
	if f.lease == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leased, f.lease.Token)
}
