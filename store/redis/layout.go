package redis

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"weir/policy"
	"weir/store"
)

// Every name we write begins with the prefix and one hash tag, and all names of a page have the same one, so that the
// atomic steps see them together. In a cluster there are 256 tags, chosen by the first byte of the page's SHA-256,
// which is few enough to write a note that concerns all pages to each of them (R9); elsewhere there is one.
//
//	weir:{0}:head:PAGE[:VARIANT]          an entry: its head, a small body, a plan of the body (body.go)
//	weir:{0}:seg:PAGE[:VARIANT]:LEASE:N   a large body's Nth segment, staged under the lease that brought it
//	weir:{0}:lease:PAGE[:VARIANT]         a running lease, or how the last one ended
//	weir:{0}:fail:PAGE[:VARIANT]          a remembered failure
//	weir:{0}:page:PAGE                    when the page was purged, in each mode
//	weir:{0}:notes                        a hash: when else was purged, by what (below)
//	weir:{0}:bell                         the number of the last ring
//	weir:settings                         what the last replica that started was told to serve, hashed
//
// PAGE and VARIANT are SHA-256 in hex: the key itself lies in the entry and is compared on reading. Channels:
//
//	weir:bell:DB           what all replicas hear; publications know no databases, so the name does
//	weir:bell:DB:REPLICA   what comes back to one of them
//
// Values carry a version in front: a reader that does not know it takes the value for absent.
//
//	L1|class|waited|taken|holder|token
//	E1|taken|outcome|token
//	F2|taken|outcome
//	N2|hard|must validate|soft|soft|soft|soft
//	B1|counter's name|number|at|outcome|replaced|message (bell.go)
//
// The fields of the hash of notes are "all"; a label (store/notes.go) for each tag, host or route; "prefix", with a line
// N2|…|PREFIX for each; and "last", the date of the last of them, or of the last lease where that is later.
const (
	// longest is the longest that any entry is kept, and so how long a note must be.
	longest = policy.LongestKeep
	// endedFor is how long a lease's end is remembered for those who missed the bell.
	endedFor = 10 * time.Second
	// staging is how long segments wait for the commit that names them. A replica that dies before it leaves no more.
	staging = 10 * time.Minute
	// readers is how long segments outlive the head that named them (R12).
	readers = 5 * time.Minute
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the atomic steps.
type scripts struct {
	take, renew, await, release, commit, purge, note *redis.Script
}

func loadScripts() (s scripts, err error) {
	shared, err := sources.ReadFile("scripts/shared.lua")
	if err != nil {
		return s, err
	}
	front := fmt.Sprintf("local longest, ended_for, tail, prefixes, softs, lapsed, revoked = %d, %d, %d, %d, %d, '%s', '%s'\n%s",
		longest.Milliseconds(), endedFor.Milliseconds(), tailSize, store.Prefixes, store.Softs, lapsed(), revoked(), shared)
	for name, to := range map[string]**redis.Script{
		"take": &s.take, "renew": &s.renew, "await": &s.await,
		"release": &s.release, "commit": &s.commit, "purge": &s.purge, "note": &s.note,
	} {
		step, err := sources.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			return s, err
		}
		*to = redis.NewScript(front + string(step))
	}
	return s, nil
}

// layout makes names.
type layout struct {
	prefix  string
	db      int
	cluster bool
}

// names are those of one key; and by what notes find it, as far as it tells.
type names struct {
	head, lease, fail, page, notes, bell, segments string

	place string
	host  store.Label
}

func (l layout) of(key policy.Key) names {
	page := sha256.Sum256([]byte(key.Primary))
	base := l.base(page[0])
	id := hex.EncodeToString(page[:])
	n := names{page: base + "page:" + id, notes: base + "notes", bell: base + "bell"}
	n.place, n.host = key.Place(), store.LabelOf(policy.Selector{Host: key.Host()})
	if !key.IsPage() {
		variant := sha256.Sum256([]byte(key.Variant))
		id += ":" + hex.EncodeToString(variant[:])
	}
	n.head, n.lease, n.fail, n.segments = base+"head:"+id, base+"lease:"+id, base+"fail:"+id, base+"seg:"+id
	return n
}

func (l layout) base(first byte) string {
	tag := "0"
	if l.cluster {
		tag = fmt.Sprintf("%02x", first)
	}
	return l.prefix + ":{" + tag + "}:"
}

// everywhere is the part of names that each tag has.
func (l layout) everywhere() []names {
	tags := 1
	if l.cluster {
		tags = 256
	}
	list := make([]names, tags)
	for i := range list {
		base := l.base(byte(i))
		list[i] = names{notes: base + "notes", bell: base + "bell"}
	}
	return list
}

func (l layout) channel() string { return l.prefix + ":bell:" + strconv.Itoa(l.db) }

func (l layout) replica(id string) string { return l.channel() + ":" + id }

func leaseValue(l store.Lease, class policy.Class) string {
	return fmt.Sprintf("L1|%d|1|%d|%s|%s", class, l.Taken, l.Holder, l.Token)
}

func parseLease(key policy.Key, value string) *store.Lease {
	part := strings.SplitN(value, "|", 6)
	if len(part) != 6 || part[0] != "L1" {
		return nil
	}
	taken, err := strconv.ParseUint(part[3], 10, 64)
	if err != nil {
		return nil
	}
	return &store.Lease{Key: key, Taken: taken, Holder: part[4], Token: part[5]}
}

// outcomeValue leaves out Taken, which lies beside it. Scripts compare it as a whole.
func outcomeValue(o store.Outcome) string {
	return fmt.Sprintf("%d,%d,%d,%d,%d", o.End, o.Fault.Kind, o.Fault.Status, o.Fault.RetryAfter, o.Remember)
}

func filled() string  { return outcomeValue(store.Outcome{End: store.Filled}) }
func lapsed() string  { return outcomeValue(store.Outcome{End: store.Lapsed}) }
func revoked() string { return outcomeValue(store.Outcome{End: store.Revoked}) }

// parseOutcome takes what it does not know for Lapsed: to compete for the next lease is always right.
func parseOutcome(value string) store.Outcome {
	var o store.Outcome
	_, err := fmt.Sscanf(value, "%d,%d,%d,%d,%d", &o.End, &o.Fault.Kind, &o.Fault.Status, &o.Fault.RetryAfter, &o.Remember)
	if err != nil || o.End > store.Revoked {
		return store.Outcome{End: store.Lapsed}
	}
	return o
}
