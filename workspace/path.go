package workspace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Rel returns path relative to the root: a leading ~ is the home directory and
// a relative path counts from the root. It decides by the text alone; using the
// result with the methods below decides about symbolic links. The error is
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

// Abs returns the absolute form of a path as [Workspace.Rel] reads it, whether or
// not it lies below the root.
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

// Stat describes what rel, which is relative to the root, names.
func (w *Workspace) Stat(rel string) (fs.FileInfo, error) {
	info, err := w.root.Stat(rel)
	return info, outside(err)
}

// Lstat is Stat that does not follow a symbolic link at the end of rel.
func (w *Workspace) Lstat(rel string) (fs.FileInfo, error) {
	info, err := w.root.Lstat(rel)
	return info, outside(err)
}

// OpenFile opens what rel names for reading. It does not wait for the writer of
// a named pipe: look at what was opened before reading it.
func (w *Workspace) OpenFile(rel string) (*os.File, error) {
	f, err := w.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return f, outside(err)
}

// maxLinks bounds the symbolic links in one path, as systems do.
const maxLinks = 40

// Real returns rel with the symbolic links in it resolved, as far as it exists.
// What it names may have changed by the time it is used, and is checked again
// then.
func (w *Workspace) Real(rel string) (string, error) {
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

// outside makes an error of [os.Root] about a path that leaves it one that is
// [ErrOutside]. The root's own error has no name.
func outside(err error) error {
	if pe, ok := err.(*fs.PathError); ok && pe.Err.Error() == "path escapes from parent" {
		return fmt.Errorf("%s %s: %w", pe.Op, pe.Path, ErrOutside)
	}
	return err
}

// ReadDir returns the entries of the directory at rel, sorted by name.
func (w *Workspace) ReadDir(rel string) ([]fs.DirEntry, error) {
	dir, err := w.OpenFile(rel)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}
