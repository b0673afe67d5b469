package utility

import (
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// A listing is the files below a directory at one time. It is immutable.
type listing struct {
	index
	complete bool          // no bound left anything out
	full     bool          // the bound of files left some out
	unsure   bool          // it may contain tracked files that do not exist
	asked    time.Time     // when all files were listed; all earlier changes are in it
	asOf     time.Time     // likewise, including the changes reported since
	took     time.Duration // how long listing all files took

	dependencies []fileState // the files that it depends on, and their states
}

// relist returns the files below dir, which is relative to the root. It uses
// the list of git if there is git and a repository, else the workspace's own.
// The workspace lists nested repositories itself. Tracked files count even if
// git cannot list the others.
func (h *lister) relist(ctx context.Context, dir string) (f *listing, err error) {
	f = &listing{asked: time.Now(), dependencies: h.dependencies(dir)}
	f.asOf = f.asked
	defer func() { f.took = time.Since(f.asked) }()
	var tracked []string
	if h.ws.Repository(dir) {
		g, listed := h.askGit(ctx, dir)
		tracked = g.files
		if listed {
			h.listNested(ctx, g)
			f.index, f.complete, f.full = newIndex(h.withoutExcluded(dir, g.files), true), !g.cut, g.full
			f.unsure = true
			return f, nil
		}
	}
	own, err := h.ws.List(ctx, dir, h.limit)
	f.full = !own.Complete && ctx.Err() == nil || len(own.Files)+len(tracked) > h.limit
	f.complete = own.Complete && !f.full
	if f.unsure = len(tracked) > 0; f.unsure {
		own.Files = merged(own.Files, tracked[:min(len(tracked), h.limit-len(own.Files))])
	}
	f.index = newIndex(h.withoutExcluded(dir, own.Files), false)
	return f, err
}

// listNested adds the files of nested repositories.
func (h *lister) listNested(ctx context.Context, g *gitListing) {
	var files []string
	for _, nested := range g.nested {
		own, err := h.ws.List(ctx, filepath.FromSlash(path.Join(g.dir, nested)), h.limit-len(g.files)-len(files))
		if err != nil {
			continue // a submodule that is not checked out
		}
		for _, file := range own.Files {
			files = append(files, nested+"/"+file)
		}
		g.cut = g.cut || !own.Complete
	}
	if len(files) > 0 {
		g.files = merged(g.files, files)
	}
}

// askGit returns the files that git lists below dir. It returns false if git is
// not installed, does not list the directory or does not answer; the result
// then has the tracked files if git listed them.
//
// It asks for tracked and for other files at the same time, because each takes
// one processor. It does not ask git whether tracked files exist: git would
// stat every file, which takes as long again.
func (h *lister) askGit(ctx context.Context, dir string) (*gitListing, bool) {
	tracked, others := h.newGitListing(dir), h.newGitListing(dir)
	var asked sync.WaitGroup
	var err error
	asked.Go(func() { err = others.ask(ctx, aboutRules, []string{tracked.dir}, "-o", "--exclude-standard") }) // ends with git, which ctx bounds
	err2 := tracked.ask(ctx, aboutIndex, []string{tracked.dir}, "-s", "-c")
	asked.Wait()
	switch {
	case ctx.Err() != nil || tracked.full || others.full:
		tracked.join(others)
		tracked.cut = true
		return tracked, true
	case err2 != nil:
		return h.newGitListing(dir), false // the failed call may have listed some files
	case err != nil:
		return tracked, false
	}
	tracked.join(others)
	if tracked.full {
		tracked.cut = true
		return tracked, true
	}
	return tracked, len(tracked.files) > 0 || len(tracked.nested) > 0 || !h.rootIgnored(ctx)
}

// isThere reports whether a file, slash-separated and relative to dir, exists.
func (h *lister) isThere(dir, file string) bool {
	info, err := h.ws.Lstat(filepath.Join(dir, filepath.FromSlash(file)))
	return err == nil && !info.IsDir()
}

// A gitListing is git's answer about the files below dir.
type gitListing struct {
	of     *lister
	dir    string          // slash-separated, relative to the root
	files  []string        // relative to dir, like all below
	seen   map[string]bool // files with several index stages
	nested []string        // other repositories
	size   int             // bytes in files
	text   strings.Builder // the paths in files, appended until the piece is full
	full   bool            // there were more files than the limit
	cut    bool            // git was stopped before its end
}

func (h *lister) newGitListing(dir string) *gitListing {
	return &gitListing{of: h, dir: filepath.ToSlash(dir), seen: make(map[string]bool)}
}

// ask runs git to its end, or until g is full.
//
// Git runs in the root and gets paths in the repository. It does not follow
// symbolic links in them, so replacing a directory with a link has no effect.
func (g *gitListing) ask(ctx context.Context, about question, paths []string, what ...string) error {
	args := append([]string{"--literal-pathspecs", "ls-files", "-z", "-t"}, what...)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return g.of.git(ctx, about, func(entry []byte) bool {
		if g.take(entry); g.full {
			cancel() // the rest of the output is not needed
		}
		return !g.full
	}, append(append(args, "--"), paths...)...)
}

// take adds an entry unless g is full.
func (g *gitListing) take(entry []byte) {
	if g.full = len(g.files) == g.of.limit || g.size > maxListingBytes; !g.full {
		g.add(entry)
	}
}

// add adds an entry: "T mode object stage\tpath" for a tracked file and "?
// path" for another.
func (g *gitListing) add(entry []byte) {
	tag, rest, _ := bytes.Cut(entry, []byte(" "))
	submodule := false
	if string(tag) != "?" {
		mode, after, _ := bytes.Cut(rest, []byte("\t"))
		submodule, rest = bytes.HasPrefix(mode, []byte("160000 ")), after
	}
	file := g.keep(rest)
	if g.dir != "." {
		file = strings.TrimPrefix(file, g.dir+"/")
	}
	dir, isDir := strings.CutSuffix(file, "/")
	switch {
	case ofVersionControl(file), !isDir && !fs.ValidPath(file): // the index can hold such paths
		return
	case isDir || submodule:
		g.nested = append(g.nested, dir)
		return
	case string(tag) == "S": // in a sparse checkout most of them do not exist
		if !g.of.isThere(g.dir, file) {
			return
		}
	case string(tag) == "M": // a conflict has an entry for each side
		if g.seen[file] {
			return
		}
		g.seen[file] = true
	}
	g.files, g.size = append(g.files, file), g.size+len(file)
}

// keep copies a name out of git's output. Many names share one piece of memory,
// because an allocation for each costs more time and memory.
func (g *gitListing) keep(name []byte) string {
	if g.text.Cap()-g.text.Len() < len(name) {
		g.text = strings.Builder{}
		g.text.Grow(max(textPiece, len(name)))
	}
	from := g.text.Len()
	g.text.Write(name)
	return g.text.String()[from:]
}

// textPiece is the size of one piece, in bytes.
const textPiece = 64 << 10

// ofVersionControl reports whether a path leads into a version-control
// directory.
func ofVersionControl(file string) bool {
	for name := range strings.SplitSeq(file, "/") {
		if workspace.VersionControl(name) {
			return true
		}
	}
	return false
}

// join adds the files of another listing of the same directory.
func (g *gitListing) join(other *gitListing) {
	g.files = merged(g.files, other.files)
	g.nested = append(g.nested, other.nested...)
	g.size += other.size
	g.full = g.full || other.full || g.size > maxListingBytes
	if len(g.files) > g.of.limit {
		g.files, g.full = g.files[:g.of.limit], true
	}
}

// merged returns the files of two lists in order and without duplicates. It
// sorts only lists that are not sorted, because sorting would take longer than
// all else; git's lists are sorted.
func merged(a, b []string) []string {
	for _, list := range [][]string{a, b} {
		if !slices.IsSorted(list) {
			slices.Sort(list)
		}
	}
	all := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return slices.Compact(append(append(all, a...), b...))
}

// A fileState is the state of a file that a listing depends on. The file is not
// below the listed directory, so the system does not report its changes.
type fileState struct {
	path string      // absolute
	info fs.FileInfo // nil if the file did not exist
}

func newFileState(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	return fileState{path, info}
}

func fileStatesOf(paths []string) []fileState {
	marks := make([]fileState, len(paths))
	for i, path := range paths {
		marks[i] = newFileState(path)
	}
	return marks
}

// unchanged reports whether the file is still in that state. A directory must
// be the same one, with any content.
func (m fileState) unchanged() bool {
	now := newFileState(m.path).info
	switch {
	case now == nil || m.info == nil:
		return (now == nil) == (m.info == nil)
	case !os.SameFile(now, m.info):
		return false
	}
	return now.IsDir() || now.Size() == m.info.Size() && now.ModTime().Equal(m.info.ModTime())
}

// allUnchanged reports whether all files are unchanged.
func allUnchanged(marks []fileState) bool {
	return !slices.ContainsFunc(marks, func(m fileState) bool { return !m.unchanged() })
}

// dependencies returns the states of the files that the listing of dir depends
// on besides those below it: dir itself, the ignore files above it, and git's
// own files.
func (h *lister) dependencies(dir string) []fileState {
	top, files, shared := h.ws.GitFiles()
	top = cmp.Or(top, h.ws.Root())
	marks := fileStatesOf(slices.Concat([]string{h.ws.At(dir)}, files, shared))
	for at := h.ws.At(dir); at != top; {
		parent := filepath.Dir(at)
		if parent == at {
			break
		}
		at = parent
		marks = append(marks, newFileState(filepath.Join(at, ".gitignore")))
	}
	return marks
}
