package utility

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// A feed has the system tell what happens in directories of the workspace. It is
// apart from the watches that clients ask for: what they may watch is not to
// depend on what was searched.
//
// It has two goroutines. The one that takes faults never waits for anything,
// because adding and removing directories may wait for it.
type feed struct {
	share *share // each of dirs is taken from it
	to    *listings
	fs    *fsnotify.Watcher
	work  sync.WaitGroup

	mu   sync.Mutex          // taken before that of listings
	dirs map[string]struct{} // that are watched, by absolute path
}

// errTooManyDirectories says that there are more directories than may be
// followed.
var errTooManyDirectories = errors.New("too many directories to follow")

func newFeed(share *share, to *listings) (*feed, error) {
	if !share.free() {
		return nil, errTooManyDirectories
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &feed{share: share, to: to, fs: fs, dirs: make(map[string]struct{})}
	w.work.Go(w.takeChanges) // both end with close
	w.work.Go(w.takeFaults)
	return w, nil
}

// close ends the goroutines.
func (w *feed) close() {
	_ = w.fs.Close() // nothing is lost: nobody listens any more
	w.work.Wait()
	w.share.give(len(w.dirs))
}

func (w *feed) takeChanges() {
	for ev := range w.fs.Events {
		if ev.Name == "" {
			continue
		}
		if !ev.Has(fsnotify.Write) && ev.Op != fsnotify.Chmod {
			w.forget(ev.Name, ev.Op == fsnotify.Remove)
		}
		w.to.take(ev)
	}
}

func (w *feed) takeFaults() {
	for err := range w.fs.Errors {
		// A directory that is gone by now cannot be removed; all else may have
		// cost reports.
		if !errors.Is(err, syscall.EINVAL) {
			w.to.lose()
		}
	}
}

// add has the feed tell what happens in a directory from now on. fresh says that
// it did not before. One that cannot be watched, because it is gone or not ours
// to read, is no error.
func (w *feed) add(dir string) (fresh bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, has := w.dirs[dir]; has {
		return false, nil
	}
	if !w.share.take() {
		return false, errTooManyDirectories
	}
	err = w.fs.Add(dir)
	if err == nil {
		w.dirs[dir] = struct{}{}
		return true, nil
	}
	w.share.give(1)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, fsnotify.ErrClosed) {
		return false, err
	}
	return false, nil
}

// forget stops watching a directory that has come or gone, and all below it, so
// that they can be added anew: what was renamed would be told by its old name. A
// directory that was removed is empty.
func (w *feed) forget(path string, empty bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, has := w.dirs[path]; !has {
		return
	}
	if empty {
		w.remove(path)
		return
	}
	for dir := range w.dirs {
		if dir == path || strings.HasPrefix(dir, path+string(filepath.Separator)) {
			w.remove(dir)
		}
	}
}

func (w *feed) remove(dir string) {
	delete(w.dirs, dir)
	w.share.give(1)
	_ = w.fs.Remove(dir) // it fails if the system has done so by itself
}

// take notes something that happened.
func (c *listings) take(ev fsnotify.Event) {
	name := filepath.Base(ev.Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stale, ev.Op == fsnotify.Chmod:
	case name == ".gitignore", name == ".git":
		c.stale, c.touched = true, nil
	case ev.Op == fsnotify.Write: // it is there as before
	case len(c.touched) == maxTouched:
		c.stale, c.touched = true, nil
	default:
		if c.touched == nil {
			c.touched = make(map[string]struct{})
		}
		c.touched[ev.Name] = struct{}{}
	}
}

// lose notes that not all that happened was told.
func (c *listings) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.touched = true, nil
}
