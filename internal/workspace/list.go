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
	// walkBatch is how many directories are read before the results are put in
	// order.
	walkBatch = 256
	// maxWalkers limits the goroutines of one listing.
	maxWalkers = 4
	// maxListBytes limits the paths of one listing.
	maxListBytes = 128 << 20
)

// versionControl has the directories that listings leave out, because their
// files are not the user's.
var versionControl = []string{".git", ".hg", ".svn", ".bzr", ".jj"}

// VersionControl reports whether a slash-separated path is, or leads into, a
// directory with the files of a version-control system.
func VersionControl(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if slices.Contains(versionControl, name) {
			return true
		}
	}
	return false
}

// A Listing is the files below a directory.
type Listing struct {
	Files    []string // slash-separated, relative to the directory
	Complete bool     // no limit left anything out
}

// List returns at most limit files below dir, relative to the root, with at
// most 128 MiB of paths. It lists the files that git would list as tracked, or
// as untracked and not ignored, but leaves out an ignored file that is tracked;
// see [Workspace.Tracked]. Files in nested repositories are listed by the rules
// of those.
// Symbolic links are listed but not followed. Nearer files come before deeper
// ones. What cannot be read is left out. When ctx ends, the listing has the
// files found so far. A file may have 20,000 rules, and all files together
// 400,000: rules over the limit hide nothing, and the listing is not complete.
// The error says that dir itself cannot be read.
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
	if start := wk.visit().folder(filepath.ToSlash(dir), make(map[string]*folder)); start != nil { // otherwise dir itself is ignored
		wk.base = start.below()
		wk.run(*start)
	}
	wk.Complete = wk.Complete && !wk.budget.spent() && ctx.Err() == nil
	return wk.Listing, nil
}

// Listed returns those of names that List would list if they are existing
// files. If dirs is set, it returns those that List would descend into if they
// are directories. Names are slash-separated and relative to the root, and none
// of their parent directories is a symbolic link. ok is false if ctx ended or
// there are too many rules: then the result may have names that List would
// leave out.
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

// inside returns the folder of a directory with the rules for its entries, or
// nil if the directory is ignored. known caches the folders already returned.
func (v *visit) inside(dir string, known map[string]*folder) *folder {
	f, is := known[dir]
	if is {
		return f
	}
	if f = v.folder(dir, known); f != nil {
		*f = v.repository(*f)
		f.rules = v.ownRules(*f)
	}
	known[dir] = f
	return f
}

// folder returns the folder of a directory with the rules from above, or nil if
// the directory is ignored.
func (v *visit) folder(dir string, known map[string]*folder) *folder {
	if dir == "." {
		top := v.top()
		v.root = top.below()
		return &top
	}
	up := v.inside(path.Dir(dir), known)
	if up == nil {
		return nil
	}
	name := path.Base(dir)
	f := up.child(name, up.rules)
	if VersionControl(name) || up.rules.ignored(f.path, up.below(), true) {
		return nil
	}
	return &f
}

// A folder is a directory that the walk passes.
type folder struct {
	path  string // slash-separated, from the top of the repository around the root; "" is the top
	rules *level // from above; without its own ignore file
	top   bool   // of the repository of the rules
}

// child returns the folder for a directory in f; rules apply in f.
func (f folder) child(name string, rules *level) folder {
	return folder{path: f.join(name), rules: rules}
}

func (f folder) join(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "/" + name
}

// below returns the offset in a path at which the part below f begins.
func (f folder) below() int {
	if f.path == "" {
		return 0
	}
	return len(f.path) + 1
}

// A walk lists a tree.
type walk struct {
	Listing
	queue []folder // not yet visited; may hold all directories of the tree
	size  int      // bytes in Files

	// Fixed while visits run.
	w     *Workspace
	ctx   context.Context
	limit int
	root  int // offset in a path at which the part below the root begins
	base  int // offset in a path at which the paths of Files begin

	budget budget // for the rules
}

// A visit is the result of one directory. The walk also uses one on the way to
// its first directory.
type visit struct {
	*walk
	files []string
	size  int // bytes in files
	dirs  []folder
	cut   bool // a limit or the end of ctx left entries out
}

func (wk *walk) visit() *visit { return &visit{walk: wk} }

// run visits start and everything below it, level by level.
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

// take adds the result of a visit.
func (wk *walk) take(v *visit) {
	room := wk.limit - len(wk.Files)
	wk.size += v.size
	wk.Complete = !v.cut && len(v.files) <= room && wk.size <= maxListBytes
	wk.Files = append(wk.Files, v.files[:min(room, len(v.files))]...)
	wk.queue = append(wk.queue, v.dirs...)
}

// visitAll visits folders concurrently, and skips those after the limit is
// reached. It returns the visits in the order of the folders, after all its
// goroutines have ended.
func (wk *walk) visitAll(folders []folder) []*visit {
	visits := make([]*visit, len(folders))
	room := int64(wk.limit - len(wk.Files))
	var next, found atomic.Int64
	work := func() {
		buf := make([]byte, entriesBytes)
		for {
			// found must be read before the next folder is taken: it then counts
			// only files of folders before that one.
			enough := found.Load() > room
			i := int(next.Add(1)) - 1
			if i >= len(folders) {
				return
			}
			runtime.Gosched() // a listing may run in the background of a search
			visits[i] = wk.visit()
			if visits[i].cut = enough; !enough {
				visits[i].read(folders[i], buf)
				found.Add(int64(len(visits[i].files)))
			}
		}
	}
	var others sync.WaitGroup
	for range min(len(folders), maxWalkers, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work) // ends when all folders are visited
	}
	work()
	others.Wait()
	return visits
}

// name returns the folder's path relative to the root, with the system's
// separators.
func (wk *walk) name(f folder) string {
	if len(f.path) <= wk.root {
		return "."
	}
	return filepath.FromSlash(f.path[wk.root:])
}

// read lists the files and directories in one directory.
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

// entriesBytes is the size of the buffer for one read of a directory.
const entriesBytes = 32 << 10

// moreEntries is added to twice the limit of a listing, for the entries read of
// one directory. Some of them may be ignored.
const moreEntries = 4096

// An entry is one name in a directory.
type entry struct {
	name string
	kind fs.FileMode // the type bits alone
}

func (e entry) isDir() bool { return e.kind == fs.ModeDir }

func (e entry) isFile() bool { return e.kind == 0 || e.kind == fs.ModeSymlink }

// has reports whether sorted entries contain the name.
func has(entries []entry, name string) bool {
	_, found := slices.BinarySearchFunc(entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	return found
}

// entries reads a directory, sorted by name. It stops early if the listing
// ends.
func (v *visit) entries(f folder, buf []byte) []entry {
	dir, err := v.w.OpenFile(v.name(f)) // it may be a pipe by now
	if err != nil {
		return nil
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil || !info.IsDir() {
		return nil
	}
	var all []entry
	for more := true; more; {
		if v.ctx.Err() != nil || len(all) > 2*v.limit+moreEntries {
			v.cut = true
			break
		}
		all, more = readEntries(dir, buf, all)
	}
	for i, e := range all {
		if e.kind == fs.ModeIrregular { // or the file system did not say
			if info, err := v.w.Lstat(filepath.Join(v.name(f), e.name)); err == nil {
				all[i].kind = info.Mode().Type()
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all
}
