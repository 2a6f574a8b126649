package policy

import "errors"

// ErrUnsatisfiable: the ranges asked for lie outside the body (416).
var ErrUnsatisfiable = errors.New("range not satisfiable")

// Ranges answers which spans of a body of size bytes the request asks for. nil, nil: the whole (no Range, a Range
// that If-Range or its syntax voids, or one that asks too much).
func Ranges(req Request, stored Stored, size int64) ([]Span, error) { panic("unbuilt") }
