package proxy

import (
	"context"

	"weir/store"
)

// PurgeRoute covers what a route has brought, under whatever host. policy.ErrNoRoute: there is none of that name.
func (h *Handler) PurgeRoute(ctx context.Context, route string, mode store.Mode) (store.Purged, error) {
	sel, err := h.policy.Load().RouteNamed(route)
	if err != nil {
		return store.Purged{}, err
	}
	return h.store.Purge(ctx, sel, mode)
}
