package warm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// web serves documents by path.
type web map[string]string

func (w web) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	text, there := w[r.URL.Path]
	if !there {
		out.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = out.Write([]byte(text))
}

func packed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	z.Close()
	return b.String()
}

const first = `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url><loc>http://weir.test/?a=1&amp;b=2</loc><lastmod>2026-11-30</lastmod></url>
  <url><loc>
    http://weir.test/b </loc><image:image><image:loc>http://weir.test/b.png</image:loc></image:image></url>
  <url><loc>http://other.test/c</loc></url>
  <url><loc>https://weir.test/d</loc></url>
  <url><loc>/e</loc></url>
  <url><loc>http://weir.test/b</loc></url>
</urlset>`

// A sitemap's pages are those of its own site, each once; an index leads to more, packed or not, and no further.
func TestSitemap(t *testing.T) {
	w := web{
		"/first.xml": first,
		"/index.xml": `<sitemapindex><sitemap><loc>http://weir.test/first.xml</loc></sitemap><sitemap><loc>http://weir.test/second.xml.gz</loc></sitemap>
			<sitemap><loc>http://other.test/third.xml</loc></sitemap><sitemap><loc>http://weir.test/index.xml</loc></sitemap></sitemapindex>`,
		"/second.xml.gz": packed(`<urlset><url><loc>http://weir.test/f</loc></url></urlset>`),
	}
	for path, want := range map[string][]string{
		"/first.xml": {"http://weir.test/?a=1&b=2", "http://weir.test/b"},
		"/index.xml": {"http://weir.test/?a=1&b=2", "http://weir.test/b", "http://weir.test/f"},
	} {
		got, err := Config{Sitemap: "http://weir.test" + path}.pages(t.Context(), w)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", path, got, err, want)
		}
	}
}

func TestBadSitemaps(t *testing.T) {
	entry := "<url><loc>http://weir.test/</loc></url>"
	w := web{
		"/html":     "<!DOCTYPE html><html><body>404</body></html>",
		"/empty":    "",
		"/cut":      "<urlset>" + entry,
		"/entities": `<!DOCTYPE urlset [<!ENTITY a "http://weir.test/"><!ENTITY b SYSTEM "file:///etc/passwd">]><urlset><url><loc>&a;</loc></url></urlset>`,
		"/unknown":  "<urlset><url><loc>&a;</loc></url></urlset>",
		"/latin":    `<?xml version="1.0" encoding="ISO-8859-1"?><urlset>` + entry + "</urlset>",
		"/deep":     "<urlset>" + strings.Repeat("<a>", 1000),
		"/wide":     "<urlset " + strings.Repeat(`a="b" `, mostPiece) + ">" + entry + "</urlset>",
		"/packed":   "\x1f\x8bnonsense",
		"/index":    "<sitemapindex><sitemap><loc>http://weir.test/none</loc></sitemap></sitemapindex>",
	}
	for path := range w {
		if got, err := (Config{Sitemap: "http://weir.test" + path}).pages(t.Context(), w); err == nil {
			t.Errorf("%s: %v, and no error", path, got)
		}
	}
}

// However long a sitemap is, it is read so far and no further.
func TestSitemapIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("<urlset>")
	for i := range mostPages + 10 {
		fmt.Fprintf(&b, "<url><loc>http://weir.test/%d</loc></url>", i)
	}
	b.WriteString("</urlset>")
	got, err := Config{Sitemap: "http://weir.test/long"}.pages(t.Context(), web{"/long": b.String()})
	if err != nil || len(got) != mostPages {
		t.Errorf("%d pages, %v; want %d", len(got), err, mostPages)
	}
	for _, r := range []*ration{{left: 10, piece: 100}, {left: 100, piece: 10}} {
		r.r = strings.NewReader(b.String())
		if text, err := io.ReadAll(r); len(text) != 10 || !errors.Is(err, errTooLarge) {
			t.Errorf("%d bytes, %v; want 10, %v", len(text), err, errTooLarge)
		}
	}
}

func FuzzSitemap(f *testing.F) {
	f.Add([]byte(first))
	f.Add([]byte(packed(first)))
	f.Add([]byte("<sitemapindex><sitemap><loc>http://weir.test/first.xml</loc></sitemap></sitemapindex>"))
	f.Add([]byte("<urlset><url><loc>http://weir.test:80/</loc><loc>http://WEIR.test/%zz</loc></url></urlset><urlset/>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _ := Config{Sitemap: "http://weir.test/sitemap.xml"}.pages(t.Context(), web{"/sitemap.xml": string(text)})
		for _, page := range got {
			r, err := request(t.Context(), page, nil)
			if err != nil || !strings.EqualFold(r.Host, "weir.test") || r.TLS != nil {
				t.Errorf("%q is kept warm: %v", page, err)
			}
		}
	})
}
