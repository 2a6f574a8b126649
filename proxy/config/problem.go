package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong, where it stands, and what to write instead.
type Problem struct {
	Source string `json:"source"`         // the file, the variable, or the flag; "" when it is nowhere in particular
	Line   int    `json:"line,omitempty"` // of a file
	Key    string `json:"key,omitempty"`
	Text   string `json:"message"`
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Source != "" {
		b.WriteString(p.Source)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is everything that is wrong, in the order of the file. It is the error of Load.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// places remembers where each key was last set, so that what is found wrong later still gets its line.
type places map[string]Problem

// find is the place of the key, or of the nearest thing that holds it.
func (p places) find(key string) Problem {
	for k := key; ; {
		if at, ok := p[k]; ok {
			return at
		}
		if k == "" {
			return Problem{}
		}
		k = k[:max(strings.LastIndexAny(k, ".["), 0)]
	}
}
