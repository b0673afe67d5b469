package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Workspace is one open root. Its methods may be called from any goroutine.
type Workspace struct {
	root  *os.Root
	path  string // absolute, symbolic links resolved
	given string // absolute, as the operator gave it
	home  string // the meaning of a leading ~; without it a ~ is an ordinary name
	opts  Options
}

// Options limits attachments. 0 means the default named at each field.
type Options struct {
	// MaxAttachmentBytes is the size of the largest attachment. The default is
	// 10 MiB (MAESTRO_HEADLESS_MAX_ATTACHMENT_BYTES).
	MaxAttachmentBytes int64
	// MaxTextChars is the length to which the text of an attachment is cut. The
	// default is 200,000 characters (MAESTRO_HEADLESS_MAX_TEXT_CHARS).
	MaxTextChars int
}

// ErrOutside says that a path lies outside the root, by its text or through a
// symbolic link.
var ErrOutside = errors.New("path is outside workspace root")

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
