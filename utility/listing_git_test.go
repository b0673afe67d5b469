//go:build unix

package utility

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
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

// Where git would read a pipe, and wait for ever, a search finds what is there.
func TestPipesAreNotWaitedFor(t *testing.T) {
	const config, exclude, index, head = ".git/config", ".git/info/exclude", ".git/index", ".git/HEAD"
	own := []string{".gitignore", "a", "b", "sub/c"}
	all := append([]string{"x.log"}, own...)
	for name, c := range map[string]struct {
		pipe   string
		config []string
		want   []string
	}{
		"ignore file":      {"sub/.gitignore", nil, all},
		"of the clone":     {exclude, nil, all},
		"configuration":    {config, nil, all},
		"index":            {index, nil, own},
		"head":             {head, nil, own},
		"included":         {".git/pipe", []string{"include.path", "pipe"}, all},
		"that is named":    {".git/pipe", []string{"core.excludesFile", ".git/pipe"}, all},
		"of common things": {".git/commondir", nil, all},
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
		})
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
		wantList(t, at, linked.listed("."), ".gitignore", "a", "x.log")
	}
}

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
				wantList(t, at, r.listed("."), ".gitignore", "a", "b", "sub/c", "x.log")
			})
		}
	}
}
