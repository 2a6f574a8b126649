package warm

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"weir/policy"
	"weir/store"
)

const (
	// leaseTTL is how long pages are left alone by all when the replica that kept them warm has died.
	leaseTTL = 5 * time.Second
	// recess is how long a replica waits, about, before it asks again a store that has failed it.
	recess = time.Second
)

// leader has work done by one replica of all that share a store.
type leader struct {
	store Store
	key   policy.Key
	work  func(context.Context) // returns when its context has ended, and leaves nothing running
}

// run takes part in the election until ctx ends. While the store is away nobody leads: what each replica would fetch
// alone would reach the others late or never.
func (l leader) run(ctx context.Context) {
	for ctx.Err() == nil {
		taken, err := l.store.Take(ctx, l.key, store.Want{Token: rand.Text(), TTL: leaseTTL, At: time.Now(), Class: policy.WarmWaits})
		switch {
		case err == nil && taken.Alone == nil && taken.Lease != nil:
			l.hold(ctx, *taken.Lease)
			continue
		case err == nil && taken.HeldBy != nil:
			if _, err = l.store.Await(ctx, *taken.HeldBy); err == nil {
				continue
			}
		}
		if taken.Lease != nil {
			l.giveBack(ctx, *taken.Lease)
		}
		pause(ctx, recess+mathrand.N(recess))
	}
}

// hold works while the lease lives, and gives it back, so that another need not wait until it has run out.
func (l leader) hold(ctx context.Context, lease store.Lease) {
	held, lose := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		defer lose()
		l.renew(held, lease)
	})
	l.work(held)
	lose()
	renewing.Wait() // a renewal that comes after the release might take the lease again
	l.giveBack(ctx, lease)
}

// renew returns when the lease is lost or ctx ends. A store that is away for a moment loses none: Lost closes in time.
func (l leader) renew(ctx context.Context, lease store.Lease) {
	tick := time.NewTicker(leaseTTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := l.store.Renew(ctx, lease, leaseTTL); errors.Is(err, store.ErrLost) {
				return
			}
		case <-lease.Lost:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (l leader) giveBack(ctx context.Context, lease store.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recess)
	defer cancel()
	_ = l.store.Release(ctx, lease, store.Outcome{End: store.Lapsed}) // else it runs out
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
