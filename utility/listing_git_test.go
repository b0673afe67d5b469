//go:build unix

package utility

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quietGit keeps the configuration of the machine out of the test. It returns the
// home directory.
func quietGit(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	return home
}

// newRepository makes a room that is a repository, in which a and x.log are
// tracked, b is not, and *.log and own are ignored.
func newRepository(t *testing.T) *room {
	t.Helper()
	r := newRoom(t, Options{}, map[string]string{".gitignore": "*.log\nown\n", "a": "", "b": "", "x.log": "", "y.log": "", "sub/c": "", "sub/own": ""})
	gitInit(t, r.root)
	git(t, r.root, "add", "a", ".gitignore")
	git(t, r.root, "add", "-f", "x.log")
	return r
}

// Git waits for ever where it reads a pipe. A search does not, finds what is
// there, and the next one does not even ask.
func TestPipesAreNotWaitedForByGit(t *testing.T) {
	const config, exclude, index, head = ".git/config", ".git/info/exclude", ".git/index", ".git/HEAD"
	own := []string{".gitignore", "a", "b", "sub/c"}
	all := append([]string{"x.log"}, own...)
	for name, c := range map[string]struct {
		pipe   string
		config []string
		want   []string
		rules  bool // that is all that git does not tell
	}{
		"ignore file":      {"sub/.gitignore", nil, all, true},
		"of the clone":     {exclude, nil, own, false},
		"configuration":    {config, nil, own, false},
		"index":            {index, nil, own, false},
		"head":             {head, nil, own, false},
		"included":         {".git/pipe", []string{"include.path", "pipe"}, own, false},
		"that is named":    {".git/pipe", []string{"core.excludesFile", ".git/pipe"}, all, true},
		"of common things": {".git/commondir", nil, own, false},
	} {
		t.Run(name, func(t *testing.T) {
			quietGit(t)
			r := newRepository(t)
			if c.config != nil {
				git(t, r.root, append([]string{"config"}, c.config...)...)
			}
			pipe := filepath.Join(r.root, c.pipe)
			if err := os.Remove(pipe); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			must(t, syscall.Mkfifo(pipe, 0o600))
			wantList(t, "first", r.listed("."), slices.Clone(c.want)...)
			write(t, filepath.Join(r.root, "new"), "")
			r.lists("next", ".", append([]string{"new"}, c.want...)...)
			if err := r.git(t.Context(), aboutRules, every, "check-ignore", "y.log"); err != errGitHangs {
				t.Errorf("got %v, want git not to be asked", err)
			}
			if err := r.git(t.Context(), aboutIndex, every, "ls-files"); c.rules != (err == nil) {
				t.Errorf("got %v, want git to be asked about the index: %v", err, c.rules)
			}
		})
	}
}

// Git is asked again once its files have changed.
func TestGitIsAskedAgain(t *testing.T) {
	quietGit(t)
	r := newRepository(t)
	pipe := filepath.Join(r.root, ".git/pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	git(t, r.root, "config", "core.excludesFile", pipe)
	wantList(t, "with a pipe", r.listed("."), ".gitignore", "a", "b", "sub/c", "x.log")
	r.rested()
	if !r.backoffs[aboutRules].active() {
		t.Error("got no doubt that git answers, want one")
	}
	git(t, r.root, "config", "core.excludesFile", "none")
	_, err := r.relist(t.Context(), ".")
	must(t, err)
	if r.backoffs[aboutRules].pause != 0 {
		t.Error("got a doubt that git answers, want git to be asked again")
	}
	d := new(gitBackoff)
	d.fail(nil)
	first := d.pause
	if d.fail(nil); d.pause != 2*first || !d.active() {
		t.Errorf("got a pause of %s after one of %s, want it twice as long", d.pause, first)
	}
	for range 10 {
		d.fail(nil)
	}
	if d.pause != maxIdle {
		t.Errorf("got a pause of %s, want at most %s", d.pause, maxIdle)
	}
	if d.reset(); d.active() {
		t.Error("got a doubt that has ended, want none")
	}
}

// evil makes a program that leaves a trace, and returns its path and that of the
// trace.
func evil(t *testing.T) (program, trace string) {
	t.Helper()
	dir := t.TempDir()
	program, trace = filepath.Join(dir, "evil"), filepath.Join(dir, "trace")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$0 $*\" >>"+trace+"\nexit 1\n"), 0o700))
	return program, trace
}

func wantNoTrace(t *testing.T, what, trace string) {
	t.Helper()
	if text, err := os.ReadFile(trace); err == nil {
		t.Errorf("%s: got %q run, want nothing", what, text)
	}
}

// newPartialClone makes a room that is a repository without one of its objects,
// which it takes a program to fetch.
func newPartialClone(t *testing.T, program string) *room {
	t.Helper()
	r := newRoom(t, Options{}, map[string]string{".gitignore": "*.log\n", "a": "", "b": ""})
	gitInit(t, r.root)
	git(t, r.root, "add", "a", ".gitignore")
	git(t, r.root, "commit", "-q", "-m", "one")
	git(t, r.root, "update-index", "--skip-worktree", ".gitignore")
	must(t, os.Remove(filepath.Join(r.root, ".gitignore")))
	const object = ".git/objects/39/7b4a7624e35fa60563a9c03b1213d93f7b6546" // "*.log\n"
	must(t, os.Remove(filepath.Join(r.root, object)))
	for key, value := range map[string]string{
		"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
		"remote.origin.url": t.TempDir(), "remote.origin.uploadpack": program, "protocol.allow": "always", "protocol.file.allow": "always",
	} {
		git(t, r.root, "config", key, value)
	}
	return r
}

// A search fetches nothing that git lacks, by what newer gits know and by what
// older ones do.
func TestSearchesFetchNothing(t *testing.T) {
	quietGit(t)
	program, trace := evil(t)
	r := newPartialClone(t, program)
	r.listed(".")
	r.rested()
	wantNoTrace(t, "search", trace)
	without := func(names ...string) {
		cmd := r.gitCommand(r.root, []string{"ls-files", "-o", "--exclude-standard"})
		cmd.Env = slices.DeleteFunc(cmd.Env, func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return slices.Contains(names, name)
		})
		_ = cmd.Run() // it may well fail
	}
	without("GIT_NO_LAZY_FETCH")
	wantNoTrace(t, "older git", trace)
	without("GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL")
	if _, err := os.Stat(trace); err != nil {
		t.Errorf("got %v, want a repository that runs a program", err)
	}
}

// Whatever programs a repository names, a search runs none of them.
func TestSearchesRunNothingOfTheRepository(t *testing.T) {
	quietGit(t)
	program, trace := evil(t)
	r := newRepository(t)
	hooks := filepath.Join(r.root, ".git/hooks")
	for _, name := range []string{"post-index-change", "pre-auto-gc", "reference-transaction", "post-checkout"} {
		write(t, filepath.Join(hooks, name), "")
		must(t, os.Remove(filepath.Join(hooks, name)))
		must(t, os.Symlink(program, filepath.Join(hooks, name)))
	}
	write(t, filepath.Join(r.root, ".gitattributes"), "* filter=evil diff=evil\n")
	git(t, r.root, "add", ".gitattributes")
	for _, key := range []string{
		"core.fsmonitor", "core.sshCommand", "core.pager", "pager.ls-files", "core.editor", "core.askPass", "core.gitProxy",
		"core.alternateRefsCommand", "credential.helper", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
		"diff.evil.textconv", "diff.external", "gpg.program", "uploadpack.packObjectsHook",
	} {
		git(t, r.root, "config", key, program)
	}
	git(t, r.root, "config", "core.hooksPath", hooks)
	git(t, r.root, "config", "alias.ls-files", "!"+program)
	git(t, r.root, "config", "alias.check-ignore", "!"+program)
	_ = os.Remove(trace) // git add has run some
	write(t, filepath.Join(r.root, "a"), "changed")
	r.followed()
	write(t, filepath.Join(r.root, "new"), "")
	r.lists("changes", ".", ".gitattributes", ".gitignore", "a", "b", "new", "sub/c", "x.log")
	r.rested()
	wantNoTrace(t, "search", trace)
	git(t, r.root, "ls-files", "-o", "--exclude-standard")
	if _, err := os.Stat(trace); err != nil {
		t.Errorf("got %v, want a repository that runs a program", err)
	}
}

// The working tree is where the repository is, whatever its configuration says.
func TestSearchesDoNotLeaveTheWorkspaceByGit(t *testing.T) {
	quietGit(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "")
	write(t, filepath.Join(outside, "sub/secret"), "")
	want := []string{".gitignore", "a", "b", "sub/c", "x.log"}
	for name, do := range map[string]func(r *room){
		"another tree": func(r *room) { git(t, r.root, "config", "core.worktree", outside) },
		"no tree":      func(r *room) { git(t, r.root, "config", "core.bare", "true") },
		"a link": func(r *room) {
			write(t, filepath.Join(r.root, "link/secret"), "")
			git(t, r.root, "add", "link/secret")
			must(t, os.RemoveAll(filepath.Join(r.root, "link")))
			must(t, os.Symlink(outside, filepath.Join(r.root, "link")))
		},
		"the index of another": func(r *room) {
			gitInit(t, outside)
			git(t, outside, "add", ".")
			must(t, os.RemoveAll(filepath.Join(r.root, ".git")))
			must(t, os.RemoveAll(filepath.Join(r.root, "x.log")))
			write(t, filepath.Join(r.root, ".git"), "gitdir: "+filepath.Join(outside, ".git")+"\n")
		},
	} {
		r := newRepository(t)
		do(r)
		want := slices.Clone(want)
		switch name {
		case "a link":
			want = append(want, "link")
		case "the index of another":
			want = slices.DeleteFunc(want, func(file string) bool { return file == "x.log" })
		}
		wantList(t, name, r.listed("."), slices.Clone(want)...)
		r.followed()
		f, told := r.told()
		if f.unsure || !told {
			t.Errorf("%s: got a listing that is unsure, want one that is not", name)
		}
		wantList(t, name+", followed", r.listed("."), want...)
	}
}

// Linked working trees and submodules are repositories like others.
func TestGitTellsOfLinkedTreesAndSubmodules(t *testing.T) {
	quietGit(t)
	r := newRepository(t)
	git(t, r.root, "commit", "-q", "-m", "one")
	dir := t.TempDir()
	git(t, r.root, "worktree", "add", "-q", filepath.Join(dir, "tree"))
	git(t, dir, "init", "-q", "super")
	git(t, filepath.Join(dir, "super"), "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", r.root, "module")
	for _, at := range []string{"tree", "super/module"} {
		linked := roomAt(t, Options{}, filepath.Join(dir, at))
		f, err := linked.relist(t.Context(), ".")
		must(t, err)
		if !f.unsure {
			t.Errorf("%s: got a listing that is not by git, want one that is", at)
		}
		wantList(t, at, linked.listed("."), ".gitignore", "a", "x.log")
	}
}

// Of a git that hangs, or leaves a process that holds its output, nothing is left.
func TestNothingIsLeftOfGit(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want error
	}{
		"hangs":            {"sleep 1000 & sleep 1000", errGitHangs},
		"leaves a process": {"sleep 1000 &", nil},
		"fails":            {"exit 3", gitStatus(3)},
	} {
		t.Run(name, func(t *testing.T) {
			quietGit(t)
			r := newRepository(t)
			_, ended := r.witness("witness")
			programs := t.TempDir()
			script := "#!/bin/sh\nexec 3>" + filepath.Join(r.root, "witness") + "\necho >&3\n" + c.line + "\n"
			must(t, os.WriteFile(filepath.Join(programs, "git"), []byte(script), 0o700))
			t.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH"))
			ctx, cancel := context.WithTimeout(t.Context(), maxSearchTime)
			defer cancel()
			if err := r.git(ctx, aboutIndex, every, "ls-files"); err != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
			r.happens("the end of every process", ended)
		})
	}
}

// A search has half of its time left when git does not answer.
func TestGitHasHalfOfTheTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if got := gitTime(ctx); got > time.Hour/2 {
		t.Errorf("got %s of an hour, want half", got)
	}
	if got := gitTime(t.Context()); got != maxFollowTime/2 {
		t.Errorf("got %s, want %s", got, maxFollowTime/2)
	}
}

// A git of which no more is wanted ends, and that is not held against it.
func TestGitEndsOnceNoMoreIsWanted(t *testing.T) {
	quietGit(t)
	r := newRepository(t)
	for i := range 2000 { // more than a pipe holds
		write(t, filepath.Join(r.root, strings.Repeat("n", 200)+strconv.Itoa(i)), "")
	}
	none := func([]byte) bool { return false }
	if err := r.git(t.Context(), aboutIndex, none, "ls-files", "-z", "-o"); !errors.Is(err, errEnough) {
		t.Errorf("got %v, want %v", err, errEnough)
	}
	if r.backoffs[aboutIndex].active() {
		t.Error("got a doubt that git answers, want none")
	}
	if _, err := run(t.Context(), exec.Command("sh", "-c", "tr '\\0' x </dev/zero | head -c "+strconv.Itoa(maxEntry+1)), every); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("got %v for a path of %d bytes, want %v", err, maxEntry+1, bufio.ErrTooLong)
	}
}

// every wants all entries of git.
func every([]byte) bool { return true }

// Configuration files that include each other more often than can be read end
// neither a search nor what it finds.
func TestHostileConfigurationsAreSurvived(t *testing.T) {
	for name, files := range map[string]func(r *room){
		"a file that includes itself": func(r *room) {
			write(t, filepath.Join(r.root, ".git/config"), "[include]\n"+strings.Repeat("path = config\n", 20))
		},
		"files that include the next one": func(r *room) {
			write(t, filepath.Join(r.root, ".git/config"), "[include]\npath = 0\n")
			for i := range 8 {
				write(t, filepath.Join(r.root, ".git", strconv.Itoa(i)), "[include]\n"+strings.Repeat("path = "+strconv.Itoa(i+1)+"\n", 20))
			}
		},
	} {
		for _, at := range []string{".", "sub"} {
			t.Run(name+" in "+at, func(t *testing.T) {
				quietGit(t)
				r := newRepository(t)
				if files(r); at != "." {
					sub := filepath.Join(r.root, at)
					must(t, os.Rename(filepath.Join(r.root, ".git"), filepath.Join(sub, ".git")))
					must(t, os.Remove(filepath.Join(r.root, ".gitignore")))
					write(t, filepath.Join(sub, ".gitignore"), "own\n")
					wantList(t, at, r.listed("."), "a", "b", "x.log", "y.log", "sub/.gitignore", "sub/c")
					return
				}
				wantList(t, at, r.listed("."), ".gitignore", "a", "b", "sub/c")
			})
		}
	}
}
