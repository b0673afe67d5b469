package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrChanged says that a file is not the one any more that was looked at.
var ErrChanged = errors.New("file has changed")

// putAttempts bounds how often a new file is tried to be given its name while
// somebody else makes and removes files of that name.
const putAttempts = 8

// CreateFile makes a file at rel, which is relative to the root, that holds
// data, and the directories on the way. The error is [fs.ErrExist] if there is
// something already, which is left as it is.
func (w *Workspace) CreateFile(rel string, data []byte) error {
	return w.write(rel, data, func(found fs.FileInfo) error {
		if found != nil {
			return fs.ErrExist
		}
		return nil
	})
}

// ReplaceFile makes the file at rel hold data if it is still the one, and as old
// and as long, that was describes; see [Workspace.ReadFile]. Otherwise the error
// is [ErrChanged]. Whoever writes in the instant between the last look and the
// replacement is not noticed.
func (w *Workspace) ReplaceFile(rel string, data []byte, was fs.FileInfo) error {
	return w.write(rel, data, func(found fs.FileInfo) error {
		if found == nil || !os.SameFile(found, was) || found.Size() != was.Size() || !found.ModTime().Equal(was.ModTime()) {
			return ErrChanged
		}
		return nil
	})
}

// WriteFile makes the file at rel hold data, whatever it held before and if it
// was there, and makes the directories on the way.
//
// Under its name a file is always complete, whoever looks and whenever the
// process is killed: data is written to a temporary file beside it, which takes
// its place. A crash of the machine may undo that. Symbolic links in rel are
// followed as far as they stay inside the root; one that comes in between is
// replaced and not followed. The mode stays as it was, and the owner where the
// system allows it, but not what other links to the same file show. A file that
// may be written by nobody is refused, as are directories, pipes and devices.
//
// The error is [ErrOutside], [ErrNotRegular], or the system's.
func (w *Workspace) WriteFile(rel string, data []byte) error {
	return w.write(rel, data, func(fs.FileInfo) error { return nil })
}

// write is WriteFile that asks check before it does anything, and again before
// the file takes its place: found is nil if there is none.
func (w *Workspace) write(rel string, data []byte, check func(found fs.FileInfo) error) error {
	rel, err := w.target(rel)
	if err != nil {
		return err
	}
	above, err := w.makeDir(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer func() { _ = above.Close() }() // the file is complete or not there
	p := place{dir: above, name: filepath.Base(rel), check: check}
	if err := p.put(data); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	return nil
}

// target returns where a file at rel is to be: rel with its symbolic links
// resolved, of which the last may name what does not exist.
func (w *Workspace) target(rel string) (string, error) {
	for range maxLinks {
		if !filepath.IsLocal(rel) {
			break
		}
		dir, err := w.Real(filepath.Dir(rel))
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Clean(rel), nil // nor does what is below it
		} else if err != nil {
			return "", err
		}
		at := filepath.Join(dir, filepath.Base(rel))
		info, err := w.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return at, nil
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			return at, nil
		}
		to, err := w.root.Readlink(at)
		if err != nil {
			return "", outside(err)
		}
		if filepath.IsAbs(to) {
			break
		}
		rel = filepath.Join(dir, to)
	}
	return "", fmt.Errorf("write %s: %w", rel, ErrOutside)
}

// makeDir opens the directory at rel and makes it if it is not there. What is
// done in it stays in it, wherever it is moved.
func (w *Workspace) makeDir(rel string) (*os.Root, error) {
	if rel != "." {
		if err := w.root.MkdirAll(rel, 0o777); err != nil {
			return nil, outside(err)
		}
	}
	dir, err := w.root.OpenRoot(rel)
	return dir, outside(err)
}

// A place is a name in an open directory for a file that is to be written.
type place struct {
	dir   *os.Root
	name  string
	check func(found fs.FileInfo) error
}

// look describes what is there, nil if nothing is, once it may be replaced.
func (p *place) look() (fs.FileInfo, error) {
	found, err := p.dir.Lstat(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, p.check(nil)
	case err != nil:
		return nil, err
	case !found.Mode().IsRegular():
		return nil, ErrNotRegular
	}
	if err := p.check(found); err != nil {
		return nil, err
	}
	if found.Mode().Perm()&0o222 == 0 {
		return nil, fs.ErrPermission
	}
	return found, nil
}

// put makes the file.
func (p *place) put(data []byte) error {
	found, err := p.look()
	if err != nil {
		return err
	}
	temporary, err := p.fill(data, found)
	if err != nil {
		return err
	}
	if err := p.take(temporary); err != nil {
		return errors.Join(err, p.drop(temporary))
	}
	return p.drop(temporary)
}

// drop removes the temporary file if it still has that name.
func (p *place) drop(temporary string) error {
	if err := p.dir.Remove(temporary); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fill makes a temporary file that holds data and that may be used as found may,
// or as a new one. It returns its name, and leaves nothing if it fails.
func (p *place) fill(data []byte, found fs.FileInfo) (string, error) {
	perm := fs.FileMode(0o666)
	if found != nil {
		perm = 0o600 // until it is as found
	}
	temporary := ".maestro-" + strings.ToLower(rand.Text()) + ".tmp"
	f, err := p.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return "", err
	}
	if found != nil {
		keepOwner(f, found) // before the mode: it may change that
		err = f.Chmod(found.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, p.drop(temporary))
	}
	return temporary, nil
}

// take gives the temporary file the name, if what is there now may be replaced.
// A new file gets it as a second one, because that, unlike a rename, takes
// nobody's place.
func (p *place) take(temporary string) error {
	for range putAttempts {
		found, err := p.look()
		if err != nil {
			return err
		}
		if found != nil {
			return p.dir.Rename(temporary, p.name)
		}
		err = p.dir.Link(temporary, p.name)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrExist):
			return p.dir.Rename(temporary, p.name) // not every file system has links
		}
	}
	return ErrChanged
}
