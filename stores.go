package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/proxy/telemetry"
	"weir/store"
	"weir/store/memory"
	"weir/store/near"
	"weir/store/redis"
)

// openStore opens what the file names. A Redis that is away is a warning, unless the file says that it is required (decision 10).
func (r *replica) openStore() (store.Store, error) {
	if r.config.Store.Kind == "memory" {
		r.memory = memory.New(r.config.MemoryStore())
		return r.memory, nil
	}
	s, err := redis.Open(r.config.Store.Redis)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = s.Check(ctx)
	r.reached = err == nil
	switch {
	case err != nil && r.config.Required():
		return nil, errors.Join(fmt.Errorf("store.redis is required and away: %w", err), s.Close())
	case err != nil:
		r.log.Warn("redis is away; this replica serves alone until it is back", "addresses", r.config.Store.Redis.Addresses, "fault", err.Error())
	}
	for _, w := range s.Warnings(ctx) {
		r.log.Warn("redis is not set up for this", "warning", w)
	}
	r.compare(ctx, s)
	if !r.config.Store.Redis.Near {
		return s, nil
	}
	r.memory = memory.Near(r.config.MemoryStore(), s)
	r.near = near.New(s, r.memory, r.config.Store.Redis.AwayTTL)
	return r.near, nil
}

// compare warns of a prefix that two deployments share (R20).
func (r *replica) compare(ctx context.Context, s *redis.Store) {
	if !r.reached {
		return
	}
	settings := r.config.Settings()
	if before, err := s.Settle(ctx, settings); err == nil && before != "" && before != settings {
		r.log.Warn("the last replica to start under this prefix served other routes or upstreams: that was this file before a change, "+
			"or it is another deployment, which needs a store.redis.prefix of its own", "prefix", r.config.Store.Redis.Prefix)
	}
}

// sources are what the metrics ask.
func (r *replica) sources() telemetry.Sources {
	s := telemetry.Sources{Gauges: r.handler.Gauges, Upstreams: r.stats, Warm: r.warmth}
	if r.memory != nil {
		s.Store = func() telemetry.Kept {
			m := r.memory.Stats()
			return telemetry.Kept{Entries: m.Entries, Bytes: m.Bytes, Pinned: m.Pinned, Evictions: m.Evictions}
		}
	}
	if r.near != nil {
		s.Near = func() telemetry.Copies { return telemetry.Copies(r.near.Stats()) }
	}
	return s
}

// tellOfStore logs when the line to the shared store breaks, and when it is whole again; not what a replica that
// leaves has cut itself, nor a return from what nobody was told of.
func (r *replica) tellOfStore(ctx context.Context) {
	broken, begun := !r.reached, false
	_ = r.store.Watch(ctx, func(e store.Event) {
		if e.Kind != store.Silence && e.Kind != store.Healed {
			return
		}
		first := !begun
		begun = true
		switch {
		case r.leaving.Load(), first && e.Kind == store.Silence: // which is how it begins, and no change
		case e.Kind == store.Silence && !broken:
			broken = true
			r.log.Warn("the line to redis is broken; this replica serves alone until it is back")
		case e.Kind == store.Healed && broken:
			broken = false
			r.log.Info("the line to redis is whole again")
		}
	})
}
