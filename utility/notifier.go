package utility

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// A listener is told what happens in the directories that it watches. It must
// not block or call the notifier.
type listener interface {
	// changed is called for everything that happens in a directory, and to it.
	changed(c change)
	// overflowed says that changes were lost.
	overflowed()
}

// A change is one report of the system.
type change struct {
	path  string // absolute
	op    fsnotify.Op
	moved bool // path is where something was renamed to, out of a watched directory
}

// maxChanges bounds the changes that wait for somebody to look at them. More
// than that are lost, as if the system had lost them, and looked for in the
// tree instead.
const maxChanges = 16_384

// A notifier shares the system's one way to hear of changes among all watches
// of a host: systems allow few of them per user.
//
// It has three goroutines. Two take what the system reports and never wait for
// anything else, because adding and removing directories may wait for them; the
// third tells the listeners.
type notifier struct {
	limit int // of directories
	log   *slog.Logger
	fs    *fsnotify.Watcher
	more  chan struct{} // 1-buffered; a token means that there is something to tell; closed by close

	takers, teller sync.WaitGroup

	queueMu sync.Mutex
	queue   []change // at most maxChanges
	lost    bool     // there were more

	mu   sync.Mutex
	dirs map[string]map[listener]struct{} // by absolute path; at most limit
}

// errTooManyDirs says that a tree has more directories than may be watched.
var errTooManyDirs = errors.New("too many directories")

func newNotifier(limit int, log *slog.Logger) (*notifier, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	n := &notifier{limit: limit, log: log, fs: fs, more: make(chan struct{}, 1), dirs: make(map[string]map[listener]struct{})}
	n.takers.Go(n.takeChanges) // all three end with close
	n.takers.Go(n.takeFaults)
	n.teller.Go(n.tellAll)
	return n, nil
}

// close ends the goroutines. Listeners hear nothing after it.
func (n *notifier) close() {
	_ = n.fs.Close() // nothing is lost: nobody listens any more
	n.takers.Wait()
	close(n.more)
	n.teller.Wait()
}

func (n *notifier) takeChanges() {
	for ev := range n.fs.Events {
		if ev.Name == "" || ev.Op == fsnotify.Chmod {
			continue
		}
		// Where a thing was renamed from is told in this form alone.
		moved := strings.Contains(ev.String(), `" ← "`)
		n.queueMu.Lock()
		if len(n.queue) < maxChanges {
			n.queue = append(n.queue, change{path: ev.Name, op: ev.Op, moved: moved})
		} else {
			n.lost = true
		}
		n.queueMu.Unlock()
		n.wake()
	}
}

func (n *notifier) takeFaults() {
	for err := range n.fs.Errors {
		if !errors.Is(err, fsnotify.ErrEventOverflow) {
			n.log.Warn("watch files", slog.Any("err", err))
			continue
		}
		n.queueMu.Lock()
		n.lost = true
		n.queueMu.Unlock()
		n.wake()
	}
}

func (n *notifier) wake() {
	select {
	case n.more <- struct{}{}:
	default: // it looks again anyhow
	}
}

func (n *notifier) tellAll() {
	for range n.more {
		n.queueMu.Lock()
		changes, lost := n.queue, n.lost
		n.queue, n.lost = nil, false
		n.queueMu.Unlock()
		for _, c := range changes {
			n.tell(c)
		}
		if lost {
			n.tellLoss()
		}
	}
}

// tell passes a change on. What was removed or renamed is no longer watched: a
// renamed directory would go on reporting under its old path.
func (n *notifier) tell(c change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	parent := n.dirs[filepath.Dir(c.path)]
	for l := range parent {
		l.changed(c)
	}
	for l := range n.dirs[c.path] {
		if _, told := parent[l]; !told {
			l.changed(c)
		}
	}
	if c.op.Has(fsnotify.Remove) || c.op.Has(fsnotify.Rename) {
		n.forget(c.path)
	}
}

// forget stops watching a directory that is gone, and all below it. The caller
// holds n.mu.
func (n *notifier) forget(path string) {
	if _, watched := n.dirs[path]; !watched {
		return
	}
	for dir := range n.dirs {
		if dir == path || strings.HasPrefix(dir, path+string(filepath.Separator)) {
			delete(n.dirs, dir)
			_ = n.fs.Remove(dir) // it fails if the system has done so by itself
		}
	}
}

func (n *notifier) tellLoss() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, listeners := range n.dirs {
		for l := range listeners {
			l.overflowed()
		}
	}
}

// add has l told of what happens in dir from now on. It reports whether that is
// new.
func (n *notifier) add(dir string, l listener) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	listeners := n.dirs[dir]
	if _, has := listeners[l]; has {
		return false, nil
	}
	if listeners == nil {
		if len(n.dirs) >= n.limit {
			return false, errTooManyDirs
		}
		if err := n.fs.Add(dir); err != nil {
			return false, err
		}
		listeners = make(map[listener]struct{})
		n.dirs[dir] = listeners
	}
	listeners[l] = struct{}{}
	return true, nil
}

// drop ends what l is told about dir.
func (n *notifier) drop(dir string, l listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked(dir, l)
}

// dropAll ends all that l is told.
func (n *notifier) dropAll(l listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for dir := range n.dirs {
		n.dropLocked(dir, l)
	}
}

func (n *notifier) dropLocked(dir string, l listener) {
	listeners := n.dirs[dir]
	if _, has := listeners[l]; !has {
		return
	}
	delete(listeners, l)
	if len(listeners) == 0 {
		delete(n.dirs, dir)
		_ = n.fs.Remove(dir) // it fails if the directory is gone
	}
}
