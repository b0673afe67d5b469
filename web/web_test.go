package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPageNamesFilesThatAreThere(t *testing.T) {
	page := get(t, "GET", "/")
	html := text(t, page.Body)
	if h := page.Header; page.StatusCode != 200 || h.Get("Content-Type") != types[".html"] || h.Get("Cache-Control") != "no-cache" {
		t.Fatalf("got %d %v, want the page", page.StatusCode, page.Header)
	}
	names := regexp.MustCompile(`(?:href|src)="(/assets/[^"]*)"`).FindAllStringSubmatch(html, -1)
	if len(names) != 6 {
		t.Fatalf("got %q, want three icons, a style and two scripts", names)
	}
	for _, name := range names {
		file := get(t, "GET", name[1])
		if file.StatusCode != 200 || !strings.Contains(file.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: got %d %v, want a file to keep", name[1], file.StatusCode, file.Header)
		}
	}
	manifest := get(t, "GET", "/manifest.webmanifest")
	if got := manifest.Header; got.Get("Content-Type") != "application/manifest+json" || got.Get("Cache-Control") != "no-cache" {
		t.Errorf("got %v, want a manifest that is asked for each time", got)
	}
	icons := regexp.MustCompile(`"(/assets/[^"]*)"`).FindAllStringSubmatch(text(t, manifest.Body), -1)
	if len(icons) != 4 {
		t.Errorf("got the icons %q, want four", icons)
	}
	for _, name := range icons {
		if got := get(t, "GET", name[1]); got.StatusCode != 200 {
			t.Errorf("%s: got %d, want an icon", name[1], got.StatusCode)
		}
	}
	worker := get(t, "GET", "/sw.js")
	if got := worker.Header.Get("Cache-Control"); got != "no-cache" || strings.Contains(text(t, worker.Body), `"fetch"`) {
		t.Errorf("got Cache-Control %q, want a service worker that is asked for and answers no requests", got)
	}
	if got := get(t, "GET", "/assets/licenses.txt").Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("got Cache-Control %q for a name without a hash, want no-cache", got)
	}
}

func TestPageHasNoInlineCode(t *testing.T) {
	page := get(t, "GET", "/")
	html := text(t, page.Body)
	for _, inline := range []string{"<style", "style=", " on", "javascript:"} {
		if strings.Contains(strings.SplitN(html, "<noscript>", 2)[0], inline) {
			t.Errorf("got a page with %q, want none", inline)
		}
	}
	if regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(html) {
		t.Error("got a script in the page, want none")
	}
	policy := page.Header.Get("Content-Security-Policy")
	const own = "default-src 'none'; script-src 'self'; style-src 'self';"
	if !strings.HasPrefix(policy, own) || strings.Contains(policy, "unsafe") {
		t.Errorf("got %q, want nothing but files of the server", policy)
	}
}

func TestFilesAreCompressedAndRevalidated(t *testing.T) {
	plain := get(t, "GET", "/sw.js")
	packed := get(t, "GET", "/sw.js", "Accept-Encoding", "gzip, br")
	if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("got %v, want gzip", packed.Header)
	}
	unpacked, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, unpacked), text(t, plain.Body); got != want {
		t.Errorf("got %q from gzip, want %q", got, want)
	}
	again := get(t, "GET", "/sw.js", "If-None-Match", plain.Header.Get("ETag"))
	if again.StatusCode != 304 || text(t, again.Body) != "" {
		t.Errorf("got %d for a file that the browser has, want 304", again.StatusCode)
	}
	head := get(t, "HEAD", "/sw.js")
	if text(t, head.Body) != "" || head.ContentLength != plain.ContentLength {
		t.Errorf("got a HEAD with a body or length %d, want %d", head.ContentLength, plain.ContentLength)
	}
}

func TestLinksOfNotificationsLeadToTheInbox(t *testing.T) {
	r := get(t, "GET", "/inbox?session=a%20b&request=r%261")
	if got := r.Header.Get("Location"); r.StatusCode != 302 || got != "/#inbox&session=a%20b&request=r%261" {
		t.Errorf("got %d %q", r.StatusCode, got)
	}
}

func TestOtherPathsAreRefused(t *testing.T) {
	paths := []string{"/index.html", "/assets/", "/assets/none.js", "/assets/../web.go", "/dist/index.html", "//"}
	for _, path := range paths {
		if got := get(t, "GET", path); got.StatusCode != 404 {
			t.Errorf("%s: got %d, want 404", path, got.StatusCode)
		}
	}
	if got := get(t, "POST", "/"); got.StatusCode != 405 {
		t.Errorf("got %d for a POST, want 405", got.StatusCode)
	}
}

func TestFilesHaveTypesAndNoPlaceholders(t *testing.T) {
	for name, a := range assets() {
		if a.contentType == "" {
			t.Errorf("got no content type for %s, want one in types", name)
		}
	}
	for _, name := range []string{"/", "/manifest.webmanifest"} {
		if bytes.Contains(assets()[name].text, []byte("{{")) {
			t.Errorf("got %s with a placeholder, want none", name)
		}
	}
}
