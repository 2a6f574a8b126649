package store

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/policy"
)

// Said is when notes were last written about something, by Mode; 0: never. They are moments of the store's time, which
// are compared with when leases were taken: what was asked for at or before a note is what the note is about.
type Said struct {
	Hard, MustValidate uint64
	Soft               Dates
}

// Says is what one note says.
func Says(mode Mode, at uint64) (s Said) {
	switch mode {
	case Hard:
		s.Hard = at
	case Soft:
		s.Soft.add(at)
	case MustValidate:
		s.MustValidate = at
	}
	return s
}

// Newest is the date of the latest of them.
func (s Said) Newest() uint64 { return max(s.Hard, s.Soft[0], s.MustValidate) }

// add is what both say.
func (s *Said) add(other Said) {
	s.Hard, s.MustValidate = max(s.Hard, other.Hard), max(s.MustValidate, other.MustValidate)
	for _, at := range other.Soft {
		s.Soft.add(at)
	}
}

// Softs is how many dates of soft purges are remembered.
const Softs = 4

// Dates are the last dates of soft purges, the latest first. The windows of an entry begin with the first that is about
// it, however many follow before somebody looks at it.
type Dates [Softs]uint64

func (d *Dates) add(at uint64) {
	for i, have := range d {
		if at == have {
			return
		}
		if at > have {
			copy(d[i+1:], d[i:])
			d[i] = at
			return
		}
	}
}

// since is from when on what was leased then is stale; 0: it is not. Where all that is remembered is about it, an
// earlier one may be forgotten: then its windows begin with its lease, as they may end too early but not too late.
func (d Dates) since(leased uint64) (first uint64) {
	for _, at := range d {
		if at < leased {
			return first
		}
		first = at
	}
	return leased
}

// Label stands for a tag, a host or a route where notes are kept and compared. Two that meet by chance are purged
// together, which costs a fetch.
type Label [8]byte

// LabelOf is the label of a selector by tag, host or route.
func LabelOf(sel policy.Selector) Label {
	switch {
	case sel.Tag != "":
		return label("tag", sel.Tag)
	case sel.Host != "":
		return label("host", sel.Host)
	}
	return label("route", sel.Route)
}

func label(kind, text string) (l Label) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind + " " + text)) // never fails
	binary.BigEndian.PutUint64(l[:], h.Sum64())
	return l
}

// Labels are by what notes find an entry whose key does not tell: its tags and its route.
func Labels(s *policy.Stored) []Label {
	list := make([]Label, 0, len(s.Tags)+1)
	for _, tag := range s.Tags {
		list = append(list, label("tag", tag))
	}
	if s.Route != "" {
		list = append(list, label("route", s.Route))
	}
	return list
}

// Prefixes is how many notes by prefix are kept, each of which is compared with every key that is looked up. One more
// is about the prefix's whole host (R8).
const Prefixes = 64

// Notes are what purges said of more than one page, for a store in this process. Writing one is the whole purge; what
// is stored learns of it when it is looked at.
type Notes struct {
	count    atomic.Uint64
	mu       sync.RWMutex
	labels   map[Label]Said
	prefixes []prefixNote
	all      Said
}

type prefixNote struct {
	prefix string
	Said
}

// Add writes a note about anything but a page.
func (n *Notes) Add(sel policy.Selector, mode Mode, at uint64) {
	said := Says(mode, at)
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.count.Add(1)
	switch {
	case sel.All:
		n.all.add(said)
	case sel.Prefix != "" && n.addPrefix(sel.Prefix, said):
	case sel.Prefix != "":
		n.addLabel(label("host", sel.PrefixHost()), said)
	default:
		n.addLabel(LabelOf(sel), said)
	}
}

func (n *Notes) addLabel(l Label, said Said) {
	if n.labels == nil {
		n.labels = make(map[Label]Said)
	}
	said.add(n.labels[l])
	n.labels[l] = said
}

// addPrefix reports whether there was room.
func (n *Notes) addPrefix(prefix string, said Said) bool {
	i := slices.IndexFunc(n.prefixes, func(p prefixNote) bool { return p.prefix == prefix })
	switch {
	case i >= 0:
		n.prefixes[i].add(said)
	case len(n.prefixes) == Prefixes:
		return false
	default:
		n.prefixes = append(n.prefixes, prefixNote{prefix, said})
	}
	return true
}

// Count is how many notes have ever been added: where it has not moved, nothing new was said.
func (n *Notes) Count() uint64 { return n.count.Load() }

// About is what notes say of an entry; of a nil one, what they say of whatever lies under its key, as of a lease.
func (n *Notes) About(key policy.Key, s *policy.Stored) Said {
	n.mu.RLock()
	defer n.mu.RUnlock()
	said := n.all
	if len(n.labels) > 0 {
		said.add(n.labels[label("host", key.Host())])
		if s != nil {
			for _, l := range Labels(s) {
				said.add(n.labels[l])
			}
		}
	}
	if len(n.prefixes) > 0 {
		place := key.Place()
		for i := range n.prefixes {
			if strings.HasPrefix(place, n.prefixes[i].prefix) {
				said.add(n.prefixes[i].Said)
			}
		}
	}
	return said
}

// Len is how many notes are kept.
func (n *Notes) Len() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.labels) + len(n.prefixes)
}

// Forget drops the notes whose latest date lies before then: nothing is left that they could be about.
func (n *Notes) Forget(before uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l, said := range n.labels {
		if said.Newest() < before {
			delete(n.labels, l)
		}
	}
	n.prefixes = slices.DeleteFunc(n.prefixes, func(p prefixNote) bool { return p.Newest() < before })
}

// Covers reports whether a selector is about what lies, or will lie, under a key: as far as the key tells where s is nil.
func Covers(sel policy.Selector, key policy.Key, s *policy.Stored) bool {
	switch {
	case sel.All:
		return true
	case sel.Page != "":
		return sel.Page == key.Primary
	case sel.Prefix != "":
		return strings.HasPrefix(key.Place(), sel.Prefix)
	case sel.Host != "":
		return sel.Host == key.Host()
	case s == nil:
		return false
	case sel.Tag != "":
		return slices.Contains(s.Tags, sel.Tag)
	}
	return sel.Route != "" && sel.Route == s.Route
}

// Obeyed is the entry as notes leave it: nil where a hard one is about it, itself where none is. moment turns the
// store's time into this process's.
func (s Said) Obeyed(e *Entry, moment func(uint64) time.Time) *Entry {
	if e.Leased <= s.Hard {
		return nil
	}
	if since := s.Soft.since(e.Leased); since > 0 {
		e = Dated(e, Soft, moment(since))
	}
	if s.MustValidate > 0 && e.Leased <= s.MustValidate {
		e = Dated(e, MustValidate, moment(s.MustValidate))
	}
	return e
}

// Dated is the entry as a purge of that moment leaves it. Soft: it is stale from then on, and its windows, as long as
// they were, begin then; so where there is no grace nothing stale is served. MustValidate: it is of use for a
// conditional request only, even to clients that take stale answers (RFC 9111 §4.4). What was over stays as it is; so does a signpost, which is no answer: it tells where the
// variants are.
func Dated(e *Entry, mode Mode, at time.Time) *Entry {
	d := *e
	if mode == MustValidate {
		d.NoStale = true
		for _, t := range []*time.Time{&d.FreshUntil, &d.RefreshUntil, &d.RescueUntil} {
			if t.After(at) {
				*t = at
			}
		}
	} else if early := d.FreshUntil.Sub(at); early > 0 {
		d.FreshUntil, d.RefreshUntil, d.RescueUntil = at, d.RefreshUntil.Add(-early), d.RescueUntil.Add(-early)
	}
	if e.Kind == policy.Signpost || d.FreshUntil.Equal(e.FreshUntil) && d.RefreshUntil.Equal(e.RefreshUntil) && d.RescueUntil.Equal(e.RescueUntil) && d.NoStale == e.NoStale {
		return e
	}
	return &d
}
