package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/policy"
	"weir/store"
)

// Faulty is s with faults by rule (see rule); of those that fit a call the first counts. Without rules it is s.
func Faulty(t testing.TB, s Store, rules ...string) Store {
	t.Helper()
	f := &faulty{Store: s, calls: make(map[string]int)}
	for _, text := range rules {
		r, err := parseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		f.rules = append(f.rules, r)
	}
	return f
}

type faulty struct {
	Store
	rules []rule
	mu    sync.Mutex
	calls map[string]int // by verb
}

// steps are what happens in this call of a verb; nil: what the store does.
func (f *faulty) steps(verb string) []step {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[verb]++
	for _, r := range f.rules {
		if r.verb == verb && r.covers(f.calls[verb]) {
			return r.steps
		}
	}
	return nil
}

// play goes through a call's steps. Whatever the store answered, an error of play's is what the caller is told.
func (f *faulty) play(ctx context.Context, verb string, do func() error) error {
	done := false
	var err error
	for _, s := range f.steps(verb) {
		switch {
		case s.done:
			done, err = true, do()
		case s.fault != nil:
			if s.fault == errHang {
				<-ctx.Done()
				return fmt.Errorf("%s: by rule: %w", verb, ctx.Err())
			}
			return fmt.Errorf("%s: by rule: %w", verb, s.fault)
		default:
			wait := time.NewTimer(s.wait)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
				return fmt.Errorf("%s: by rule: %w", verb, ctx.Err())
			}
		}
	}
	if done {
		return err
	}
	return do()
}

func (f *faulty) Peek(key policy.Key) (e *store.Entry, ok bool) {
	err := f.play(context.Background(), "peek", func() error {
		e, ok = f.Store.Peek(key)
		return nil
	})
	if err != nil {
		return nil, false
	}
	return e, ok
}

// Take with readonly does what a store does that refuses writes: it answers what is stored, and the refusal beside it
// when a lease would have been granted (R16).
func (f *faulty) Take(ctx context.Context, key policy.Key, want store.Want) (got store.Taken, err error) {
	err = f.play(ctx, "take", func() (err error) {
		got, err = f.Store.Take(ctx, key, want)
		return err
	})
	if !errors.Is(err, store.ErrReadOnly) {
		if err != nil {
			got = store.Taken{}
		}
		return got, err
	}
	look := want
	look.TTL = 0
	got, lookErr := f.Store.Take(ctx, key, look)
	if lookErr != nil {
		return store.Taken{}, lookErr
	}
	if want.TTL <= 0 || got.HeldBy != nil || got.Entry != nil && got.Entry.FreshUntil.After(want.At) {
		return got, nil
	}
	return got, err
}

func (f *faulty) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (class policy.Class, err error) {
	err = f.play(ctx, "renew", func() (err error) {
		class, err = f.Store.Renew(ctx, lease, ttl)
		return err
	})
	return class, err
}

func (f *faulty) Commit(ctx context.Context, lease store.Lease, write store.Write) error {
	return f.play(ctx, "commit", func() error { return f.Store.Commit(ctx, lease, write) })
}

func (f *faulty) Release(ctx context.Context, lease store.Lease, out store.Outcome) error {
	return f.play(ctx, "release", func() error { return f.Store.Release(ctx, lease, out) })
}

func (f *faulty) Await(ctx context.Context, held store.Lease) (out store.Outcome, err error) {
	err = f.play(ctx, "await", func() (err error) {
		out, err = f.Store.Await(ctx, held)
		return err
	})
	if end, ok := errors.AsType[ended](err); ok {
		return store.Outcome{End: store.End(end), Fault: policy.Fault{Kind: policy.Reset}}, nil
	}
	return out, err
}

func (f *faulty) Purge(ctx context.Context, sel policy.Selector, mode store.Mode) (got store.Purged, err error) {
	err = f.play(ctx, "purge", func() (err error) {
		got, err = f.Store.Purge(ctx, sel, mode)
		return err
	})
	return got, err
}

func (f *faulty) Watch(ctx context.Context, obey func(store.Event)) error {
	return f.play(ctx, "watch", func() error { return f.Store.Watch(ctx, obey) })
}

func (f *faulty) Check(ctx context.Context) error {
	return f.play(ctx, "check", func() error { return f.Store.Check(ctx) })
}
