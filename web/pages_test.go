package web

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pagesOf serves a directory with the files.
func pagesOf(t *testing.T, files map[string]string) (dir string, ask func(method, path string, header ...string) *http.Response) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "dir")
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, func(method, path string, header ...string) *http.Response {
		r := httptest.NewRequest(method, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

func TestPagesHaveTypesAndTheHeaderOfThePage(t *testing.T) {
	types := map[string]string{
		"index.html": "text/html; charset=utf-8", "a.htm": "text/html; charset=utf-8", "a.HTML": "text/html; charset=utf-8",
		"a.js": "text/javascript; charset=utf-8", "a.mjs": "text/javascript; charset=utf-8", "a.css": "text/css; charset=utf-8",
		"a.json": "application/json", "a.svg": "image/svg+xml", "a.woff2": "font/woff2", "a.wasm": "application/wasm",
		"a": "application/octet-stream", "a.exe": "application/octet-stream", "sub/index.html": "text/html; charset=utf-8",
	}
	files := map[string]string{}
	for name := range types {
		files[name] = "<!doctype html>" + name
	}
	_, ask := pagesOf(t, files)
	page := get(t, "GET", "/").Header
	for name, kind := range types {
		got := ask("GET", "/pages/"+name)
		if got.StatusCode != 200 || got.Header.Get("Content-Type") != kind || text(t, got.Body) != files[name] {
			t.Errorf("%s: got %d %q, want the file as %q", name, got.StatusCode, got.Header.Get("Content-Type"), kind)
		}
		for _, field := range []string{"X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Cache-Control"} {
			if got.Header.Get(field) != page.Get(field) || page.Get(field) == "" {
				t.Errorf("%s: got %s %q, want that of the page, %q", name, field, got.Header.Get(field), page.Get(field))
			}
		}
		policy := got.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") ||
			!strings.HasSuffix(policy, "base-uri 'none'; form-action 'none'; frame-ancestors 'none'") {
			t.Errorf("%s: got the policy %q", name, policy)
		}
	}
	for at, want := range map[string]string{"/pages/": "index.html", "/pages/sub/": "sub/index.html"} {
		if got := ask("GET", at); got.StatusCode != 200 || text(t, got.Body) != files[want] {
			t.Errorf("%s: got %d, want %s", at, got.StatusCode, want)
		}
	}
	if got := ask("GET", "/pages/sub?a=b"); got.StatusCode != 302 || got.Header.Get("Location") != "/pages/sub/?a=b" {
		t.Errorf("got %d %q for a directory, want its path with a slash and the query", got.StatusCode, got.Header.Get("Location"))
	}
	if got := ask("HEAD", "/pages/a.js"); got.StatusCode != 200 || got.ContentLength != int64(len(files["a.js"])) || text(t, got.Body) != "" {
		t.Errorf("got %d with %d bytes for HEAD", got.StatusCode, got.ContentLength)
	}
	if got := ask("GET", "/pages/a.js", "Range", "bytes=1-3"); got.StatusCode != 206 || text(t, got.Body) != "!do" {
		t.Errorf("got %d for a range, want 206", got.StatusCode)
	}
	same := ask("GET", "/pages/a.js").Header.Get("Last-Modified")
	if got := ask("GET", "/pages/a.js", "If-Modified-Since", same); got.StatusCode != 304 {
		t.Errorf("got %d for a file that the browser has, want 304", got.StatusCode)
	}
}

// A browser that has the newer version of a page loads the older one, whose scripts the policy allows.
func TestOlderVersionOfAPageIsLoaded(t *testing.T) {
	dir, ask := pagesOf(t, map[string]string{"index.html": "<script>newer</script>"})
	newer := ask("GET", "/pages/").Header
	fields := []string{"If-None-Match", newer.Get("ETag"), "If-Modified-Since", newer.Get("Last-Modified")}
	if got := ask("GET", "/pages/", fields...); got.StatusCode != 304 {
		t.Errorf("got %d for a page that the browser has, want 304", got.StatusCode)
	}
	page, old := filepath.Join(dir, "index.html"), time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(page, []byte("<script>older</script>"), 0o600), os.Chtimes(page, old, old)); err != nil {
		t.Fatal(err)
	}
	if got := ask("GET", "/pages/", fields...); got.StatusCode != 200 || text(t, got.Body) != "<script>older</script>" {
		t.Errorf("got %d for another version, want it", got.StatusCode)
	}
}

func TestPagesServeNothingElse(t *testing.T) {
	dir, ask := pagesOf(t, map[string]string{
		"index.html": "x", "empty/a.txt": "x", ".env": "secret", ".git/config": "secret", "sub/.hidden/a.txt": "secret", "..a": "secret",
	})
	outside := filepath.Join(filepath.Dir(dir), "secret.txt")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"absolute.txt": outside, "relative.txt": "../secret.txt", "up": "..", "absolute-inside.txt": filepath.Join(dir, "index.html"), "broken.txt": "nowhere", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("index.html", filepath.Join(dir, "inside.html")); err != nil {
		t.Fatal(err)
	}
	if got := ask("GET", "/pages/inside.html"); got.StatusCode != 200 {
		t.Errorf("got %d for a link to a file beside it, want the file", got.StatusCode)
	}
	for _, path := range []string{
		"/pages/.env", "/pages/.git/config", "/pages/.git/", "/pages/sub/.hidden/a.txt", "/pages/..a", "/pages/%2eenv",
		"/pages/absolute.txt", "/pages/relative.txt", "/pages/up/secret.txt", "/pages/up/", "/pages/absolute-inside.txt", "/pages/broken.txt", "/pages/loop",
		"/pages/../secret.txt", "/pages/%2e%2e/secret.txt", "/pages/..%2fsecret.txt", "/pages/empty/../../secret.txt", "/pages/..%5csecret.txt",
		"/pages/empty", "/pages/empty/", "/pages/sub/", "/pages/none.html", "/pages/index.html/", "/pages/index.html/a", "/pages//index.html", "/pages/a%00b",
		"/pages/" + strings.Repeat("a", 5000), "/pages/" + strings.Repeat("a/", 2000),
	} {
		got := ask("GET", path)
		body := text(t, got.Body)
		if got.StatusCode != 404 || strings.Contains(body, "secret") || strings.Contains(body, dir) || !strings.Contains(body, `"code":"not_found"`) {
			t.Errorf("%.80s: got %d %.200s, want 404 and nothing about the directory", path, got.StatusCode, body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if got := ask(method, "/pages/"); got.StatusCode != 405 {
			t.Errorf("%s: got %d, want 405", method, got.StatusCode)
		}
	}
	if _, err := Pages(outside); err == nil {
		t.Error("got pages of a file, want an error")
	}
}

func TestScriptsInAPageMayRunAndNothingElse(t *testing.T) {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	_, ask := pagesOf(t, map[string]string{
		"index.html": "<!doctype html><STYLE>\r\nb {}\r\n</STYLE ><script src=a.js></script>" +
			"<script type=\"module\" data-x='a>b'>if (1 < 2) document.title = \"<style></style>\";</script\n>" +
			"<scripts>not one</scripts><p onclick=\"alert(1)\" style=\"color:red\">x<script>unended",
		"many.html":  strings.Repeat("<script>a</script>", 65),
		"long.html":  strings.Repeat("a", maxHTML+1),
		"just.html":  strings.Repeat("<script>a</script>", 64),
		"other.json": "<script>a</script>",
	})
	policy := ask("GET", "/pages/").Header.Get("Content-Security-Policy")
	scripts := regexp.MustCompile(`script-src ([^;]*);`).FindStringSubmatch(policy)[1]
	if want := "'self' " + hash(`if (1 < 2) document.title = "<style></style>";`); scripts != want {
		t.Errorf("got scripts from %s, want %s", scripts, want)
	}
	styles := regexp.MustCompile(`style-src ([^;]*);`).FindStringSubmatch(policy)[1]
	if want := "'self' " + hash("\nb {}\n"); styles != want {
		t.Errorf("got styles from %s, want %s", styles, want)
	}
	for name, status := range map[string]int{"many.html": 413, "long.html": 413, "just.html": 200, "other.json": 200} {
		if got := ask("GET", "/pages/"+name); got.StatusCode != status {
			t.Errorf("%s: got %d, want %d", name, got.StatusCode, status)
		}
	}
	if got := ask("GET", "/pages/other.json").Header.Get("Content-Security-Policy"); strings.Contains(got, "sha256") {
		t.Errorf("got %q for a file without elements, want no hash", got)
	}
}
