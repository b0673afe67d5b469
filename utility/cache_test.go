package utility

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rested waits until nobody is at the listing.
func (r *room) rested() { r.lister.work.Wait() }

// told returns the newest listing, and whether its changes are told.
func (r *room) told() (*listing, bool) {
	r.lister.mu.Lock()
	defer r.lister.mu.Unlock()
	return r.lister.current, r.lister.reported
}

// needs returns what it takes to make the listing true.
func (r *room) needs() need {
	_, need := r.lister.state(time.Now())
	return need
}

// followed lists the workspace and returns the listing, whose changes must be
// told from now on.
func (r *room) followed() *listing {
	r.t.Helper()
	r.listed(".")
	r.rested()
	f, told := r.told()
	if !told {
		r.t.Fatal("got a listing of whose changes nobody tells, want one that follows")
	}
	return f
}

// fed returns how many directories the listing follows.
func (r *room) fed() int {
	r.t.Helper()
	r.rested()
	n := 0
	r.ofTree(func(l *lookout) {
		for _, at := range l.nodes() {
			if at.followed {
				n++
			}
		}
	})
	r.sound()
	return n
}

// allow sets how many directories the system watches, and how many of them for
// listings.
func (r *room) allow(most, followed int) {
	r.ofTree(func(l *lookout) { l.most, l.forListings = most, followed })
}

func TestSearchesFollowChanges(t *testing.T) {
	for _, withGit := range []bool{true, false} {
		t.Run(fmt.Sprintf("git %v", withGit), func(t *testing.T) { followChanges(t, withGit) })
	}
}

func followChanges(t *testing.T, withGit bool) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	r := newRoom(t, Options{}, map[string]string{
		"a": "", "sub/b": "", "sub/deep/c": "", ".gitignore": "*.log\n/out/\n", "out/x": "", "tracked.log": "",
	})
	must(t, os.MkdirAll(filepath.Join(r.root, "empty/below"), 0o700))
	must(t, os.MkdirAll(filepath.Join(r.root, "*odd/:x"), 0o700))
	files := []string{".gitignore", "a", "sub/b", "sub/deep/c"}
	if withGit {
		gitInit(t, r.root)
		git(t, r.root, "add", ".")
		git(t, r.root, "commit", "-q", "-m", "one")
	}
	wantList(t, "first", r.listed("."), slices.Clone(files)...)
	at := func(rel string) string { return filepath.Join(r.root, filepath.FromSlash(rel)) }
	step := func(what string, change func(), add, gone []string) {
		t.Helper()
		r.followed()
		change()
		files = slices.DeleteFunc(append(files, add...), func(f string) bool { return slices.Contains(gone, f) })
		r.lists(what, ".", slices.Clone(files)...)
	}
	create := func(rel string) func() { return func() { write(t, at(rel), "") } }
	some := func(files ...string) []string { return files }
	step("a new file", create("new"), some("new"), nil)
	step("one below", create("sub/deep/new"), some("sub/deep/new"), nil)
	step("one in an empty directory", create("empty/below/f"), some("empty/below/f"), nil)
	step("one in an odd directory", create("*odd/:x/f"), some("*odd/:x/f"), nil)
	step("an ignored one and another", func() { create("y.log")(); create("y")() }, some("y"), nil)
	step("new directories", create("d1/d2/f"), some("d1/d2/f"), nil)
	step("a file in one of them", create("d1/d2/g"), some("d1/d2/g"), nil)
	step("a file that is gone", func() { must(t, os.Remove(at("a"))) }, nil, some("a"))
	step("a file with another name", func() { must(t, os.Rename(at("new"), at("sub/newer"))) }, some("sub/newer"), some("new"))
	step("a directory with another name", func() { must(t, os.Rename(at("d1"), at("e1"))) },
		some("e1/d2/f", "e1/d2/g"), some("d1/d2/f", "d1/d2/g"))
	step("a file in it", create("e1/d2/h"), some("e1/d2/h"), nil)
	step("a directory of the old name", create("d1/d2/i"), some("d1/d2/i"), nil)
	step("a directory that is gone", func() { must(t, os.RemoveAll(at("e1"))) }, nil, some("e1/d2/f", "e1/d2/g", "e1/d2/h"))
	step("a file in the place of a directory", func() { must(t, os.RemoveAll(at("d1"))); create("d1")() }, some("d1"), some("d1/d2/i"))
	step("other rules", func() { write(t, at(".gitignore"), "*.log\n") }, some("out/x"), nil)
	step("a file that they were about", create("out/y"), some("out/y"), nil)
	step("another repository", func() { write(t, at("out/.gitignore"), "y\n"); gitInit(t, at("out")) }, some("out/.gitignore"), some("out/y"))
	step("a file in it", create("out/z"), some("out/z"), nil)
	step("rules below", func() { write(t, at("sub/.gitignore"), "newer\n") }, some("sub/.gitignore"), some("sub/newer"))
	if withGit {
		step("an ignored file that is tracked", func() { git(t, r.root, "add", "-f", "tracked.log") }, some("tracked.log"), nil)
		step("one that is gone", func() { must(t, os.Remove(at("tracked.log"))) }, nil, some("tracked.log"))
		step("rules of the clone", func() { write(t, at(".git/info/exclude"), "/y\n") }, nil, some("y"))
	}
	r.fed() // as many as are taken, after all that came and went
	step("rules of the user", func() { write(t, filepath.Join(os.Getenv("HOME"), ".config/git/ignore"), "/d1\n") }, nil, some("d1"))
}

func TestListingsAreKeptWhileNothingChanges(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": "", "sub/b": "", ".gitignore": "x\n", "x/y/z": ""})
	gitInit(t, r.root)
	kept := r.followed()
	if n := r.fed(); n != 2 {
		t.Errorf("got %d directories that are watched, want those that are not ignored", n)
	}
	must(t, os.WriteFile(filepath.Join(r.root, "a"), []byte("more"), 0o600)) // says nothing about names
	must(t, os.Chmod(filepath.Join(r.root, "a"), 0o700))
	if f, _, err := r.list(t.Context(), "."); err != nil || f != kept {
		t.Errorf("got another listing, %v; want the same", err)
	}
	write(t, filepath.Join(r.root, "sub/new"), "")
	r.lists("after a change", ".", ".gitignore", "a", "sub/b", "sub/new")
	if f, _ := r.told(); !f.asked.Equal(kept.asked) {
		t.Error("got everything listed again, want one file asked for")
	}
	if need := r.needs(); need != upToDate {
		t.Errorf("got a need of %d, want nothing more to do", need)
	}
	wantList(t, "a part", r.listed("sub"), "b", "new")
	write(t, filepath.Join(r.root, "sub/newer"), "")
	r.lists("a part after a change", "sub", "b", "new", "newer")
	wantList(t, "another part", r.listed("x"))
}

func TestWhatIsGoneTakesNoListing(t *testing.T) {
	for _, withGit := range []bool{true, false} {
		r := newRoom(t, Options{}, map[string]string{"a": "", "sub/b": "", "sub/c/d": ""})
		if withGit {
			gitInit(t, r.root)
		}
		kept := r.followed()
		must(t, os.RemoveAll(filepath.Join(r.root, "sub")))
		r.lists("after that", ".", "a")
		if f, _ := r.told(); !f.asked.Equal(kept.asked) {
			t.Errorf("git %v: got everything listed again, want less to be found", withGit)
		}
	}
}

func TestOldListingsAreMadeAnew(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	old := *r.followed()
	old.index, old.asked, old.asOf = newIndex([]string{"a", "b"}), old.asked.Add(-maxListingAge), old.asked.Add(-maxListingAge)
	r.lister.set(&old, true)
	wantList(t, "old", r.listed("."), "a", "b") // it is good for this search
	r.rested()
	wantList(t, "then", r.listed("."), "a")
}

// Where the system tells of too few directories, searches list every time.
func TestSearchesFollowChangesUntold(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": "", "b/b": "", "c/c": ""})
	r.allow(10, 2)
	r.listed(".")
	if n := r.fed(); n > 0 || r.lister.pause == 0 {
		t.Fatalf("got %d directories that are watched, put off %v; want no more than are allowed", n, r.lister.pause)
	}
	write(t, filepath.Join(r.root, "b/new"), "")
	r.lists("after a change", ".", "a", "b/b", "b/new", "c/c")
}

func TestMuchThatHappensIsListedAnew(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	gitInit(t, r.root)
	r.followed()
	c := r.lister
	want := func(touched int, stale bool) {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.touched) != touched || c.stale != stale {
			t.Errorf("got %d, stale %v; want %d, %v", len(c.touched), c.stale, touched, stale)
		}
	}
	for i := range maxTouched {
		c.touch(fmt.Sprint(i), fsnotify.Create)
	}
	want(maxTouched, false)
	c.touch("more", fsnotify.Create)
	want(0, true)
	r.followed()
	want(0, false)
	r.ofTree(func(l *lookout) { l.stale = true })
	r.settled(func() bool { return c.stale })
	r.lists("then", ".", "a")
}

// settled waits until something is known of the listing.
func (r *room) settled(known func() bool) {
	r.t.Helper()
	for began := time.Now(); ; runtime.Gosched() {
		r.lister.mu.Lock()
		is := known()
		r.lister.mu.Unlock()
		if is {
			return
		}
		if time.Since(began) > patience {
			r.t.Fatal("got nothing told, want it")
		}
	}
}

// What happens while the workspace is listed is not told yet.
func TestWhatHappensMeanwhileIsNotMissed(t *testing.T) {
	for _, tt := range []struct {
		what   string
		file   string // that is written
		missed bool
	}{
		{"nothing", "", false},
		{"a new file", "sub/new", true},
		{"a file in a directory that nobody knew", "empty/new", true},
		{"one that is ignored", "out/new", false},
		{"other rules", "sub/.gitignore", true},
	} {
		r := newRoom(t, Options{}, map[string]string{"a": "", "sub/b": "", "sub/.gitignore": "", ".gitignore": "/out\n", "out/x": ""})
		gitInit(t, r.root)
		must(t, os.Mkdir(filepath.Join(r.root, "empty"), 0o700))
		r.age()
		f := r.listAll(t.Context())
		if tt.file != "" {
			write(t, filepath.Join(r.root, filepath.FromSlash(tt.file)), "more")
		}
		if done, _ := r.lister.follow(f, true); done == tt.missed {
			t.Errorf("%s: got missed %v, want %v", tt.what, !done, tt.missed)
		}
	}
}

// age makes everything in the workspace look as if it had last changed long ago.
func (r *room) age() {
	r.t.Helper()
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	must(r.t, filepath.WalkDir(r.root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, long, long)
	}))
}

// A listing that is cut short does not spoil what is known.
func TestListingThatIsCutShortKeepsTheOneBefore(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	known := r.followed()
	write(t, filepath.Join(r.root, ".gitignore"), "a\n")
	r.lister.markStale(false)
	r.followTime = 0
	if f := r.lister.relist(); f.complete {
		t.Error("got a complete listing, want one that was cut short")
	}
	if f, _ := r.told(); f != known || r.needs() != needRelist {
		t.Error("got another listing, want the one before, to be made true")
	}
	r.followTime = maxFollowTime
	r.lists("then", ".", ".gitignore")
}

func TestNobodyFollowsWhatNobodySearches(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": "", "b/c": ""})
	r.followed()
	if n := r.fed(); n != 2 {
		t.Errorf("got %d directories that are watched, want 2", n)
	}
	r.rested() // a busy listing is not expired
	r.lister.expire()
	r.rested()
	if n := r.fed(); n != 0 {
		t.Errorf("got %d directories that are watched, want none", n)
	}
	write(t, filepath.Join(r.root, "new"), "")
	wantList(t, "then", r.listed("."), "a", "b/c", "new")
	r.followed()
}

// How much clients may watch has nothing to do with how searches find out.
func TestFewWatchesLeaveSearchesAsTheyAre(t *testing.T) {
	r := newRoom(t, Options{MaxWatchedDirs: 1}, map[string]string{"a/b/c": ""})
	r.followed()
	if n := r.fed(); n != 3 {
		t.Errorf("got %d directories that are watched, want all three", n)
	}
}

// What the system has too little of now it may have later.
func TestFollowingIsTriedAgain(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": "", "b/b": ""})
	r.allow(10, 1)
	again := func(told bool, pause time.Duration) {
		t.Helper()
		r.lister.markStale(false)
		r.listed(".")
		r.rested()
		if _, is := r.told(); is != told || r.lister.pause != pause {
			t.Errorf("got told %v, put off for %v; want %v, %v", is, r.lister.pause, told, pause)
		}
	}
	for _, pause := range []time.Duration{minPause, 2 * minPause} {
		again(false, pause)
		if wait := time.Until(r.lister.again); wait > pause || wait < pause/2 {
			t.Errorf("got it put off for %v, want %v", wait, pause)
		}
		again(false, pause) // it is not time
		r.lister.again = time.Now()
	}
	r.allow(10, 2)
	again(true, 0)
	if n := r.fed(); n != 2 {
		t.Errorf("got %d directories that are watched, want 2", n)
	}
}

// A listing may take longer than it is used. It is true for those who came before
// it was asked for.
func TestWhoWaitedTakesTheListingOfAnother(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	r.allow(10, 0)
	r.listed(".")
	r.rested()
	f, _ := r.told()
	old := *f
	old.asked, old.asOf = time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
	r.lister.set(&old, false)
	if got := r.lister.newest(t.Context(), old.asked.Add(-time.Second)); got != &old {
		t.Error("got another listing; want the one that was asked for meanwhile")
	}
	r.rested() // it is old, too
	r.lister.set(&old, false)
	if got := r.lister.newest(t.Context(), old.asked.Add(time.Second)); got == &old {
		t.Error("got the listing of before; want another")
	}
}

// A listing that takes long is made behind the searches, which use the one before.
func TestSlowListingsAreMadeBehindSearches(t *testing.T) {
	for _, follow := range []int{0, 10} {
		r := newRoom(t, Options{}, map[string]string{"a": ""})
		r.allow(10, follow)
		r.quick = 0
		gitInit(t, r.root)
		r.lists("at first", ".", "a")
		r.rested()
		ranking.RLock() // background work waits
		write(t, filepath.Join(r.root, "b"), "")
		r.lister.mu.Lock()
		r.lister.stale, r.lister.resting = true, time.Time{}
		r.lister.mu.Unlock()
		for range 20 {
			wantList(t, "meanwhile", r.listed("."), "a")
		}
		if r.lister.mu.Lock(); !r.lister.busy {
			t.Error("got nobody at the listing, want somebody")
		}
		r.lister.mu.Unlock()
		ranking.RUnlock()
		r.lists("then", ".", "a", "b")
	}
}

// A listing that takes long is not made again at once.
func TestSlowListingsAreMadeNowAndThen(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	r.allow(10, 0)
	r.quick = 0
	f, _, err := r.list(t.Context(), ".")
	must(t, err)
	r.rested()
	c := r.lister
	c.mu.Lock()
	if rest := c.resting.Sub(f.asked); rest < restFactor*f.took {
		t.Errorf("got a rest of %v after %v, want %d times that", rest, f.took, restFactor)
	}
	c.resting = time.Now().Add(time.Hour)
	c.mu.Unlock()
	c.markStale(false)
	if again, _, err := r.list(t.Context(), "."); err != nil || again.asked != f.asked || !again.complete {
		t.Errorf("got another listing, %v; want the one before until it is time", err)
	}
	c.mu.Lock()
	c.resting = time.Now()
	c.mu.Unlock()
	write(t, filepath.Join(r.root, "b"), "")
	c.markStale(false)
	r.lists("when it is time", ".", "a", "b")
}

// A journal in the workspace is not searched, and no reason to list anything.
func TestJournalsAreNotSearched(t *testing.T) {
	for _, withGit := range []bool{true, false} {
		dir := t.TempDir()
		journals := filepath.Join(dir, "state/journals")
		write(t, filepath.Join(journals, "one/000.jsonl"), "")
		write(t, filepath.Join(dir, "state/journalsx"), "")
		write(t, filepath.Join(dir, "a"), "")
		r := roomAt(t, Options{Journals: journals}, dir)
		if withGit {
			gitInit(t, r.root)
		}
		wantList(t, "root", r.listed("."), "a", "state/journalsx")
		wantList(t, "around", r.listed("state"), "journalsx")
		wantList(t, "inside", r.listed("state/journals"))
		r.followed()
		if n := r.fed(); n != 2 {
			t.Errorf("git %v: got %d directories that are watched, want those without journals", withGit, n)
		}
		must(t, os.RemoveAll(journals))
		write(t, filepath.Join(journals, "two/000.jsonl"), "")
		write(t, filepath.Join(dir, "state/new/f"), "")
		r.lists("after changes", ".", "a", "state/journalsx", "state/new/f")
		r.followed()
		if n := r.fed(); n != 3 {
			t.Errorf("git %v: got %d directories that are watched, want those without journals", withGit, n)
		}
	}
}

// A change of the configuration that the environment names is found at once.
func TestNamedConfigurationIsLookedAt(t *testing.T) {
	for _, key := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		config := filepath.Join(t.TempDir(), "config")
		t.Setenv(key, config)
		r := newRoom(t, Options{}, map[string]string{"a": ""})
		r.followed()
		if r.needs() != upToDate {
			t.Errorf("%s: got a listing that is not true, want the one that is kept", key)
		}
		write(t, config, "[core]\n")
		if r.needs() != needRelist {
			t.Errorf("%s: got the listing of before, want another", key)
		}
	}
}

// While it is not time for a new listing, what is told is found all the same.
func TestNewFilesAreFoundWhileAListingRests(t *testing.T) {
	r := newRoom(t, Options{}, map[string]string{"a": ""})
	r.quick = 0
	gitInit(t, r.root)
	kept := r.followed()
	r.lister.mu.Lock()
	r.lister.resting = time.Now().Add(time.Hour)
	r.lister.mu.Unlock()
	git(t, r.root, "add", "a") // which changes git's index
	write(t, filepath.Join(r.root, "b"), "")
	r.lists("then", ".", "a", "b")
	if f, _ := r.told(); !f.asked.Equal(kept.asked) {
		t.Error("got everything listed again, want it to rest")
	}
	if need := r.needs(); need != needRelist {
		t.Errorf("got a need of %d, want a new listing in the end", need)
	}
}
