// Package web has the page that people use in a browser, as files that npm built from app/ and client/.
//
// The files are the same on every server and for everybody, and hold no data: the page reads
// that from the API with the browser's cookie.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

//go:embed dist
var dist embed.FS

// policy lets the page run and show only what this server sent. The two Trusted Types policies
// are that of DOMPurify and that of the worker for highlighting.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
	"connect-src 'self'; worker-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types dompurify maestro"

// types has the content types of all files. The tables of systems differ.
var types = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8", ".png": "image/png",
	".webmanifest": "application/manifest+json",
}

// An asset is one file of the page.
type asset struct {
	text        []byte
	gzipped     []byte // nil if the file is small, or compressed by its format
	contentType string
	tag         string // of the content, in quotes
}

// assets returns all files by their path on the server. Scripts and styles are compressed in the program.
var assets = sync.OnceValue(func() map[string]*asset {
	all := make(map[string]*asset)
	err := fs.WalkDir(dist, "dist", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		a := &asset{}
		if a.text, err = dist.ReadFile(name); err != nil {
			return err
		}
		name, compressed := strings.CutSuffix(strings.TrimPrefix(name, "dist"), ".gz")
		if compressed {
			a.gzipped = a.text
			if a.text, err = expand(a.gzipped); err != nil {
				return err
			}
		}
		sum := sha256.Sum256(a.text)
		a.contentType, a.tag = types[path.Ext(name)], strconv.Quote(hex.EncodeToString(sum[:16]))
		all[name] = a
		return nil
	})
	if err != nil {
		panic(err) // cannot fail: the files are part of the program
	}
	all["/"] = all["/index.html"]
	delete(all, "/index.html")
	return all
})

func expand(gzipped []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Handler serves the page at / and its files below /assets/. It redirects /inbox, the link of a
// notification, to the inbox of the page. Browsers keep a file with a hash in its name for good,
// and ask for the page each time.
func Handler() http.Handler { return httperr.Methods{"GET": serve, "HEAD": serve} }

func serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/inbox" { // the link of a notification
		http.Redirect(w, r, "/#inbox&"+r.URL.RawQuery, http.StatusFound)
		return
	}
	a := assets()[r.URL.Path]
	if a == nil {
		httperr.Write(w, &contracts.Error{Code: contracts.CodeNotFound, Message: "route not found"})
		return
	}
	h := w.Header()
	protect(h, policy)
	h.Set("Content-Type", a.contentType)
	h.Add("Vary", "Accept-Encoding")
	h.Set("ETag", a.tag)
	h.Set("Cache-Control", "no-cache")
	if hashed(r.URL.Path) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := a.text
	if a.gzipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = a.gzipped
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // an error says that the browser has gone
	}
}

// protect sets the header fields that keep a page apart from the pages of other servers.
func protect(h http.Header, policy string) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", policy)
}

// hashed reports whether the name of a file changes with its content.
func hashed(name string) bool {
	return strings.HasPrefix(name, "/assets/") && strings.Contains(name, "-")
}
