package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A Workspace is one open root. Its methods may be called from any goroutine.
type Workspace struct {
	root  *os.Root
	path  string // absolute, symbolic links resolved
	given string // absolute, as the operator gave it
	home  string // the meaning of a leading ~; without it a ~ is an ordinary name
}

// ErrOutside says that a path lies outside the root, by its text or through a
// symbolic link.
var ErrOutside = errors.New("path is outside workspace root")

// Open opens the directory at root, which must exist.
func Open(root string) (*Workspace, error) {
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
	return &Workspace{root: r, path: path, given: given, home: home}, nil
}

// Resolve returns an absolute path with the symbolic links in its existing part resolved.
func Resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(Resolve(dir), filepath.Base(path))
}

// Root returns the absolute path of the root, symbolic links resolved.
func (w *Workspace) Root() string { return w.path }

// Close releases the root. Calls after it fail.
func (w *Workspace) Close() error { return w.root.Close() }

// Rel returns path relative to the root. A leading ~ is the home directory; a
// relative path counts from the root. Rel checks the text alone: symbolic links
// are checked when the result is used with the methods below. The error is
// [ErrOutside].
func (w *Workspace) Rel(path string) (string, error) {
	path = w.expand(path)
	for _, root := range []string{w.path, w.given} {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", ErrOutside
}

// Abs returns the absolute form of a path, which it reads as [Workspace.Rel]
// does. The path may lie outside the root.
func (w *Workspace) Abs(path string) string {
	if rel, err := w.Rel(path); err == nil {
		return w.At(rel)
	}
	return filepath.Clean(w.expand(path))
}

// At returns the absolute form of rel, which is relative to the root.
func (w *Workspace) At(rel string) string { return filepath.Join(w.path, rel) }

func (w *Workspace) expand(path string) string {
	if w.home != "" && (path == "~" || strings.HasPrefix(path, "~/")) {
		path = filepath.Join(w.home, path[1:])
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.path, path)
	}
	return path
}

// Stat describes the file at rel, which is relative to the root.
func (w *Workspace) Stat(rel string) (fs.FileInfo, error) {
	info, err := w.root.Stat(rel)
	return info, outside(err)
}

// Lstat is Stat, but does not follow a symbolic link at the end of rel.
func (w *Workspace) Lstat(rel string) (fs.FileInfo, error) {
	info, err := w.root.Lstat(rel)
	return info, outside(err)
}

// OpenFile opens the file at rel for reading. It does not wait for the writer
// of a named pipe, so check the type of the open file before reading it.
func (w *Workspace) OpenFile(rel string) (*os.File, error) {
	f, err := w.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return f, outside(err)
}

// maxLinks limits the symbolic links in one path, as systems do.
const maxLinks = 40

// Real returns rel with its symbolic links resolved. The path must exist. The
// file may change before the result is used; each use checks it again.
func (w *Workspace) Real(rel string) (string, error) { return w.resolve(rel, false) }

// resolve is Real. If mayMiss is set, the file and directories above it need not
// exist.
func (w *Workspace) resolve(rel string, mayMiss bool) (string, error) {
	if !filepath.IsLocal(rel) {
		return "", ErrOutside
	}
	left := strings.Split(filepath.Clean(rel), string(filepath.Separator))
	done := "."
	for links := 0; len(left) > 0; {
		next := filepath.Join(done, left[0])
		left = left[1:]
		if !filepath.IsLocal(next) {
			return "", ErrOutside
		}
		info, err := w.Lstat(next)
		switch {
		case mayMiss && errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, left...)...), nil
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			done = next
			continue
		}
		target, err := w.root.Readlink(next)
		if err != nil {
			return "", outside(err)
		}
		if links++; links > maxLinks || filepath.IsAbs(target) {
			return "", ErrOutside
		}
		left = append(strings.Split(filepath.Clean(target), string(filepath.Separator)), left...)
	}
	return done, nil
}

// outside turns the error of [os.Root] about a path that leaves the root into
// one that is [ErrOutside]. Package os does not export that error.
func outside(err error) error {
	if pe, ok := err.(*fs.PathError); ok && pe.Err.Error() == "path escapes from parent" {
		return fmt.Errorf("%s %s: %w", pe.Op, pe.Path, ErrOutside)
	}
	return err
}
