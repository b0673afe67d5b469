package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// PagesPath is the path below which [Pages] serves.
const PagesPath = "/pages/"

// pagesPolicy lets pages of the operator run and show what this server sent. The two %s are for
// the hashes of the scripts and styles in the HTML file.
const pagesPolicy = "default-src 'none'; script-src 'self'%s; style-src 'self'%s; img-src 'self' data: blob:; " +
	"font-src 'self'; media-src 'self' blob:; connect-src 'self'; worker-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Bounds of one HTML file.
const (
	maxHTML   = 1 << 20 // bytes
	maxHashes = 64      // scripts and styles in it; their hashes are in the header
)

// pageTypes are the types of files that the page of this server does not have.
var pageTypes = map[string]string{
	".htm": "text/html; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".json": "application/json",
	".map": "application/json", ".md": "text/markdown; charset=utf-8", ".wasm": "application/wasm",
	".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".avif": "image/avif",
	".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
	".mp3": "audio/mpeg", ".mp4": "video/mp4", ".webm": "video/webm",
}

// pages serves the files of one directory.
type pages struct {
	root          *os.Root       // open as long as the process
	script, style *regexp.Regexp // each finds an element and the text in it
	reading       sync.Mutex     // held while an HTML file is in memory, because anybody may ask for one
}

// Pages serves the files of dir to browsers below [PagesPath], without a credential. It lists no
// directory. It serves no file outside of dir, also not through a symbolic link, and no file with
// a name in its path that begins with a dot. The pages have the origin of the server, so they act
// with the login of the user who opens them. They may run files of the server, and the scripts in
// their HTML files.
func Pages(dir string) (http.Handler, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	element := func(name string) *regexp.Regexp {
		return regexp.MustCompile(`(?is)<` + name + `(?:\s(?:[^>"']|"[^"]*"|'[^']*')*)?>(.*?)</` + name + `[\s/>]`)
	}
	p := &pages{root: root, script: element("script"), style: element("style")}
	return httperr.Methods{"GET": p.serve, "HEAD": p.serve}, nil
}

var errNoFile = &contracts.Error{Code: contracts.CodeNotFound, Message: "no such file below /pages/"}

func (p *pages) serve(w http.ResponseWriter, r *http.Request) {
	file, name, err := p.open(strings.TrimPrefix(r.URL.Path, PagesPath))
	if errors.Is(err, errIsDirectory) {
		there := url.URL{Path: r.URL.Path + "/", RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, there.String(), http.StatusFound)
		return
	}
	if err != nil {
		httperr.Write(w, errNoFile) // the cause would say what is there
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		httperr.Write(w, errNoFile)
		return
	}
	extension := strings.ToLower(path.Ext(name))
	kind := types[extension]
	if kind == "" {
		kind = pageTypes[extension]
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	var scripts, styles string
	if strings.HasPrefix(kind, "text/html") {
		if scripts, styles, err = p.hashes(file); err != nil {
			httperr.Write(w, err)
			return
		}
	}
	policy := fmt.Sprintf(pagesPolicy, scripts, styles)
	protect(w.Header(), policy)
	// The time alone does not tell a browser that an older version of the file was put back.
	tag := sha256.Sum256(fmt.Appendln(nil, info.ModTime().UnixNano(), info.Size(), policy))
	w.Header().Set("ETag", strconv.Quote(hex.EncodeToString(tag[:16])))
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", info.ModTime(), file)
}

// errIsDirectory says that a path without a slash at its end names a directory that has a page.
var errIsDirectory = errors.New("is a directory")

// open opens the file at a path below the directory, or the index.html of a directory. name is the
// path of the file. The file may have been replaced by one that is not regular.
func (p *pages) open(at string) (file *os.File, name string, err error) {
	name = strings.TrimSuffix(at, "/")
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return nil, "", fs.ErrNotExist
		}
	}
	info, err := p.stat(path.Join(".", name))
	if err == nil && info.IsDir() {
		name = path.Join(name, "index.html")
		if info, err = p.stat(name); err == nil && at != "" && !strings.HasSuffix(at, "/") {
			err = errIsDirectory
		}
	} else if err == nil && name != at {
		err = fs.ErrNotExist // the path of a file ends with a slash
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist // opening a pipe would wait for its writer
	}
	if err != nil {
		return nil, "", err
	}
	local, err := filepath.Localize(name)
	if err == nil {
		file, err = p.root.Open(local)
	}
	return file, name, err
}

func (p *pages) stat(name string) (fs.FileInfo, error) {
	local, err := filepath.Localize(name) // refuses what other systems read in another way
	if err != nil {
		return nil, err
	}
	return p.root.Stat(local)
}

// hashes returns the sources of a policy that allow the scripts and the styles in an HTML file. A
// hash allows no text but its own, so a file that a browser reads in another way cannot run more.
func (p *pages) hashes(file io.ReadSeeker) (scripts, styles string, err error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	text, err := io.ReadAll(io.LimitReader(file, maxHTML+1))
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", "", err
	}
	if len(text) > maxHTML {
		return "", "", &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "an HTML file below /pages/ has at most 1 MiB"}
	}
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n")) // as browsers do
	inScripts := p.script.FindAllSubmatch(text, maxHashes+1)
	inStyles := p.style.FindAllSubmatch(p.script.ReplaceAll(text, nil), maxHashes+1)
	if len(inScripts)+len(inStyles) > maxHashes {
		return "", "", &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "an HTML file below /pages/ has at most 64 scripts and styles: put them into files"}
	}
	return sources(inScripts), sources(inStyles), nil
}

// sources returns the hash of the text in each element as a source of a policy.
func sources(elements [][][]byte) string {
	var b strings.Builder
	for _, element := range elements {
		if text := element[1]; len(text) > 0 {
			sum := sha256.Sum256(text)
			fmt.Fprintf(&b, " 'sha256-%s'", base64.StdEncoding.EncodeToString(sum[:]))
		}
	}
	return b.String()
}
