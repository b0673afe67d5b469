package utility

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// git runs git in dir, without the configuration of the machine.
func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func gitInit(t testing.TB, dir string) {
	t.Helper()
	git(t, dir, "init", "-q", "-b", "main")
}

// listed returns what a search can find below dir.
func (r *room) listed(dir string) []string {
	r.t.Helper()
	f, below, err := r.list(r.t.Context(), filepath.FromSlash(dir))
	must(r.t, err)
	if !f.complete {
		r.t.Error("got a listing that is not complete, want all")
	}
	return f.in(below)
}

// in returns the files below a directory, in their order.
func (x *index) in(dir string) []string {
	var files []string
	for _, s := range x.below(dir) {
		for i := s.from; i < s.to; i++ {
			if !s.sieves[i].gone {
				files = append(files, s.block.files[i].path[newCut(dir).size:])
			}
		}
	}
	return files
}

// lists waits until a search can find these files below dir.
func (r *room) lists(what, dir string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	for began := time.Now(); ; runtime.Gosched() {
		got := r.listed(dir)
		if slices.Equal(got, want) {
			return
		}
		if time.Since(began) > patience {
			r.t.Fatalf("%s: got %q, want %q", what, got, want)
		}
	}
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestGitTellsWhatIsThere(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GIT_DIR", "/nowhere") // of the hook that started the server
	write(t, filepath.Join(home, ".config/git/ignore"), "*.global\n")
	r := newRoom(t, Options{}, map[string]string{
		".gitignore": "*.log\n", ".git/info/exclude": "", "a.go": "", "tracked.log": "", "ignored.log": "", "gone.go": "", "x.global": "",
		".hidden/f": "", "sub/b c ☃.go": "", "sub/.svn/entries": "", "new\nline": "",
	})
	unset(t, "GIT_DIR")
	gitInit(t, r.root)
	git(t, r.root, "add", "-f", "a.go", "tracked.log", "gone.go", "sub/b c ☃.go")
	must(t, os.Remove(filepath.Join(r.root, "gone.go")))
	t.Setenv("GIT_DIR", "/nowhere")
	wantList(t, "root", r.listed("."), ".gitignore", "a.go", "tracked.log", ".hidden/f", "sub/b c ☃.go", "new\nline")
	wantList(t, "sub", r.listed("sub"), "b c ☃.go")
	write(t, filepath.Join(r.root, ".git/info/exclude"), "a.*\n")
	write(t, filepath.Join(r.root, "a.new"), "")
	r.lists("with info/exclude", ".", ".gitignore", "a.go", "tracked.log", ".hidden/f", "sub/b c ☃.go", "new\nline")
}

func unset(t *testing.T, name string) {
	t.Helper()
	must(t, os.Unsetenv(name))
}

// A search goes by the settings by which git goes.
func TestSearchesAndGitHaveTheSameSettings(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	at := func(name string) string { return filepath.Join(home, name) }
	write(t, at(".config/git/ignore"), "default\n")
	write(t, at("xdg/git/ignore"), "xdg\n")
	write(t, at("config"), "[core]\nexcludesFile = "+filepath.ToSlash(at("rules"))+"\n")
	write(t, at("rules"), "named\n")
	all := []string{"default", "xdg", "named", "kept"}
	for name, tt := range map[string]struct {
		env     map[string]string
		ignored string
	}{
		"none":             {nil, "default"},
		"xdg":              {map[string]string{"XDG_CONFIG_HOME": at("xdg")}, "xdg"},
		"global":           {map[string]string{"GIT_CONFIG_GLOBAL": at("config")}, "named"},
		"system":           {map[string]string{"GIT_CONFIG_SYSTEM": at("config"), "GIT_CONFIG_NOSYSTEM": "0"}, "named"},
		"not the system's": {map[string]string{"GIT_CONFIG_SYSTEM": at("config"), "GIT_CONFIG_NOSYSTEM": "1"}, "default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", "")
			t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			for key, value := range tt.env {
				t.Setenv(key, value)
			}
			r := newRoom(t, Options{}, map[string]string{"default": "", "xdg": "", "named": "", "kept": ""})
			gitInit(t, r.root)
			t.Setenv("GIT_DIR", "/nowhere")
			wantList(t, "root", r.listed("."), slices.DeleteFunc(slices.Clone(all), func(file string) bool { return file == tt.ignored })...)
		})
	}
}

func TestOtherRepositoriesAreListedToo(t *testing.T) {
	for _, outer := range []bool{true, false} {
		r := newRoom(t, Options{}, map[string]string{
			"top": "", "nested/.gitignore": "*.log\n", "nested/in": "", "nested/x.log": "", "module/file": "", "y.log": "",
		})
		gitInit(t, filepath.Join(r.root, "nested"))
		gitInit(t, filepath.Join(r.root, "module"))
		git(t, filepath.Join(r.root, "module"), "add", "file")
		git(t, filepath.Join(r.root, "module"), "commit", "-q", "-m", "one")
		if outer {
			gitInit(t, r.root)
			git(t, r.root, "-c", "advice.addEmbeddedRepo=false", "add", "module")
		}
		wantList(t, "root", r.listed("."), "top", "y.log", "nested/.gitignore", "nested/in", "module/file")
		wantList(t, "nested", r.listed("nested"), ".gitignore", "in")
	}
}

func TestRootThatIsIgnoredAroundIsListed(t *testing.T) {
	home := t.TempDir()
	gitInit(t, home)
	write(t, filepath.Join(home, ".gitignore"), "*\n")
	work := filepath.Join(home, "work")
	write(t, filepath.Join(work, "a"), "")
	write(t, filepath.Join(work, ".gitignore"), "*.log\n")
	write(t, filepath.Join(work, "x.log"), "")
	r := roomAt(t, Options{}, work)
	wantList(t, "root", r.listed("."), ".gitignore", "a")
}

func TestConflictsAndSparseFilesAreListedOnce(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"f": "one\n", "sparse/s": "s", "kept/k": "k"})
	gitInit(t, r.root)
	git(t, r.root, "add", ".")
	git(t, r.root, "commit", "-q", "-m", "one")
	git(t, r.root, "checkout", "-q", "-b", "other")
	write(t, filepath.Join(r.root, "f"), "two\n")
	git(t, r.root, "commit", "-q", "-am", "two")
	git(t, r.root, "checkout", "-q", "main")
	write(t, filepath.Join(r.root, "f"), "three\n")
	git(t, r.root, "commit", "-q", "-am", "three")
	cmd := exec.CommandContext(t.Context(), "git", "-c", "user.name=a", "-c", "user.email=a@example.org", "merge", "-q", "other")
	cmd.Dir = r.root
	if cmd.Run() == nil {
		t.Fatal("got a merge, want a conflict")
	}
	wantList(t, "in a conflict", r.listed("."), "f", "kept/k", "sparse/s")
	git(t, r.root, "merge", "--abort")
	git(t, r.root, "sparse-checkout", "set", "kept")
	r.lists("sparse", ".", "f", "kept/k")
}

func TestRepositoryRunsNoProgramsOfItsOwn(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"f": "", "hook": "#!/bin/sh\ntouch ran\n"})
	must(t, os.Chmod(filepath.Join(r.root, "hook"), 0o700))
	gitInit(t, r.root)
	git(t, r.root, "config", "core.fsmonitor", filepath.Join(r.root, "hook"))
	wantList(t, "root", r.listed("."), "f", "hook")
	if _, err := os.Stat(filepath.Join(r.root, "ran")); err == nil {
		t.Error("got a program that ran, want none")
	}
}

func TestWithoutGitTheWorkspaceLists(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := newRoom(t, Options{}, map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".gitignore": "*.log\n", "a": "", "b.log": ""})
	wantList(t, "root", r.listed("."), ".gitignore", "a")
}

func TestBrokenRepositoryIsListedAnyhow(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{".git/HEAD": "nonsense", ".gitignore": "*.log\n", "a": "", "b.log": ""})
	wantList(t, "root", r.listed("."), ".gitignore", "a")
}

func TestUnfinishedListingIsTruncated(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"needle": ""})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, _, err := r.list(ctx, ".")
	if err != nil || f.complete {
		t.Errorf("got complete %v, %v; want a listing that was cut short", f.complete, err)
	}
	if err := r.Do(ctx, "alice", &contracts.UtilityFileSearch{SearchID: "s", Query: "needle"}); err == nil {
		t.Error("got no error, want that of the call")
	}
}

// A workspace with more files than may be listed is not listed for every search.
func TestWorkspaceThatIsTooLargeIsListedNowAndThen(t *testing.T) {
	for _, withGit := range []bool{true, false} {
		r := newRoom(t, Options{}, map[string]string{"a": "", "b/c": "", "b/d": "", "e/f": ""})
		r.limit, r.quick = 3, 0
		if withGit {
			gitInit(t, r.root)
		}
		f, _, err := r.list(t.Context(), ".")
		must(t, err)
		if f.complete || f.hurried || f.count != 3 {
			t.Errorf("git %v: got %d files, complete %v; want three and no more", withGit, f.count, f.complete)
		}
		r.rested()
		r.lister.mu.Lock()
		r.lister.resting = time.Now().Add(time.Hour)
		r.lister.mu.Unlock()
		r.lister.markStale(false)
		for range 3 {
			if again, _, err := r.list(t.Context(), "."); err != nil || !again.asked.Equal(f.asked) {
				t.Errorf("git %v: got another listing, %v; want the one before until it is time", withGit, err)
			}
		}
	}
}
