package store

import (
	"encoding/binary"
	"math"
	"net/http"
	"time"

	"weir/policy"
)

// cursor reads a head's rest. Once something does not fit it is bad, and reads nothing but zeros.
type cursor struct {
	b   []byte
	s   string // the same bytes
	at  int
	bad bool
}

func (c *cursor) rest(e *Entry) (bodySize int64) {
	c.labels()
	flags := c.byte()
	e.Alone, e.NoStale = flags&alone != 0, flags&noStale != 0
	e.Immutable, e.CloseDelimited = flags&immutable != 0, flags&closeDelimited != 0
	e.RefreshStated, e.RescueStated = flags&refreshStated != 0, flags&rescueStated != 0
	// A flag that is not known might forbid what this replica is about to do.
	c.bad = c.bad || flags&^known != 0
	e.Audience, e.Why = policy.Audience(c.byte()), policy.Reason(c.byte())
	status := c.uint()
	c.bad = c.bad || status > 999
	e.Status = int(status)
	e.Asked, e.Arrived = moment(c.uint()), moment(c.uint())
	size := c.uint()
	c.bad = c.bad || size > math.MaxInt64
	e.Age, e.Cost = time.Duration(c.int()), time.Duration(c.int())
	e.Span = policy.Span{Start: c.int(), End: c.int()}
	e.Total = c.int()
	e.Key = policy.Key{Primary: c.text(), Variant: c.text()}
	e.Vary, e.Tags, e.Route = c.list(), c.list(), c.text()
	e.Variants = c.variants()
	e.Header = c.header()
	return int64(size)
}

// labels are for scripts: whoever has read the tags and the route has read them too.
func (c *cursor) labels() {
	n := 8 * (int(c.byte())<<8 + int(c.byte()))
	if n > len(c.b)-c.at {
		c.bad = true
		return
	}
	c.at += n
}

func (c *cursor) variants() []policy.Variant {
	n := c.count()
	if n == 0 {
		return nil
	}
	variants := make([]policy.Variant, n)
	for i := range variants {
		variants[i] = policy.Variant{
			Names: c.list(), Values: c.list(),
			Language: c.text(), Coding: c.text(), Variant: c.text(),
			Arrived: moment(c.uint()),
		}
	}
	return variants
}

func (c *cursor) header() http.Header {
	values := make([]string, 0, c.count())
	names := c.count()
	if names == 0 {
		return nil
	}
	h := make(http.Header, names)
	for range names {
		name := c.text()
		from := len(values)
		for range c.count() {
			values = append(values, c.text())
		}
		// Full slices: whoever appends to one of them must not reach into the next.
		own := values[from:len(values):len(values)]
		_, twice := h[name]
		if c.bad || twice || len(values) > maxItems || !fitField(name, own) {
			c.bad = true
			return nil
		}
		h[name] = own
	}
	return h
}

func (c *cursor) list() []string {
	n := c.count()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = c.text()
	}
	return list
}

func (c *cursor) text() string {
	n := c.uint()
	if n > uint64(len(c.s)-c.at) {
		c.bad = true
		return ""
	}
	from := c.at
	c.at += int(n)
	return c.s[from:c.at]
}

// count is the length of a list, which no byte of the rest can be shorter than: nothing is allocated on a lie.
func (c *cursor) count() int {
	n := c.uint()
	if n > maxItems || n > uint64(len(c.b)-c.at) {
		c.bad = true
		return 0
	}
	return int(n)
}

func (c *cursor) byte() byte {
	if c.bad || c.at == len(c.b) {
		c.bad = true
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *cursor) uint() uint64 {
	v, n := binary.Uvarint(c.b[c.at:])
	if c.bad || n <= 0 {
		c.bad = true
		return 0
	}
	c.at += n
	return v
}

func (c *cursor) int() int64 {
	v, n := binary.Varint(c.b[c.at:])
	if c.bad || n <= 0 {
		c.bad = true
		return 0
	}
	c.at += n
	return v
}

// fitField reports whether a field may be written into a head by hand (R30): RFC 9110 §5.1 and §5.5.
func fitField(name string, values []string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !isToken(name[i]) {
			return false
		}
	}
	for _, v := range values {
		for i := range len(v) {
			if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
				return false
			}
		}
	}
	return true
}

// isToken: tchar of RFC 9110 §5.6.2.
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	case c == '!', '#' <= c && c <= '\'', c == '*', c == '+', c == '-', c == '.', '^' <= c && c <= '`', c == '|', c == '~':
		return true
	}
	return false
}
