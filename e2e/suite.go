package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// trial is one definition of the public suite http-tests/cache-tests: a few requests, the upstream's answer to each,
// and what must be seen at both ends. Members that a definition does not have are nil or empty.
type trial struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind"` // required, optimal or check
	DependsOn []string `json:"depends_on"`
	Steps     []step   `json:"requests"`
}

type step struct {
	Method     string   `json:"request_method"`
	Header     []entry  `json:"request_headers"`
	Body       *string  `json:"request_body"`
	Filename   string   `json:"filename"`
	Query      string   `json:"query_arg"`
	Redirect   string   `json:"redirect"`
	MagicIMS   bool     `json:"magic_ims"`
	RFC850     []string `json:"rfc850date"`
	PauseAfter bool     `json:"pause_after"`
	Setup      bool     `json:"setup"`
	SetupTests []string `json:"setup_tests"`

	Status         *phrase        `json:"response_status"`
	Reply          []entry        `json:"response_headers"`
	ReplyBody      optional[text] `json:"response_body"`
	Pause          float64        `json:"response_pause"` // seconds
	Interim        []interim      `json:"interim_responses"`
	MagicLocations bool           `json:"magic_locations"`
	Disconnect     bool           `json:"disconnect"`

	WantType           string         `json:"expected_type"`
	WantStatus         optional[int]  `json:"expected_status"`
	WantHeader         []entry        `json:"expected_response_headers"`
	WantHeaderMissing  []entry        `json:"expected_response_headers_missing"`
	WantInterim        []interim      `json:"expected_interim_responses"`
	WantText           optional[text] `json:"expected_response_text"`
	CheckBody          optional[bool] `json:"check_body"`
	WantRequest        []entry        `json:"expected_request_headers"`
	WantRequestMissing []entry        `json:"expected_request_headers_missing"`
	WantMethod         string         `json:"expected_method"`
}

type text string

// optional tells a member that is null from one that is not there.
type optional[T any] struct {
	given bool
	value *T // nil: null
}

func (o *optional[T]) UnmarshalJSON(data []byte) error {
	o.given = true
	return json.Unmarshal(data, &o.value)
}

// entry is one header in a definition: a name, [name, value], [name, value, false] or [name, operator, operand].
type entry struct {
	name    string
	value   *string // nil: only the name counts
	seconds *int    // the value was a number
	third   any     // false, an operand, or nil
}

func (e *entry) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &e.name) == nil {
		return nil
	}
	var parts []any
	if err := json.Unmarshal(data, &parts); err != nil || len(parts) < 2 {
		return fmt.Errorf("a header is a name or a list of two or three: %s (%w)", data, err)
	}
	e.name, _ = parts[0].(string)
	switch v := parts[1].(type) {
	case string:
		v = latin1(v)
		e.value = &v
	case float64:
		n := int(v)
		decimal := strconv.Itoa(n)
		e.value, e.seconds = &decimal, &n
	default:
		return fmt.Errorf("the value of header %s is neither text nor number", e.name)
	}
	if len(parts) > 2 {
		e.third = parts[2]
	}
	return nil
}

// unchecked tells whether the client need not receive this header.
func (e entry) unchecked() bool { return e.third == false || strings.EqualFold(e.name, "Date") }

// latin1 is how the suite's own server writes obs-text.
func latin1(s string) string {
	bytes := make([]byte, 0, len(s))
	for _, r := range s {
		bytes = append(bytes, byte(r))
	}
	return string(bytes)
}

type phrase struct {
	code int
	text string
}

func (p *phrase) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.code, &p.text})
}

type interim struct {
	code   int
	header []entry
}

func (i *interim) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&i.code, &i.header})
}

func readSuite(path string) ([]trial, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w\nExport the definitions of the public suite http-tests/cache-tests, then: make conformance SUITE=FILE", err)
	}
	var groups []struct{ Tests []trial }
	if err == nil {
		err = json.Unmarshal(data, &groups)
	}
	var all []trial
	for _, group := range groups {
		all = append(all, group.Tests...)
	}
	return all, err
}

// path is where a step's request goes, for a trial under this id.
func (s step) path(id string) string {
	path := "/test/" + id
	if s.Filename != "" {
		path += "/" + s.Filename
	}
	if s.Query != "" {
		path += "?" + s.Query
	}
	return path
}

// at gives a header its value at a moment: a number in a date's place is that many seconds from it.
func (s step) at(e entry, now time.Time) string {
	dates := []string{"date", "expires", "last-modified", "if-modified-since", "if-unmodified-since"}
	name := strings.ToLower(e.name)
	if e.seconds == nil || !slices.Contains(dates, name) {
		return *e.value
	}
	form := http.TimeFormat
	if slices.ContainsFunc(s.RFC850, func(n string) bool { return strings.EqualFold(n, name) }) {
		form = strings.Replace(time.RFC850, "MST", "GMT", 1)
	}
	return now.Add(time.Duration(*e.seconds) * time.Second).UTC().Format(form)
}

func (s step) resolve(entries []entry, now time.Time) fields {
	var f fields
	for _, e := range entries {
		f = append(f, field{e.name, s.at(e, now)})
	}
	return f
}

// body is what the upstream sends for a step.
func (s step) body(id string) string {
	if s.ReplyBody.value != nil {
		return string(*s.ReplyBody.value)
	}
	return id
}
