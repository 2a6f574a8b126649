package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

// The line is asked for a sign of life after this long without a message, and broken after as long again (R19). The
// client library's own channel notices a black hole after 20 s, which is why it is not used.
const quiet = 250 * time.Millisecond

// message is what a ring says, beside what the script puts in front of it: the name and the number of the counter, when (the
// ended lease's taken, or the purge's date), the outcome, and whether something was replaced.
type message struct {
	From  string       `json:"from"`
	Token string       `json:"token,omitempty"` // of the lease that ended
	Keys  []messageKey `json:"keys,omitempty"`  // what was written, if it replaced something
	Purge *purgeNote   `json:"purge,omitempty"`
	Ack   uint64       `json:"ack,omitempty"` // of a purge, to who asked for it
}

// Keys are bytes: they may be no UTF-8, which JSON would mend.
type messageKey struct {
	Primary []byte `json:"p"`
	Variant []byte `json:"v,omitempty"`
}

// purgeNote is a purge; one that names nothing is of all.
type purgeNote struct {
	ID     uint64     `json:"id"`
	Page   []byte     `json:"page,omitempty"`
	Tag    []byte     `json:"tag,omitempty"`
	Prefix []byte     `json:"prefix,omitempty"`
	Host   []byte     `json:"host,omitempty"`
	Route  []byte     `json:"route,omitempty"`
	Mode   store.Mode `json:"mode"`
}

func noteOf(sel policy.Selector, mode store.Mode) purgeNote {
	return purgeNote{
		Page: []byte(sel.Page), Tag: []byte(sel.Tag), Prefix: []byte(sel.Prefix), Host: []byte(sel.Host),
		Route: []byte(sel.Route), Mode: mode,
	}
}

func keyOf(k policy.Key) messageKey { return messageKey{[]byte(k.Primary), []byte(k.Variant)} }

func (k messageKey) key() policy.Key {
	return policy.Key{Primary: string(k.Primary), Variant: string(k.Variant)}
}

func (p purgeNote) selector() policy.Selector {
	sel := policy.Selector{
		Page: string(p.Page), Tag: string(p.Tag), Prefix: string(p.Prefix), Host: string(p.Host), Route: string(p.Route),
	}
	sel.All = sel == policy.Selector{}
	return sel
}

// bell hears what other replicas do, by one subscription, and tells it to those who wait, watch, or hold a lease.
type bell struct {
	store *Store
	id    string // this replica's
	next  atomic.Uint64

	watchers store.Watchers
	telling  sync.Mutex // how the line is: what is told last is so. Taken before mu

	mu      sync.Mutex
	waiters map[*waiter]struct{}
	acks    map[uint64]chan struct{} // of our own purges under way
	numbers map[string]int64         // the last ring heard, by counter
	up      bool
	broke   error         // why the line was last broken; nil before the first try
	tried   chan struct{} // closes when the first try has ended, either way
}

// waiter is one Await.
type waiter struct {
	key   policy.Key
	token string
	ended chan store.Outcome // has room for one: nobody waits for a waiter
	look  chan struct{}      // something happened to the page, or to the line
}

func newBell(s *Store, id string) *bell {
	return &bell{
		store: s, id: id,
		waiters: make(map[*waiter]struct{}), acks: make(map[uint64]chan struct{}),
		numbers: make(map[string]int64), tried: make(chan struct{}),
	}
}

func (b *bell) message(m message) []byte {
	m.From = b.id
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // of plain fields: cannot be
	}
	return raw
}

func (b *bell) wait(key policy.Key, token string) *waiter {
	w := &waiter{key: key, token: token, ended: make(chan store.Outcome, 1), look: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters[w] = struct{}{}
	return w
}

func (b *bell) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, w)
}

// pause is how long a waiter trusts the bell before it looks for itself; jittered, as many began at once.
func pause() time.Duration { return 400*time.Millisecond + rand.N(200*time.Millisecond) }

// listen keeps the line until ctx ends.
func (b *bell) listen(ctx context.Context) {
	for ctx.Err() == nil {
		b.broken(b.line(ctx))
		select {
		case <-time.After(quiet/2 + rand.N(quiet/2)):
		case <-ctx.Done():
		}
	}
}

// line subscribes and hears until something breaks it. A reply cut in two by a time-out leaves the stream out of
// step; that reads as an error next, and the line is made anew.
func (b *bell) line(ctx context.Context) error {
	own := b.store.replica(b.id)
	dial, cancel := context.WithTimeout(ctx, b.store.timeout)
	defer cancel()
	sub := b.store.client.Subscribe(dial, b.store.channel(), own)
	defer func() { _ = sub.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	for asked := false; ; {
		got, err := sub.ReceiveTimeout(ctx, quiet)
		var late net.Error
		switch {
		case err == nil:
			asked = false
		case asked || !errors.As(err, &late) || !late.Timeout():
			return err
		default:
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		}
		switch m := got.(type) {
		case *redis.Subscription:
			if m.Channel != own { // the second of the two
				continue
			}
			if err := b.store.breaker.probe(); err != nil { // one that reads its dump takes subscriptions already
				return err
			}
			b.healed()
		case *redis.Message:
			b.hear(m.Payload)
		}
	}
}

// broken: what was heard may be incomplete from now on, so whoever waits looks, and watchers are told.
func (b *bell) broken(err error) {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	was := b.up
	b.up, b.broke = false, err
	b.firstTry()
	b.mu.Unlock()
	if was {
		b.watchers.Tell(store.Event{Kind: store.Silence})
		b.look(func(*waiter) bool { return true })
	}
}

func (b *bell) healed() {
	b.store.breaker.mend() // so that both lines are believed together
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	b.up, b.broke, b.numbers = true, nil, make(map[string]int64)
	b.firstTry()
	b.mu.Unlock()
	b.watchers.Tell(store.Event{Kind: store.Healed})
	b.look(func(*waiter) bool { return true })
}

// lost: a ring was not heard. That is as if the line had been broken, and is whole again.
func (b *bell) lost() {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.watchers.Tell(store.Event{Kind: store.Silence})
	b.watchers.Tell(store.Event{Kind: store.Healed})
	b.look(func(*waiter) bool { return true })
}

// hears reports whether the line is whole.
func (b *bell) hears() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.up
}

func (b *bell) firstTry() {
	select {
	case <-b.tried:
	default:
		close(b.tried)
	}
}

// hear takes one message. What it cannot read is from another version, or from a stranger.
func (b *bell) hear(payload string) {
	part := strings.SplitN(payload, "|", 7)
	if len(part) != 7 || part[0] != "B1" {
		return
	}
	number, err := strconv.ParseInt(part[2], 10, 64)
	at, err2 := strconv.ParseUint(part[3], 10, 64)
	var m message
	if err != nil || err2 != nil || json.Unmarshal([]byte(part[6]), &m) != nil {
		return
	}
	if m.Ack != 0 {
		b.acknowledged(m.Ack)
		return
	}
	if b.gap(part[1], number) {
		b.lost()
		s := b.store
		s.spawn(func() { _ = s.replay(s.life) }) // it may have been flushed
	}
	if m.Token != "" {
		out := parseOutcome(part[4])
		if out.End == store.Filled {
			out.Taken = at
		}
		b.ended(m.Token, out)
	}
	if part[5] == "1" {
		for _, k := range m.Keys {
			b.watchers.Tell(store.Event{Kind: store.Replaced, Key: k.key(), At: at})
		}
	}
	if m.Purge != nil {
		b.purged(m.From, *m.Purge, at)
	}
}

// gap reports whether rings between the last one heard and this were lost. Redis numbers them, so they come in order.
// One that it could not number is 0.
func (b *bell) gap(counter string, number int64) bool {
	if number == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.numbers[counter]
	b.numbers[counter] = number
	return known && number != last+1
}

func (b *bell) ended(token string, out store.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.waiters {
		if w.token == token {
			select {
			case w.ended <- out:
			default:
			}
		}
	}
}

// look wakes waiters to look for themselves.
func (b *bell) look(match func(*waiter) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.waiters {
		if match(w) {
			select {
			case w.look <- struct{}{}:
			default:
			}
		}
	}
}

// purged revokes the leases here that the purge covers, and rings back once the watchers have obeyed. A lease taken after
// the purge is not its business, though it may be heard of before.
func (b *bell) purged(from string, p purgeNote, at uint64) {
	sel, mode := p.selector(), p.Mode
	if mode > store.MustValidate {
		mode = store.Hard // a later version's: whatever it means, it is not less than this
	}
	b.store.remember(past{sel: sel, mode: mode, at: at, taken: true})
	b.store.leases.lose(func(_ string, h *held) bool {
		return h.taken <= at && store.Covers(sel, h.key, nil)
	})
	b.look(func(w *waiter) bool { return store.Covers(sel, w.key, nil) })
	b.watchers.Tell(store.Event{Kind: store.PurgedNote, Selector: sel, Mode: mode, At: at})
	s := b.store
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.life, s.timeout)
		defer cancel()
		// Unheard it costs the purger its patience, no more.
		_ = s.client.Publish(ctx, s.replica(from), "B1||0|0||0|"+string(b.message(message{Ack: p.ID}))).Err()
	})
}

func (b *bell) acknowledged(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ack := b.acks[id]; ack != nil {
		select {
		case ack <- struct{}{}:
		default:
		}
	}
}

func (b *bell) expect(id uint64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	ack := make(chan struct{}, 1024)
	b.acks[id] = ack
	return ack
}

func (b *bell) expected(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.acks, id)
}

// Watch tells obey how the line is, and what replicas do, this one included, until ctx ends.
func (s *Store) Watch(ctx context.Context, obey func(store.Event)) error {
	s.bell.watchers.Watch(ctx, s.life.Done(), store.Watching{Obey: obey, Begin: func() {
		s.bell.telling.Lock()
		defer s.bell.telling.Unlock()
		if s.bell.hears() {
			obey(store.Event{Kind: store.Healed})
		} else {
			obey(store.Event{Kind: store.Silence})
		}
	}})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return fmt.Errorf("watch: %w: closed", store.ErrUnavailable)
}
