package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Workspace is one open root. Its methods may be called from any goroutine.
type Workspace struct {
	root  *os.Root
	path  string // absolute, symbolic links resolved
	given string // absolute, as the operator spelled it
	home  string // what a leading ~ stands for; empty leaves it as it is
	opts  Options
}

// Options bounds attachments. The zero value of each field is the default
// named beside it.
type Options struct {
	// MaxAttachmentBytes is the size of the largest attachment: 10 MiB
	// (MAESTRO_HEADLESS_MAX_ATTACHMENT_BYTES).
	MaxAttachmentBytes int64
	// MaxTextChars is where the text of an attachment is cut: 200,000
	// characters (MAESTRO_HEADLESS_MAX_TEXT_CHARS).
	MaxTextChars int
}

// errOutside says that a path lies outside the workspace root.
var errOutside = errors.New("path is outside workspace root")

// Open opens the directory at root, which must exist.
func Open(root string, opts Options) (*Workspace, error) {
	if opts.MaxAttachmentBytes <= 0 {
		opts.MaxAttachmentBytes = defaultAttachmentBytes
	}
	if opts.MaxTextChars <= 0 {
		opts.MaxTextChars = defaultTextChars
	}
	given, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open workspace %s: %w", root, err)
	}
	path, err := filepath.EvalSymlinks(given)
	if err != nil {
		return nil, fmt.Errorf("open workspace %s: %w", root, err)
	}
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open workspace %s: %w", root, err)
	}
	home, _ := os.UserHomeDir() // without one a leading ~ is an ordinary name
	return &Workspace{root: r, path: path, given: given, home: home, opts: opts}, nil
}

// Root returns the absolute path of the root, symbolic links resolved.
func (w *Workspace) Root() string { return w.path }

// Close releases the root. Calls after it fail.
func (w *Workspace) Close() error { return w.root.Close() }

// rel returns path relative to the root: a leading ~ is the home directory and
// a relative path counts from the root. It decides by the text alone; opening
// the result through w.root decides about symbolic links.
func (w *Workspace) rel(path string) (string, error) {
	if w.home != "" && (path == "~" || strings.HasPrefix(path, "~/")) {
		path = filepath.Join(w.home, path[1:])
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.path, path)
	}
	for _, root := range []string{w.path, w.given} {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", errOutside
}
