package warm

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

const (
	// mostPages is how many pages a job keeps warm at most; it is what one sitemap may hold.
	mostPages = 50_000
	// mostFaults of a list are told; the rest is like them.
	mostFaults = 20
	// longestLine of a file, and longest URL of a sitemap: more than servers take.
	longestLine = 8 << 10
)

// listing is a page as it is listed.
type listing struct {
	at  string // its key, and for a file's the line
	url string // whole
}

// pages reads the whole list. A sitemap is asked for by way of h, as any page is.
func (c Config) pages(ctx context.Context, h http.Handler) ([]string, error) {
	if c.Sitemap != "" {
		return c.mapped(ctx, h)
	}
	list, faults := c.listed()
	urls := make([]string, len(list))
	for i, one := range list {
		urls[i] = one.url
	}
	return urls, errors.Join(faults...)
}

// listed is what the job itself names: its urls, the lines of its file, or its sitemap, which is a page like others.
func (c Config) listed() ([]listing, []error) {
	l := lister{seen: map[string]bool{}}
	for i, text := range c.URLs {
		l.add(fmt.Sprintf("urls[%d]", i), text)
	}
	if c.Sitemap != "" {
		l.add("sitemap", c.Sitemap)
	}
	if c.File != "" {
		l.readFile(c.File)
	}
	return l.list, l.faults
}

// lister gathers a list.
type lister struct {
	site   string // of the URL before, for paths alone
	seen   map[string]bool
	list   []listing
	faults []error
}

func (l *lister) fault(format string, args ...any) {
	if len(l.faults) < mostFaults {
		l.faults = append(l.faults, fmt.Errorf(format, args...))
	}
}

func (l *lister) add(at, text string) {
	whole := text
	if strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") {
		whole = l.site + text
	}
	u, err := parse(whole)
	switch {
	case whole == text && err != nil && text != "" && text[0] == '/':
		l.fault("%s: %q names no site, and host and scheme are part of a page's name: write it whole, https://www.example.com%[2]s, or after one that is", at, text)
	case err != nil:
		l.fault("%s: %w", at, err)
	default:
		l.site = u.Scheme + "://" + u.Host
		if !l.seen[whole] {
			l.seen[whole] = true
			l.list = append(l.list, listing{at, whole})
		}
	}
}

// readFile reads a URL from each line; what follows # is for people.
func (l *lister) readFile(name string) {
	f, err := os.Open(name)
	if err != nil {
		if path := (*os.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		l.fault("file: %s cannot be read: %w", name, err)
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if len(l.list) == mostPages {
			l.fault("file: %s:%d: a job keeps %d pages warm at most: write a second one", name, n, mostPages)
			return
		}
		l.add(fmt.Sprintf("file: %s:%d", name, n), text)
	}
	if err := lines.Err(); err != nil {
		l.fault("file: %s cannot be read: %w", name, err)
	}
}

// parse reads a URL as clients write it.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is no URL: write it as clients do, https://www.example.com/page", text)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is not whole: begin with http:// or https:// and a host", text)
	case u.User != nil:
		return nil, fmt.Errorf("%q names a user: credentials go into headers", text)
	}
	return u, nil
}

// request is how a server would have received a client's request for the page.
func request(ctx context.Context, page string, h http.Header) (*http.Request, error) {
	u, err := parse(page)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	// A server sees no scheme and no host in the URL.
	if r.URL, err = url.ParseRequestURI(u.RequestURI()); err != nil {
		return nil, err
	}
	r.RequestURI, r.Header = u.RequestURI(), h
	if u.Scheme == "https" {
		r.TLS = &tls.ConnectionState{}
	}
	return r, nil
}
