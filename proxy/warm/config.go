package warm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"weir/policy"
)

// most is how many pages of one job may be under way at once.
const most = 64

// Config is one job of the file: a list of pages, and how often they are brought anew.
type Config struct {
	Name        string   `mapstructure:"name"`
	URLs        []string `mapstructure:"urls"`    // a path alone is on the site of the URL before it
	Sitemap     string   `mapstructure:"sitemap"` // or the URL of one
	File        string   `mapstructure:"file"`    // or a file that has a URL in each line
	Headers     []string `mapstructure:"headers"` // of the requests: "Name: value"
	Every       Every    `mapstructure:"every"`
	Concurrency int      `mapstructure:"concurrency"` // pages at once
}

// Validate reports what is wrong with a job, whatever the routes are. Each fault begins with its key.
func (c Config) Validate() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Name == "" || strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		add("name: %q is no name: write a word, for `weir warm`, logs and metrics", c.Name)
	}
	named := 0
	for _, is := range []bool{len(c.URLs) > 0, c.Sitemap != "", c.File != ""} {
		if is {
			named++
		}
	}
	switch {
	case named == 0:
		add("names no pages: write urls, sitemap or file")
	case named > 1:
		add("names pages in %d ways: keep one of urls, sitemap and file, and write another job for the rest", named)
	}
	for i, line := range c.Headers {
		if _, _, err := field(line); err != nil {
			add("headers[%d]: %w", i, err)
		}
	}
	switch {
	case c.Concurrency < 1:
		add("concurrency: %d would warm nothing: write 4, or at least 1", c.Concurrency)
	case c.Concurrency > most:
		add("concurrency: %d pages at once would crowd out clients: write 4, or %d at most", c.Concurrency, most)
	}
	return errors.Join(faults...)
}

// field reads a header line.
func field(line string) (name, value string, err error) {
	name, value, found := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			found = false
		}
	}
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	switch {
	case !found || name == "" || strings.ContainsFunc(value, control):
		return "", "", fmt.Errorf("%q is no field: write Name: value", line)
	case strings.EqualFold(name, "Host"):
		return "", "", errors.New("the host is told by the URL: write it there")
	}
	return name, value, nil
}

// header is the requests' own. Lines that are none have been told by Validate.
func (c Config) header() http.Header {
	h := http.Header{}
	for _, line := range c.Headers {
		if name, value, err := field(line); err == nil {
			h.Add(name, value)
		}
	}
	return h
}

// Served reports what is wrong with a job whose pages these routes are to serve: a page that none of them does, and a
// list that cannot be read.
func (c Config) Served(p *policy.Policy) error {
	list, faults := c.listed()
	for _, one := range list {
		if plan := c.plan(p, one.url); plan.Action == policy.Refuse && len(faults) < mostFaults {
			faults = append(faults, fmt.Errorf("%s: %s: %s: mend the URL, or write a route for it", one.at, one.url, plan.Reason.Meaning()))
		}
	}
	return errors.Join(faults...)
}

// Doubts reports what is suspicious in a job that is right: pages that are served and never kept.
func (c Config) Doubts(p *policy.Policy) error {
	list, _ := c.listed()
	var doubts []error
	told := map[string]bool{}
	doubt := func(at, why string) {
		if !told[at+why] && len(doubts) < mostFaults {
			told[at+why] = true
			doubts = append(doubts, fmt.Errorf("%s: %s", at, why))
		}
	}
	for _, one := range list {
		plan := c.plan(p, one.url)
		switch {
		case plan.Action == policy.Pass:
			doubt(one.at, fmt.Sprintf("%s cannot be kept, so it is not warmed: %s", one.url, plan.Reason.Meaning()))
		case len(plan.Particular) > 0:
			doubt("headers", fmt.Sprintf("%s tells who asks, so only answers that state their own lifetime are kept: drop it, or name it under ignore on route %s",
				strings.Join(plan.Particular, ", "), plan.Route.Name))
		}
	}
	return errors.Join(doubts...)
}

// plan is what the routes say of a page.
func (c Config) plan(p *policy.Policy, page string) policy.Plan {
	r, err := request(context.Background(), page, c.header())
	if err != nil {
		return policy.Plan{Action: policy.Refuse, Reason: policy.BadRequest}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return p.Plan(policy.Request{Method: r.Method, Scheme: scheme, Host: r.Host, URL: r.URL, Header: r.Header})
}
