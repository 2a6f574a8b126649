package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// What is promised whatever goes wrong, and of whom.

// visitor is one request, and what came of it.
type visitor struct {
	n      int
	name   string // of the replica
	answer *answer
	stuck  error
}

func (c *chaos) breach(format string, args ...any) {
	text := fmt.Sprintf("%6.2fs ", time.Since(c.begun).Seconds()) + fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, text)
}

func (c *chaos) count(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what] += n
}

// troubled tells whether one of these faults lasted at some time between two; of one replica, or of any when it has no name.
func (c *chaos) troubled(from, to time.Time, whom string, what ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.troubles, func(t trouble) bool {
		its := whom == "" || t.whom == whom || t.whom == "" || t.whom == "redis"
		return its && (len(what) == 0 || slices.Contains(what, t.what)) && t.from.Before(to) && (t.to.IsZero() || t.to.After(from))
	})
}

func (v visitor) String() string {
	return fmt.Sprintf("%s at %s, begun %s: %s", pageName(v.n), v.name, v.answer.started.Format("05.000"), v.answer)
}

// Faults, by what they befall.
func ofReplicas() []string { return []string{"kill", "stop", "freeze"} }
func ofRedis() []string    { return []string{"cut", "pause", "blackhole", "flush", "crash"} }
func ofUpstream() []string { return []string{"errors", "resets", "truncates", "slow"} }

// judge holds one answer to what is promised.
func (c *chaos) judge(v visitor) {
	begun := v.answer.started
	end := begun.Add(v.answer.total)
	own := c.troubled(begun.Add(-time.Second), end, v.name, ofReplicas()...) // it may have looked up a door that closed
	switch a := v.answer; {
	case v.stuck != nil:
		c.breach("nothing came: %v", v)
		return
	case a.status == 0:
		if c.count("without an answer", 1); !own {
			c.breach("no answer from a replica that was well: %v", v)
		}
		return
	case a.status != http.StatusOK:
		c.judgeError(v)
		return
	case a.err != nil:
		ailed := c.troubled(begun.Add(-3*time.Second), end, "", ofUpstream()...) // what it joined began before it
		if c.count("cut in mid-body", 1); !ailed && !c.troubled(begun, end, "") {
			c.breach("cut, though nothing was wrong: %v", v)
		}
		return
	}
	version, err := versionOf(v.n, chaosPace(v.n).size, string(v.answer.body))
	if err != nil {
		c.breach("not the page: %v: %v", err, v)
		return
	}
	c.count("whole", 1)
	c.judgeAge(v, version)
	if !c.troubled(begun.Add(-chaosQuiet), end, "") {
		c.mu.Lock()
		c.counts["while all was well"]++
		c.slowest = max(c.slowest, v.answer.firstByte)
		c.mu.Unlock()
	}
}

// judgeError: there is none but what the upstream has caused, and none where a copy may stand in.
func (c *chaos) judgeError(v visitor) {
	c.count("errors", 1)
	begun, end := v.answer.started, v.answer.started.Add(v.answer.total)
	if !slices.Contains([]int{502, 503, 504}, v.answer.status) || !c.troubled(begun.Add(-chaosQuiet), end, "", ofUpstream()...) {
		c.breach("an error, though the upstream is well: %v", v)
		return
	}
	var good time.Time // when the upstream gave what could stand in
	version := 0
	c.oracle.see(v.n, func(p *oraclePage) {
		for v, sent := range p.sent { // what was under way when a purge came is not kept
			if begun := sent.Add(-3 * time.Second); v > p.purged && begun.After(p.purging) && begun.After(p.purgedAt) && sent.After(good) {
				version, good = v, sent
			}
		}
	})
	others := append(ofReplicas(), ofRedis()...)
	if version > 0 && begun.Sub(good) > 2*time.Second && !c.troubled(good.Add(-chaosQuiet), end, "", others...) {
		c.breach("an error, though version %d of %v before may stand in: %v", version, begun.Sub(good), v)
	}
}

// judgeAge: nothing is older than it may be, nor what was purged.
func (c *chaos) judgeAge(v visitor, version int) {
	var sent, purgedAt time.Time
	purged := 0
	c.oracle.see(v.n, func(p *oraclePage) { sent, purged, purgedAt = p.sent[version], p.purged, p.purgedAt })
	begun := v.answer.started
	// Ages count whole seconds. How long the answer itself took is not the page's age, as it may have been waited for.
	// Where the upstream fails, what is older stands in (stale_if_error), and for as long as its back-off lasts.
	if old := begun.Sub(sent); old > chaosStale(v.n)+2*time.Second && !c.troubled(begun.Add(-time.Second), begun, "", "freeze") &&
		!c.troubled(begun.Add(-2*chaosQuiet), begun.Add(v.answer.total), "", ofUpstream()...) {
		c.breach("version %d, %v after the upstream last said so: %v", version, old, v)
	}
	if version > purged || begun.Before(purgedAt.Add(50*time.Millisecond)) {
		return
	}
	// A replica that is cut off hears of nothing until it is back, nor one that is stopped.
	if c.count("late for a purge", 1); !c.troubled(begun.Add(-3*time.Second), begun, v.name, append(ofRedis(), "freeze")...) {
		c.breach("version %d, purged %v before: %v", version, begun.Sub(purgedAt), v)
	}
}

// crowded is told when a page is asked for that is being asked for, or the upstream has more requests than it may.
func (c *chaos) crowded(p oraclePage, now int) {
	at := time.Now()
	if p.now > 1 && at.Sub(p.purging) > 2*time.Second && !c.troubled(at.Add(-chaosQuiet), at, "") {
		c.breach("%s is asked for %d times at once", pageName(p.n), p.now)
	}
	if now > 3*fleetSlots && !c.troubled(at.Add(-2*time.Second), at, "", "kill") {
		c.breach("the upstream has %d requests, not %d", now, 3*fleetSlots)
	}
}

// aftermath: when all is well again, nothing is left of it.
func (c *chaos) aftermath(idle map[string]float64) {
	limit := time.Minute
	for name, r := range c.replicas {
		for _, gauge := range []string{"fills_running", "waiting_local", "waiting_remote"} {
			if err := poll(limit, func() error { return c.lookReplica(r, []string{gauge, "0"}) }); err != nil {
				c.breach("left behind at %s: %v", name, err)
			}
		}
		if err := poll(limit, func() error {
			n, err := r.metric("go_goroutines")
			if err == nil && n > idle[name]+2*fleetSlots+15 { // an idle connection to the upstream has two
				err = fmt.Errorf("%v goroutines, %v when nothing had happened yet", n, idle[name])
			}
			return err
		}); err != nil {
			c.breach("left behind at %s: %v", name, err)
		}
	}
	if err := poll(limit, func() error { return c.redis.say(leftovers()) }); err != nil {
		c.breach("left behind in Redis: %v", err)
	}
}

// leftovers is a script that fails when a lease runs that nobody can hold, or a key has no term.
func leftovers() string {
	return strings.Join(strings.Fields(`EVAL "for _, k in ipairs(redis.call('KEYS', '*')) do
		if redis.call('PTTL', k) < 0 then return redis.error_reply('no term: ' .. k) end
		if k:find(':lease:', 1, true) and redis.call('GET', k):sub(1, 1) == 'L' then return redis.error_reply('a lease: ' .. k) end
	end return redis.status_reply('OK')" 0`), " ")
}
