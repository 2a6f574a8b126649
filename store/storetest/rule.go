package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/store"
)

// A rule says how a verb fails:
//
//	rule  = verb [which] ":" step { "then" step }
//	which = "#" n      the nth call only
//	      | "every" n  the nth, the 2nth, ...
//	step  = duration   the call takes so long
//	      | "done"     the store does it; what it answers is lost, unless this is the last step
//	      | fault      what the caller is told
//
// Without which it is every call; where no fault ends the rule, the store answers. So "commit #1: done then unavailable"
// is a commit that was written and whose reply was lost, and "await: 50ms then lapsed" a holder that dies.
type rule struct {
	text  string
	verb  string
	nth   int
	every int
	steps []step
}

// step is one thing that happens in a call: exactly one field is set.
type step struct {
	wait  time.Duration
	done  bool
	fault error
}

// ended is what a waiter is told by rule, on its way to Await as an error.
type ended store.End

func (e ended) Error() string { return "ended by rule" }

var (
	errMiss = errors.New("nothing, by rule")
	errHang = errors.New("no answer, by rule")
)

// faults are the words for what the caller is told, and the verbs that may say so.
func faults() map[string]struct {
	err   error
	verbs string
} {
	const all = "take renew commit release await purge watch check"
	return map[string]struct {
		err   error
		verbs string
	}{
		"miss":        {errMiss, "peek"},
		"lost":        {store.ErrLost, "renew commit"},
		"readonly":    {store.ErrReadOnly, "take renew commit release purge"},
		"unavailable": {store.ErrUnavailable, all},
		"hang":        {errHang, all}, // until the context ends
		"filled":      {ended(store.Filled), "await"},
		"failed":      {ended(store.Failed), "await"},
		"lapsed":      {ended(store.Lapsed), "await"},
		"revoked":     {ended(store.Revoked), "await"},
	}
}

// Faults lists a rule for every single fault: each verb failing at its first call, and at every call, in each way that
// it can, before the store has done what was asked and after.
func Faults() []string {
	var rules []string
	for word, f := range faults() {
		for verb := range strings.FieldsSeq(f.verbs) {
			for _, which := range []string{"", " #1"} {
				rules = append(rules, verb+which+": "+word)
				if verb != "peek" && verb != "await" && verb != "watch" {
					rules = append(rules, verb+which+": done then "+word)
				}
			}
		}
	}
	slices.Sort(rules)
	return rules
}

// covers reports whether the rule is for the nth call of its verb.
func (r rule) covers(n int) bool {
	switch {
	case r.nth > 0:
		return n == r.nth
	case r.every > 0:
		return n%r.every == 0
	}
	return true
}

func parseRule(text string) (rule, error) {
	r := rule{text: text}
	left, right, ok := strings.Cut(text, ":")
	words := strings.Fields(left)
	if !ok || len(words) == 0 {
		return rule{}, fmt.Errorf("rule %q: want \"verb: fault\", \"verb #2: fault\" or \"verb every 3: fault\"", text)
	}
	r.verb = words[0]
	if !slices.Contains(verbs(), r.verb) {
		return rule{}, fmt.Errorf("rule %q: no verb %q: want one of %s", text, r.verb, strings.Join(verbs(), ", "))
	}
	if err := r.which(words[1:]); err != nil {
		return rule{}, fmt.Errorf("rule %q: %w", text, err)
	}
	for part := range strings.SplitSeq(right, " then ") {
		if len(r.steps) > 0 && r.steps[len(r.steps)-1].fault != nil {
			return rule{}, fmt.Errorf("rule %q: nothing happens after a fault", text)
		}
		s, err := parseStep(r.verb, strings.TrimSpace(part))
		if err != nil {
			return rule{}, fmt.Errorf("rule %q: %w", text, err)
		}
		r.steps = append(r.steps, s)
	}
	return r, nil
}

func (r *rule) which(words []string) (err error) {
	switch {
	case len(words) == 0:
		return nil
	case len(words) == 1 && strings.HasPrefix(words[0], "#"):
		r.nth, err = strconv.Atoi(words[0][1:])
	case len(words) == 2 && words[0] == "every":
		r.every, err = strconv.Atoi(words[1])
	default:
		err = errors.New("unknown")
	}
	if err != nil || r.nth+r.every < 1 {
		return fmt.Errorf("which call is %q? want \"#2\" or \"every 3\", counted from 1", strings.Join(words, " "))
	}
	return nil
}

func parseStep(verb, word string) (step, error) {
	if word == "done" {
		return step{done: true}, nil
	}
	if f, ok := faults()[word]; ok {
		if !slices.Contains(strings.Fields(f.verbs), verb) {
			return step{}, fmt.Errorf("%s cannot end as %s: that is for %s", verb, word, strings.Join(strings.Fields(f.verbs), ", "))
		}
		return step{fault: f.err}, nil
	}
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return step{}, fmt.Errorf("no step %q: want a duration, done, or one of %s",
			word, strings.Join(slices.Sorted(maps.Keys(faults())), ", "))
	}
	return step{wait: d}, nil
}

func verbs() []string {
	return []string{"peek", "take", "renew", "commit", "release", "await", "purge", "watch", "check"}
}
