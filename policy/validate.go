package policy

import "net/http"

// Validators are the conditional fields that ask upstream whether stored still holds.
func Validators(stored Stored) http.Header { panic("unbuilt") }

// NotModified reports whether the client's own copy, as its conditionals describe it, is the stored one (RFC 9110 §13).
func NotModified(req Request, stored Stored) bool { panic("unbuilt") }

// Freshen is Admit for a 304: the stored answer with what the 304 says of it (RFC 9111 §4.3.4).
func (p *Policy) Freshen(plan Plan, stored Stored, res304 Response, at Moment) Admission {
	panic("unbuilt")
}
