package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"weir/policy"
)

// verdict is the body of /api/explain: what would happen, why, and what it was told from.
type verdict struct {
	Action     string   `json:"action"`
	Reason     string   `json:"reason"`
	Meaning    string   `json:"meaning"`
	Age        *float64 `json:"age_seconds,omitempty"` // of what is stored
	Collapse   *bool    `json:"collapse,omitempty"`    // whether others may share the fill
	Status     int      `json:"status,omitempty"`      // of a refusal
	Route      string   `json:"route,omitempty"`
	Upstream   string   `json:"upstream,omitempty"`
	Key        *key     `json:"key,omitempty"`
	Particular []string `json:"particular,omitempty"` // the fields by which the request tells who asks
	Loosened   []string `json:"loosened,omitempty"`   // what the route allows beyond the strict defaults
}

type key struct {
	Page    string   `json:"page"`
	Variant string   `json:"variant,omitempty"`
	Vary    []string `json:"vary,omitempty"`
}

func (a *admin) explain(w http.ResponseWriter, r *http.Request) {
	asked, err := imagined(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	plan, decision, err := a.Handler.Explain(asked)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "what is stored cannot be told: "+err.Error()+"; ask again when the store is back")
		return
	}
	answer(w, http.StatusOK, told(plan, decision))
}

// told puts into words whichever of plan and decision had the last say.
func told(plan policy.Plan, d policy.Decision) verdict {
	action, reason := plan.Action, plan.Reason
	v := verdict{Particular: plan.Particular}
	if plan.Action == policy.Lookup {
		action, reason = d.Action, d.Reason
		v.Key = &key{plan.Key.Primary, plan.Key.Variant, plan.Vary}
		switch d.Action {
		case policy.Serve, policy.ServeAndRefresh:
			v.Age = new(d.Age.Seconds())
		case policy.Validate, policy.Fetch:
			v.Collapse = &d.Collapse
		}
	}
	v.Action, v.Reason, v.Meaning = action.String(), reason.String(), reason.Meaning()
	if action == policy.Refuse {
		v.Status = reason.Status()
	}
	if plan.Route != nil {
		v.Route, v.Upstream = plan.Route.Name, plan.Route.Upstream
		for _, l := range plan.Route.Loosened() {
			v.Loosened = append(v.Loosened, l.Key+": "+l.Text)
		}
	}
	return v
}

// imagined is the request that the query describes, as a server would have received it from whoever asks.
func imagined(r *http.Request) (*http.Request, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read (%w): percent-encode url and header", err)
	}
	for name := range q {
		if name != "url" && name != "method" && name != "header" {
			return nil, fmt.Errorf("there is no parameter %q: use url, method and header, and percent-encode the & of an url", name)
		}
	}
	u, err := absolute(q.Get("url"))
	if err != nil {
		return nil, err
	}
	out, err := http.NewRequestWithContext(r.Context(), q.Get("method"), u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("no such request can be made: %w", err)
	}
	// A server sees no scheme and no host in the URL.
	if out.URL, err = url.ParseRequestURI(u.RequestURI()); err != nil {
		return nil, fmt.Errorf("no such request can be made: %w", err)
	}
	if out.Header, err = fields(q["header"]); err != nil {
		return nil, err
	}
	out.Host, out.RequestURI, out.RemoteAddr = u.Host, u.RequestURI(), r.RemoteAddr
	if u.Scheme == "https" {
		out.TLS = &tls.ConnectionState{}
	}
	return out, nil
}

// absolute reads a URL as a client outside would write it.
func absolute(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("url cannot be read (%w): give it whole, such as https://example.com/page", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("url %q is not whole: begin with http:// or https:// and a host", raw)
	}
	// No request line can hold a space; net/url escapes those of the path alone.
	u.RawQuery = strings.ReplaceAll(u.RawQuery, " ", "%20")
	return u, nil
}

// RFC 9110 §5.1 and §5.5: what a server lets through.
var (
	fieldName  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	fieldValue = regexp.MustCompile(`^(?s:[^\x00-\x08\x0a-\x1f\x7f]*)$`)
)

// fields reads header=Name:value parameters.
func fields(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !found || !fieldName.MatchString(name) || !fieldValue.MatchString(value) {
			return nil, fmt.Errorf("header %q is no field: write header=Name:value", line)
		}
		if strings.EqualFold(name, "Host") {
			return nil, errors.New("header Host is told by url: put the host there")
		}
		h.Add(name, value)
	}
	return h, nil
}
