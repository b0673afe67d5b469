package workspace

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// walkBatch is how many directories are looked at before the next ones are
	// put in order.
	walkBatch = 256
	// maxWalkers bounds the goroutines of one listing.
	maxWalkers = 4
	// maxListBytes bounds the paths of one listing.
	maxListBytes = 128 << 20
)

// versionControl are the directories that listings leave out: what is in them
// is not the user's.
var versionControl = []string{".git", ".hg", ".svn", ".bzr", ".jj"}

// VersionControl reports whether name is that of a directory in which a
// version-control system keeps its own files.
func VersionControl(name string) bool { return slices.Contains(versionControl, name) }

// A Listing is the files below a directory.
type Listing struct {
	Files    []string // slash-separated, relative to the directory
	Complete bool     // nothing was left out because of a bound
}

// List returns at most limit files below dir, which is relative to the root, with
// at most 128 MiB of paths: those that git would list as tracked, or as untracked and not ignored, in as
// far as that can be told without git. A file that is tracked although it is
// ignored is left out, as only git knows it. Files in the working trees of other
// repositories below dir are listed by the rules of those.
//
// Symbolic links are listed and never followed, nearer files come before deeper
// ones, and what cannot be read is left out. When ctx ends the listing is what
// was found so far. Rules are bounded, to 20,000 of a file and 400,000 of all
// files: what more there are hide nothing, and the listing is not complete. The
// error says that dir itself cannot be read.
func (w *Workspace) List(ctx context.Context, dir string, limit int) (Listing, error) {
	dir, err := w.Real(dir)
	if err != nil {
		return Listing{}, err
	}
	if info, err := w.Stat(dir); err != nil || !info.IsDir() {
		return Listing{}, errors.Join(err, fs.ErrInvalid)
	}
	wk := &walk{w: w, ctx: ctx, limit: limit, budget: budget{ctx: ctx}}
	wk.Files, wk.Complete = []string{}, true
	if start, ok := wk.enter(filepath.ToSlash(dir)); ok { // else dir itself is ignored
		wk.run(start)
	}
	wk.Complete = wk.Complete && !wk.budget.spent() && ctx.Err() == nil
	return wk.Listing, nil
}

// Listed returns those of names that List would list if they are files that are
// there; with dirs set, those that it would look into if they are directories.
// Names are slash-separated and relative to the root, and none of the directories
// that they lie in is a symbolic link. It reports false if ctx ended or there are
// too many rules: then some may be among them that List would leave out.
func (w *Workspace) Listed(ctx context.Context, names []string, dirs bool) (listed []string, ok bool) {
	v := (&walk{w: w, ctx: ctx, budget: budget{ctx: ctx}}).visit()
	known := make(map[string]*folder)
	for _, name := range names {
		dir, base := path.Split(name)
		f := v.inside(path.Clean(dir), known)
		if f != nil && !VersionControl(base) && !f.rules.ignored(f.join(base), f.below(), dirs) {
			listed = append(listed, name)
		}
	}
	return listed, !v.budget.spent() && ctx.Err() == nil
}

// inside returns the folder for a directory with the rules that hold for what is in
// it, nil if the directory is ignored. known has the folders that were returned.
func (v *visit) inside(dir string, known map[string]*folder) *folder {
	f, is := known[dir]
	if is {
		return f
	}
	if dir == "." {
		top := v.top()
		if top.path != "" {
			v.root = top.below()
		}
		f = &top
	} else if up := v.inside(path.Dir(dir), known); up != nil {
		name := path.Base(dir)
		child := up.child(name, up.rules)
		if !VersionControl(name) && !up.rules.ignored(child.path, up.below(), true) {
			f = &child
		}
	}
	if f != nil {
		*f = v.repository(*f)
		f.rules = v.ownRules(*f)
	}
	known[dir] = f
	return f
}

// A folder is a directory on the way.
type folder struct {
	path  string // slash-separated, from the top of the repository around the root; "" is the top
	rules *level // what was said above it, its own ignore file not included
	top   bool   // of the repository to which rules belong
}

// child returns the folder for a directory in f, where rules hold.
func (f folder) child(name string, rules *level) folder {
	return folder{path: f.join(name), rules: rules}
}

func (f folder) join(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "/" + name
}

// below returns where in a path what is in f begins.
func (f folder) below() int {
	if f.path == "" {
		return 0
	}
	return len(f.path) + 1
}

// A walk lists a tree.
type walk struct {
	Listing
	queue []folder // still to be visited; as many as there are directories
	size  int      // bytes in Files

	// Not changed while there are visits.
	w     *Workspace
	ctx   context.Context
	limit int
	root  int // where in a path what is relative to the root begins
	base  int // where in a path what Files has begins

	budget budget // of its rules
}

// A visit is what is found in one directory, or on the way to the first.
type visit struct {
	*walk
	files   []string
	size    int // bytes in files
	dirs    []folder
	cut     bool // there is more
	skipped bool // there was enough without it
}

func (wk *walk) visit() *visit { return &visit{walk: wk} }

// enter returns the folder for dir with the rules of everything above it. It
// reports false if dir itself is ignored.
func (wk *walk) enter(dir string) (folder, bool) {
	v := wk.visit()
	f := v.top()
	if f.path != "" {
		wk.root = f.below()
	}
	wk.base = f.below()
	if dir == "." {
		return f, true
	}
	for name := range strings.SplitSeq(dir, "/") {
		f = v.repository(f)
		rules := v.ownRules(f)
		f = f.child(name, rules)
		if VersionControl(name) || rules.ignored(f.path, len(f.path)-len(name), true) {
			return f, false
		}
	}
	wk.base = f.below()
	return f, true
}

// run visits start and what is below it, level by level.
func (wk *walk) run(start folder) {
	for wk.queue = []folder{start}; len(wk.queue) > 0 && wk.Complete; {
		next := wk.queue[:min(len(wk.queue), walkBatch)]
		wk.queue = wk.queue[len(next):]
		for _, v := range wk.visitAll(next) {
			if !wk.Complete {
				break
			}
			wk.take(v)
		}
	}
}

// take adds what a visit found.
func (wk *walk) take(v *visit) {
	room := wk.limit - len(wk.Files)
	wk.size += v.size
	wk.Complete = !v.cut && !v.skipped && len(v.files) <= room && wk.size <= maxListBytes
	wk.Files = append(wk.Files, v.files[:min(room, len(v.files))]...)
	wk.queue = append(wk.queue, v.dirs...)
}

// visitAll visits folders at once, in so far as their files count. It returns
// the visits in the order of the folders, when its goroutines have ended.
func (wk *walk) visitAll(folders []folder) []*visit {
	visits := make([]*visit, len(folders))
	room := int64(wk.limit - len(wk.Files))
	var next, found atomic.Int64
	work := func() {
		buf := make([]byte, entriesBytes)
		for {
			// What is found before the next folder is taken is in those before it.
			enough := found.Load() > room
			i := int(next.Add(1)) - 1
			if i >= len(folders) {
				return
			}
			visits[i] = wk.visit()
			if visits[i].skipped = enough; !enough {
				visits[i].read(folders[i], buf)
				found.Add(int64(len(visits[i].files)))
			}
		}
	}
	var others sync.WaitGroup
	for range min(len(folders), maxWalkers, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work) // ends when every folder is visited
	}
	work()
	others.Wait()
	return visits
}

// name returns the folder's path relative to the root, as the system spells it.
func (wk *walk) name(f folder) string {
	if len(f.path) <= wk.root {
		return "."
	}
	return filepath.FromSlash(f.path[wk.root:])
}

// read lists the files and the directories in one directory.
func (v *visit) read(f folder, buf []byte) {
	entries := v.entries(f, buf)
	if v.cut || has(entries, ".git") {
		f = v.repository(f)
	}
	rules := f.rules
	if v.cut || has(entries, ".gitignore") {
		rules = v.ownRules(f)
	}
	for _, e := range entries {
		name := f.join(e.name)
		switch {
		case v.ctx.Err() != nil:
			v.cut = true
			return
		case VersionControl(e.name), rules.fold && strings.EqualFold(e.name, ".git"), rules.ignored(name, f.below(), e.isDir()):
		case e.isDir():
			v.dirs = append(v.dirs, folder{path: name, rules: rules})
		case !e.isFile():
		case len(v.files) > v.limit || v.size > maxListBytes:
			v.cut = true
			return
		default:
			v.files = append(v.files, name[v.base:])
			v.size += len(name)
		}
	}
}
