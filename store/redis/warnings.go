package redis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Warnings are what an operator should know of this Redis before it matters (R20). What Redis does not tell is no
// warning.
func (s *Store) Warnings(ctx context.Context) []string {
	var list []string
	select {
	case <-s.bell.tried:
	case <-ctx.Done():
	}
	s.bell.mu.Lock()
	broke := s.bell.broke
	s.bell.mu.Unlock()
	if redis.IsPermissionError(broke) {
		list = append(list, "this user may not subscribe ("+broke.Error()+"): other replicas' fills and purges are noticed late; allow &"+s.prefix+":bell:*")
	}
	ask, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	got, err := s.client.ConfigGet(ask, "maxmemory*").Result()
	if err != nil || got["maxmemory"] == "0" {
		return list
	}
	switch got["maxmemory-policy"] {
	case "volatile-ttl":
		list = append(list, "maxmemory-policy volatile-ttl evicts leases first, so that pages are fetched twice; prefer allkeys-lru")
	case "allkeys-random", "volatile-random":
		list = append(list, "maxmemory-policy "+got["maxmemory-policy"]+" evicts leases and purge notes like anything else; prefer allkeys-lru")
	case "noeviction":
		list = append(list, "maxmemory-policy noeviction: once Redis is full, nothing more is stored; prefer allkeys-lru")
	}
	return list
}

// Settle notes what this replica is told to serve, and returns what the last one was told that started under this prefix;
// "": none did. Two deployments that share a prefix by mistake would answer for each other (R20).
func (s *Store) Settle(ctx context.Context, settings string) (before string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	before, err = s.client.SetArgs(ctx, s.prefix+":settings", settings, redis.SetArgs{Get: true, TTL: longest}).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return before, err
}
