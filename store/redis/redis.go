package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"weir/policy"
	"weir/store"
)

// Store is a store.Store on Redis.
type Store struct {
	client redis.UniversalClient // small commands
	bulk   redis.UniversalClient // segments
	steps  scripts
	layout
	clock   clock
	breaker breaker
	bell    *bell
	leases  leases
	recent  recent
	notes   store.Notes // as heard: a Redis that was flushed has them no more, and fills that they are about may still run
	timeout time.Duration
	replies time.Duration // how long a purge waits for replicas to ring back (R11)
	waiting atomic.Int64

	life   context.Context // ends with Close
	end    context.CancelFunc
	mu     sync.Mutex // guards closed, and that nothing is started after it
	closed bool
	work   sync.WaitGroup
}

// Open makes a store. It asks nothing of Redis: whether it is there, Check tells.
func Open(c Config) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	// The library would print each failed dial to stderr, several a second; our errors say the same.
	logging.Disable()
	steps, err := loadScripts()
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: redis.NewUniversalClient(options), bulk: redis.NewUniversalClient(bulk(*options)),
		steps: steps, layout: layout{prefix: c.Prefix, db: c.DB, cluster: c.Mode == "cluster"},
		timeout: c.Timeout, replies: 50 * time.Millisecond,
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.breaker = breaker{every: c.Timeout, probe: func() error {
		ctx, cancel := context.WithTimeout(s.life, s.timeout)
		defer cancel()
		if err := s.client.Ping(ctx).Err(); err != nil {
			return err
		}
		return s.replay(s.life)
	}}
	s.bell = newBell(s, rand.Text())
	s.spawn(func() { s.bell.listen(s.life) })
	return s, nil
}

// Close ends everything; who waits learns ErrUnavailable. Leases still held are left to run out.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.leases.stop()
	err := errors.Join(s.client.Close(), s.bulk.Close())
	s.work.Wait()
	return err
}

// spawn starts a goroutine that Close waits for.
func (s *Store) spawn(work func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(work)
	}
}

// Peek finds nothing: this store has no memory of its own.
func (s *Store) Peek(policy.Key) (*store.Entry, bool) { return nil, false }

// Holds is false: what was read from Redis is its reader's.
func (s *Store) Holds(*store.Entry) bool { return false }

// Waiting is how many exchanges wait for another replica's fill.
func (s *Store) Waiting() int64 { return s.waiting.Load() }

// Check reports whether Redis answers, breaker or not.
func (s *Store) Check(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Ping(ask).Err(); err != nil {
		return fmt.Errorf("check: %w", sentinel(ctx, err))
	}
	return nil
}

// run runs an atomic step, whose reply begins with the store's time, and answers the rest of it.
func (s *Store) run(ctx context.Context, step *redis.Script, keys []string, args ...any) (reply, error) {
	if s.life.Err() != nil {
		return nil, fmt.Errorf("%w: closed", store.ErrUnavailable)
	}
	if !s.breaker.closed() {
		return nil, fmt.Errorf("%w: not tried", store.ErrUnavailable)
	}
	short, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	asked := time.Now()
	var got []any
	err := again(func() (err error) {
		got, err = step.Run(short, s.client, keys, args...).Slice()
		return err
	})
	answered := time.Now()
	if err == nil && len(got) == 0 {
		err = errors.New("empty reply")
	}
	if err != nil {
		err = sentinel(ctx, err)
		if errors.Is(err, errFault) && s.breaker.fault() {
			s.spawn(func() { s.breaker.heal(s.life) })
		}
		return nil, err
	}
	s.breaker.fine()
	r := reply(got)
	s.clock.learn(asked, answered, r.int(0))
	return r[1:], nil
}

// resets is how often in a row a connection may break under what is sent.
const resets = 4

// again does once more what a connection broke under, as all do one after the other when Redis is restarted or somebody
// between resets them. Whatever is sent may be repeated: steps go by their tokens, and a purge is dated twice.
func again(do func() error) (err error) {
	for range resets {
		err = do()
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			break
		}
	}
	return err
}

// call is an atomic step to be run among others.
type call struct {
	step *redis.Script
	keys []string
	args []any
}

// runAll runs steps in one go, in whatever order, and answers what each replied after the store's time.
func (s *Store) runAll(ctx context.Context, calls []call) ([]reply, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	if s.life.Err() != nil || !s.breaker.closed() {
		return nil, fmt.Errorf("%w: not tried", store.ErrUnavailable)
	}
	return s.pipe(ctx, calls)
}

// pipe does it, breaker or not.
func (s *Store) pipe(ctx context.Context, calls []call) ([]reply, error) {
	short, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var got []redis.Cmder
	send := func() (err error) {
		got, err = s.client.Pipelined(short, func(p redis.Pipeliner) error {
			for _, c := range calls {
				p.EvalSha(short, c.step.Hash(), c.keys, c.args...)
			}
			return nil
		})
		return err
	}
	err := again(send)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = s.teach(short, calls); err == nil {
			err = send()
		}
	}
	if err != nil {
		return nil, sentinel(ctx, err)
	}
	replies := make([]reply, len(got))
	for i, cmd := range got {
		r, _ := cmd.(*redis.Cmd).Slice()
		replies[i] = r[min(1, len(r)):]
	}
	return replies, nil
}

// teach gives every server the scripts.
func (s *Store) teach(ctx context.Context, calls []call) error {
	known := make(map[*redis.Script]bool)
	for _, c := range calls {
		if known[c.step] {
			continue
		}
		known[c.step] = true
		if err := c.step.Load(ctx, s.client).Err(); err != nil {
			return err
		}
	}
	return nil
}

// reply is a script's, none of whose types is believed.
type reply []any

func (r reply) int(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

// date is a purge's, which comes first.
func (r reply) date() uint64 { return uint64(max(r.int(0), 0)) }

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

// errFault marks what the breaker counts, under ErrUnavailable.
var errFault = errors.New("no answer")

// sentinel makes a client library's error one of the contract's. What ended because the caller's context did is the
// caller's; the context of the command itself, which is shorter, is not asked.
func sentinel(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	// The connection's deadline may be noticed before the context's timer fires.
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	var answer redis.Error
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return err
	case refusesWrites(err.Error()):
		return fmt.Errorf("%w: %w", store.ErrReadOnly, err)
	case errors.As(err, &answer) && !refusesUs(err) && !redis.IsLoadingError(err) && !redis.IsMasterDownError(err) && !redis.IsClusterDownError(err),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, errFault, err)
}

// refusesWrites tells "I answer, but take nothing" from "I am not well".
func refusesWrites(message string) bool {
	for _, prefix := range []string{"OOM ", "READONLY ", "MISCONF ", "NOREPLICAS "} {
		if strings.HasPrefix(message, prefix) {
			return true
		}
	}
	return false
}

// refusesUs tells what keeps a connection from coming about, and each next one too, as long as the file or Redis is not
// mended.
func refusesUs(err error) bool {
	return redis.IsAuthError(err) || strings.Contains(err.Error(), "DB index is out of range")
}

// about names the verb and the key in an error.
func about(verb string, key policy.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, strings.TrimSpace(key.Primary+" "+key.Variant), err)
}
