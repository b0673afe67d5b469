package utility

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// noteTree watches a directory that has appeared, with all below it. What is in
// it by now has appeared in the same way.
func (w *watch) noteTree(rel string, kind contracts.FileChange) {
	info, err := w.host.ws.Lstat(filepath.Join(w.rel, rel))
	if err != nil || !info.IsDir() {
		return
	}
	w.coverOrTell(rel, func(rel string, _ fs.DirEntry, _ bool) { w.add(rel, kind) })
}

// search looks for changes since a time in the tree itself, because reports of
// them were lost. Deletions are not found, nor what was moved here unchanged.
func (w *watch) search(since time.Time) {
	since = since.Add(-time.Second) // file systems have coarse clocks
	w.coverOrTell(".", func(rel string, e fs.DirEntry, fresh bool) {
		info, err := e.Info()
		switch {
		case err != nil:
		case fresh:
			w.add(rel, contracts.FileCreated)
		case !e.IsDir() && info.ModTime().After(since):
			w.add(rel, contracts.FileModified)
		}
	})
}

// coverOrTell is cover once clients rely on the watch.
func (w *watch) coverOrTell(rel string, found func(rel string, e fs.DirEntry, fresh bool)) {
	if w.cover(rel, found) == nil || w.full {
		return
	}
	w.full = true
	w.host.show(refuse(contracts.CodeOverloaded, w.id, "Utility file watch has too many directories: "+w.root).Event())
}

// cover watches the directory at rel, which is relative to the watch's root, and
// all below it. found, if not nil, is called for everything in them; fresh says
// that the directory was not watched before.
func (w *watch) cover(rel string, found func(rel string, e fs.DirEntry, fresh bool)) error {
	dirs := []string{rel}
	for len(dirs) > 0 && w.ctx.Err() == nil {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		if dir != "." && w.filter.prunes(filepath.ToSlash(dir)) {
			continue
		}
		fresh, err := w.watchDir(dir)
		switch {
		case errors.Is(err, errTooManyDirs), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EMFILE):
			return err
		case err != nil:
			continue // it is gone, or not ours to read
		}
		entries, err := w.host.ws.ReadDir(filepath.Join(w.rel, dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			child := filepath.Join(dir, e.Name())
			if found != nil {
				found(child, e, fresh)
			}
			if e.IsDir() {
				dirs = append(dirs, child)
			}
		}
	}
	return w.ctx.Err()
}

// watchDir watches one directory, if it still is one of the workspace: the
// system follows symbolic links that were swapped in.
func (w *watch) watchDir(dir string) (fresh bool, err error) {
	path := filepath.Join(w.root, dir)
	fresh, err = w.notifier.add(path, w)
	if err == nil && !w.holds(dir) {
		w.notifier.drop(path, w)
		err = fs.ErrNotExist
	}
	return fresh, err
}

// holds reports whether what the system finds under the name of a directory is
// that directory. The watch's root alone may be a link.
func (w *watch) holds(dir string) bool {
	look := w.host.ws.Lstat
	if dir == "." {
		look = w.host.ws.Stat
	}
	ours, err := look(filepath.Join(w.rel, dir))
	if err != nil || !ours.IsDir() {
		return false
	}
	theirs, err := os.Stat(filepath.Join(w.root, dir))
	return err == nil && os.SameFile(ours, theirs)
}
