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

// ErrChanged says that a file was changed or replaced since the caller read it.
var ErrChanged = errors.New("file has changed")

// putAttempts limits how often a new file is linked to its name while another
// process makes and removes files of that name.
const putAttempts = 8

// CreateFile makes a file at rel, relative to the root, that holds data. It
// also makes the missing directories. If the name is taken, the file there stays
// as it is and the error is [fs.ErrExist].
func (w *Workspace) CreateFile(rel string, data []byte) error {
	return w.write(rel, data, func(found fs.FileInfo) error {
		if found != nil {
			return fs.ErrExist
		}
		return nil
	})
}

// ReplaceFile replaces the contents of the file at rel with data, if it is
// still the file described by was, with the same size and modification time;
// see [Workspace.ReadFile]. Otherwise the error is [ErrChanged]. A write between
// the last check and the replacement is not noticed.
func (w *Workspace) ReplaceFile(rel string, data []byte, was fs.FileInfo) error {
	return w.write(rel, data, func(found fs.FileInfo) error {
		if found == nil || !os.SameFile(found, was) || found.Size() != was.Size() || !found.ModTime().Equal(was.ModTime()) {
			return ErrChanged
		}
		return nil
	})
}

// WriteFile makes the file at rel hold data. It makes the file and missing
// directories, or replaces the contents.
// A reader always finds a complete file, even if the process is killed: data is
// written to a temporary file in the same directory, which is then renamed or
// linked to the name. A crash of the machine may undo that. Symbolic links in
// rel are followed as far as they stay inside the root. A link that appears at
// the name during the write is replaced, not followed. The mode is kept, and so
// is the owner where the system allows it. Other hard links to the old file
// keep the old contents. A file without any write permission is refused, and so
// are directories, pipes and devices.
// The error is [ErrOutside], [ErrNotRegular], or the system's.
func (w *Workspace) WriteFile(rel string, data []byte) error {
	return w.write(rel, data, func(fs.FileInfo) error { return nil })
}

// write is WriteFile with a check. It calls check before it changes anything,
// and again right before the file gets its name. found is nil if there is no
// file.
func (w *Workspace) write(rel string, data []byte, check func(found fs.FileInfo) error) error {
	at, err := w.resolve(rel, true)
	if err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	rel = at
	above, err := w.root.OpenRoot(filepath.Dir(rel)) // stays valid if the directory is moved
	if errors.Is(err, fs.ErrNotExist) {
		if err := check(nil); err != nil {
			return fmt.Errorf("write %s: %w", rel, err)
		}
		if err = w.root.MkdirAll(filepath.Dir(rel), 0o777); err == nil {
			above, err = w.root.OpenRoot(filepath.Dir(rel))
		}
	}
	if err != nil {
		return outside(err)
	}
	defer func() { _ = above.Close() }() // a failed Close leaves the file complete
	p := destination{dir: above, name: filepath.Base(rel), check: check}
	if err := p.put(data); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	return nil
}

// A destination is a name in an open directory at which a file is to be written.
type destination struct {
	dir   *os.Root
	name  string
	check func(found fs.FileInfo) error
}

// look describes the file at the name, nil if there is none. It fails if the
// file must not be replaced.
func (p *destination) look() (fs.FileInfo, error) {
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

// put writes the file.
func (p *destination) put(data []byte) error {
	found, err := p.look()
	if err != nil {
		return err
	}
	temporary, err := p.fill(data, found)
	if err != nil {
		return err
	}
	if err := p.giveName(temporary); err != nil {
		return errors.Join(err, p.drop(temporary))
	}
	return p.drop(temporary)
}

// drop removes the temporary file if that name still exists.
func (p *destination) drop(temporary string) error {
	if err := p.dir.Remove(temporary); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fill makes a temporary file that holds data. It has the mode and the owner of
// found, or those of a new file. fill returns its name. If it fails, it leaves
// no file.
func (p *destination) fill(data []byte, found fs.FileInfo) (string, error) {
	perm := fs.FileMode(0o666)
	if found != nil {
		perm = 0o600 // until the mode of found is set
	}
	temporary := ".maestro-" + strings.ToLower(rand.Text()) + ".tmp"
	f, err := p.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return "", err
	}
	if found != nil {
		keepOwner(f, found) // before the mode, which chown may change
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

// giveName gives the temporary file its name, if the file there now may be
// replaced. A new file gets the name by a link, because a link, unlike a
// rename, never replaces a file that appears in between.
func (p *destination) giveName(temporary string) error {
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
			return p.dir.Rename(temporary, p.name) // some file systems have no links
		}
	}
	return ErrChanged
}
