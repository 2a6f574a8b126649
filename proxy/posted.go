package proxy

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"weir/policy"
	"weir/store"
)

// posted takes the right to store an answer to POST that GETs may be given (RFC 9110 §9.3.3), before its body comes:
// what a later write makes void must not be stored over it. nil: it is not to be stored.
func (x *exchange) posted(res *http.Response) (commit func(store.Body)) {
	now := time.Now()
	plan, adm := x.policy.AdmitPosted(x.plan, policy.Response{
		Status: res.StatusCode, Header: res.Header, Asked: x.report.Time, Arrived: now,
	}, x.moment())
	if adm.Keep <= 0 || len(res.Trailer) > 0 || x.report.StoreFault != "" {
		return nil
	}
	return x.storing(plan, adm, now)
}

// keepLease is how long it may take to store what no fill has brought. Nothing renews such a lease, and who asks for the
// page meanwhile waits for its end: an answer that takes longer to come is not worth that.
const keepLease = 2 * time.Second

// storing takes the right to store what no fill has brought, unless something is stored that is fresh until after at.
// Commit stores it with its body, or gives the right back when there is none.
func (x *exchange) storing(plan policy.Plan, adm policy.Admission, at time.Time) (commit func(store.Body)) {
	ctx := context.WithoutCancel(x.r.Context())
	taken, err := x.h.store.Take(ctx, adm.Key, store.Want{Token: rand.Text(), TTL: keepLease, At: at, Despite: store.EveryFailure})
	if err != nil {
		x.report.StoreFault, x.report.StoreWhy, x.report.Err = "take", policy.StoreUnavailable, err
	}
	if taken.Lease == nil {
		return nil
	}
	x.report.Stored = true
	return func(body store.Body) {
		if body == nil {
			_ = x.h.store.Release(ctx, *taken.Lease, store.Outcome{End: store.Lapsed})
			return
		}
		entry := &store.Entry{Stored: adm.Stored, Key: adm.Key, Body: body}
		entry.Header = adm.Shared
		w := store.Write{Entry: entry, Sign: plan.Page, Keep: adm.Keep}
		w.Key, w.Variant = x.policy.VariantOf(plan, adm.Stored)
		// The exchange may be over by now, and its report closed. Nobody counted on this: lost is lost.
		if err := x.h.store.Commit(ctx, *taken.Lease, w); err != nil {
			_ = x.h.store.Release(ctx, *taken.Lease, store.Outcome{End: store.Lapsed})
		}
	}
}

// headed acts on what an answer to HEAD tells of the answer to GET that is stored (RFC 9111 §4.3.5).
func (x *exchange) headed(head policy.Response) {
	adm, outdated := x.policy.Headed(x.plan, x.entry.Stored, head, x.moment())
	switch {
	case outdated:
		x.void(policy.Selector{Page: x.plan.Page.Primary}, store.MustValidate)
	case adm.Keep > 0:
		if commit := x.storing(x.plan, adm, x.entry.FreshUntil); commit != nil {
			commit(x.entry.Body)
		}
	}
}
