package utility

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/child"
	"github.com/seed-028515a8/maestro/workspace"
)

// list returns the files below rel: what git lists where there is git and a
// repository, else what the workspace finds by itself. The files of other
// repositories below rel are found by the workspace in any case.
func (h *Host) list(ctx context.Context, rel string) (workspace.Listing, error) {
	dir, err := h.ws.Real(rel)
	if err != nil {
		return workspace.Listing{}, err
	}
	now := time.Now()
	if files, ok := h.listings.get(h.ws, dir, now); ok {
		return workspace.Listing{Files: files, Complete: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()
	listing, depends, err := h.listAnew(ctx, dir)
	if err == nil && listing.Complete && depends.Complete {
		h.listings.put(keptListing{dir: dir, files: listing.Files, depends: depends, made: now})
	}
	return listing, err
}

// listAnew returns the files below dir, and the workspace's own listing, which
// tells how long the first one is current.
func (h *Host) listAnew(ctx context.Context, dir string) (listing, own workspace.Listing, err error) {
	g := &gitListing{ws: h.ws, dir: filepath.ToSlash(dir), removed: make(map[string]bool), seen: make(map[string]bool)}
	var asked sync.WaitGroup
	defer asked.Wait()
	listed := false
	if h.ws.Repository(dir) {
		asked.Go(func() { listed = h.askGit(ctx, g) }) // ends with git, which ctx bounds
	}
	own, err = h.ws.List(ctx, dir, maxSearchFiles)
	if asked.Wait(); err != nil || !listed {
		return own, own, err
	}
	return g.listing(own), own, nil
}

// askGit has g filled by git. It reports false if git is not there or does not
// list the directory.
//
// It runs in the root and is told the directory as a path in the repository,
// which it does not look for behind symbolic links, so what is swapped in
// meanwhile leads nowhere.
func (h *Host) askGit(ctx context.Context, g *gitListing) bool {
	err := h.runGit(ctx, g)
	switch {
	case ctx.Err() != nil || g.full:
		g.cut = true
		return true
	case err != nil:
		return false
	}
	return len(g.files) > 0 || len(g.nested) > 0 || !h.rootIgnored(ctx)
}

// runGit runs git to its end, or until g is full.
func (h *Host) runGit(ctx context.Context, g *gitListing) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := h.git(ctx, "--literal-pathspecs", "ls-files", "-z", "-t", "-s", "-c", "-o", "-d", "--exclude-standard", "--", g.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if g.take(out); g.full {
		cancel() // what else there is does not count
	}
	return cmd.Wait()
}

// rootIgnored reports whether the repository around the root ignores all of it.
func (h *Host) rootIgnored(ctx context.Context) bool {
	return h.git(ctx, "check-ignore", "-q", ".").Run() == nil
}

// git returns a git process in the root. It runs nothing that the repository's
// configuration names.
func (h *Host) git(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"-c", "core.fsmonitor=false", "-C", h.ws.Root()}, args...)
	cmd := exec.CommandContext(ctx, "git", args...)
	env := child.Environ(os.Environ(), h.opts.Hosted, h.opts.EnvPass)
	cmd.Env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0")
	return cmd
}

// A gitListing is what git said about the files below dir.
type gitListing struct {
	ws      *workspace.Workspace
	dir     string          // slash-separated, relative to the root
	files   []string        // relative to dir, as are all below
	seen    map[string]bool // files that have several stages
	removed map[string]bool // tracked and not there
	nested  []string        // other repositories
	full    bool            // there were more files than may be listed
	cut     bool            // git did not come to its end
}

// take reads git's output: "T mode object stage\tpath" for tracked files, where
// T is R for those that are not there, and "? path" for others.
func (g *gitListing) take(out io.Reader) {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		entry, err := lines.ReadString(0)
		if err != nil {
			return // git ends every entry
		}
		if len(g.files) == maxSearchFiles {
			g.full = true
			return
		}
		g.add(strings.TrimSuffix(entry, "\x00"))
	}
}

func (g *gitListing) add(entry string) {
	tag, file, _ := strings.Cut(entry, " ")
	submodule := false
	if tag != "?" {
		mode, after, _ := strings.Cut(file, "\t")
		submodule, file = strings.HasPrefix(mode, "160000 "), after
	}
	if g.dir != "." {
		file = strings.TrimPrefix(file, g.dir+"/")
	}
	dir, isDir := strings.CutSuffix(file, "/")
	switch {
	case slices.ContainsFunc(strings.Split(file, "/"), workspace.VersionControl):
	case isDir || submodule:
		g.nested = append(g.nested, dir)
	case tag == "R":
		g.removed[file] = true
	case tag == "S": // of a sparse checkout, and mostly not there
		if _, err := g.ws.Lstat(filepath.FromSlash(path.Join(g.dir, file))); err == nil {
			g.files = append(g.files, file)
		}
	case tag == "M": // a conflict has an entry for each side
		if !g.seen[file] {
			g.seen[file] = true
			g.files = append(g.files, file)
		}
	default:
		g.files = append(g.files, file)
	}
}

// listing returns the files that are there, and those that own has in other
// repositories.
func (g *gitListing) listing(own workspace.Listing) workspace.Listing {
	files := slices.DeleteFunc(g.files, func(file string) bool { return g.removed[file] })
	for _, dir := range g.nested {
		for _, file := range own.Files {
			if strings.HasPrefix(file, dir+"/") {
				files = append(files, file)
			}
		}
	}
	complete := !g.cut && (len(g.nested) == 0 || own.Complete)
	return workspace.Listing{Files: files, Complete: complete}
}
