package warm

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

const (
	// mostBytes of one sitemap are read, unpacked; the protocol allows as many.
	mostBytes = 50 << 20
	// mostPiece is how long one token may be: a tag of megabytes would be held whole.
	mostPiece = 64 << 10
	// deepest nesting; the protocol's own is 3, and extensions have a few more.
	deepest = 16
)

var (
	errTooLarge = errors.New("it is larger than a sitemap may be")
	errNoMap    = errors.New("it is no sitemap")
)

// mapped reads a sitemap, or those that an index names; an index within an index is not followed. What lies on another
// site is left out: who writes a sitemap has no say there.
func (c Config) mapped(ctx context.Context, h http.Handler) ([]string, error) {
	site, err := parse(c.Sitemap)
	if err != nil {
		return nil, err
	}
	m := mapper{ctx: ctx, handler: h, header: c.header(), site: site, seen: map[string]bool{}}
	index, err := m.read(c.Sitemap)
	for _, one := range index {
		if err == nil && len(m.pages) < mostPages {
			_, err = m.read(one)
		}
	}
	return m.pages, err
}

// mapper reads the sitemaps of one site.
type mapper struct {
	ctx     context.Context
	handler http.Handler
	header  http.Header
	site    *url.URL
	seen    map[string]bool
	pages   []string
}

// read asks for a sitemap as any client would, and answers the sitemaps that it names in turn.
func (m *mapper) read(page string) (index []string, err error) {
	r, err := request(m.ctx, page, m.header)
	if err != nil {
		return nil, err
	}
	body, err := fetch(m.handler, r)
	if err != nil {
		return nil, fmt.Errorf("sitemap %s: %w", page, err)
	}
	defer body.Close()
	err = parseSitemap(body, func(kind, loc string) bool {
		u, err := parse(loc)
		if err != nil || u.Scheme != m.site.Scheme || !strings.EqualFold(u.Host, m.site.Host) || m.seen[loc] {
			return true
		}
		m.seen[loc] = true
		if kind == "sitemap" {
			index = append(index, loc)
		} else {
			m.pages = append(m.pages, loc)
		}
		return len(index)+len(m.pages) < mostPages
	})
	if err != nil {
		err = fmt.Errorf("sitemap %s: %w", page, err)
	}
	return index, err
}

// parseSitemap calls found with each URL, of a url or of a sitemap, until it returns false. Nothing in a document is
// believed but its own bytes: no entities, no other encodings.
func parseSitemap(r io.Reader, found func(kind, loc string) bool) error {
	text, err := unpacked(r)
	if err != nil {
		return err
	}
	bytes := &ration{r: text, left: mostBytes}
	d := xml.NewDecoder(bytes)
	var path []string
	var loc strings.Builder
	for {
		bytes.piece = mostPiece
		token, err := d.Token()
		if err == io.EOF && path != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errNoMap, err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			path = append(path, t.Name.Local)
			if len(path) > deepest || len(path) == 1 && path[0] != "urlset" && path[0] != "sitemapindex" {
				return errNoMap
			}
			loc.Reset()
		case xml.CharData:
			if isLoc(path) && loc.Len() < longestLine {
				loc.Write(t)
			}
		case xml.EndElement:
			if isLoc(path) && loc.Len() < longestLine && !found(path[1], strings.TrimSpace(loc.String())) {
				return nil
			}
			path = path[:len(path)-1]
		case xml.Directive:
			return fmt.Errorf("%w: it defines entities", errNoMap)
		}
	}
}

func isLoc(path []string) bool {
	return len(path) == 3 && path[2] == "loc" && (path[1] == "url" || path[1] == "sitemap")
}

// unpacked is the document, whether it is packed by gzip or not.
func unpacked(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); string(magic) != "\x1f\x8b" {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoMap, err)
	}
	return z, nil
}

// ration is a reader that gives so much in all, and so much for a piece.
type ration struct {
	r           io.Reader
	left, piece int
}

func (r *ration) Read(p []byte) (int, error) {
	most := min(r.left, r.piece)
	if most <= 0 {
		return 0, errTooLarge
	}
	n, err := r.r.Read(p[:min(len(p), most)])
	r.left, r.piece = r.left-n, r.piece-n
	return n, err
}

// fetch asks h as a client without a socket does, and answers the body of a 200.
func fetch(h http.Handler, r *http.Request) (io.ReadCloser, error) {
	body, in := io.Pipe()
	w := &answer{header: http.Header{}, body: in, head: make(chan struct{})}
	go func() {
		defer func() {
			var err error
			if p := recover(); p != nil {
				err = fmt.Errorf("the answer broke off: %v", p)
			}
			w.end(err)
		}()
		h.ServeHTTP(w, r)
	}()
	select {
	case <-w.head:
	case <-r.Context().Done():
		body.Close()
		return nil, r.Context().Err()
	}
	switch {
	case w.fault != nil:
		return nil, w.fault
	case w.status != http.StatusOK:
		body.Close()
		return nil, fmt.Errorf("answered %d", w.status)
	}
	return body, nil
}

// answer is an http.ResponseWriter whose body is read elsewhere.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	head   chan struct{}
	status int   // not to be read before head is closed
	fault  error // it broke off before its head
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.once.Do(func() {
			a.status = status
			close(a.head)
		})
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// end is the handler's: what was not written by now will not be.
func (a *answer) end(err error) {
	a.once.Do(func() {
		a.status, a.fault = http.StatusOK, err // net/http's own, of a handler that writes nothing
		close(a.head)
	})
	a.body.CloseWithError(err)
}
