package policy

import "errors"

// ErrNoPage: no route serves the URL.
var ErrNoPage = errors.New("no route serves this URL")

// Selector names what a purge covers: exactly one field is set.
type Selector struct {
	Page                     string // Key.Primary; Pages turns a URL into those it may have
	Tag, Prefix, Host, Route string
	All                      bool
}

// Invalidates lists what a non-error answer to an unsafe request makes void (RFC 9111 §4.4): the target URI,
// and Location and Content-Location where they share its origin. Only pages that a cacheable route serves.
func (p *Policy) Invalidates(plan Plan, res Response) []Selector { panic("unbuilt") }

// Pages lists every page an absolute URL may be kept as: one selector for each upstream whose routes take it,
// under both schemes (R5). ErrNoPage: no route serves it.
func (p *Policy) Pages(rawURL string) ([]Selector, error) { panic("unbuilt") }
