package utility

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// gitSettings are the variables that say where git's configuration is. What the
// workspace lists by itself goes by them, too.
var gitSettings = []string{"XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}

// gitGuards keep git from what the repository's configuration names: programs,
// and repositories that are found without being asked for. Empty is off for every
// git, where older ones would run a program called false.
var gitGuards = []string{
	"--no-pager", "-c", "core.fsmonitor=", "-c", "core.hooksPath=" + os.DevNull, "-c", "safe.bareRepository=explicit",
}

// maxGitMemory bounds what a git process may take: it reads some files as long as
// there is something to read.
const maxGitMemory = 1 << 30

// gitDelay is how long what git has written may take to be read once it has
// ended, should something else hold on to its output.
const gitDelay = time.Second

// A question is what git is asked about, by the files that it has to read for the
// answer.
type question int

const (
	aboutIndex question = iota // what is tracked
	aboutRules                 // what is ignored
	questions                  // how many there are
)

var errGitHangs = errors.New("git does not answer")

// A gitStatus is the exit code of a git that says that something is wrong, or
// that nothing was found.
type gitStatus int

func (s gitStatus) Error() string { return fmt.Sprintf("git: exit status %d", int(s)) }

// git runs git in the root and has out take what it writes. It takes half of the
// time that ctx leaves, so that who asks can do without it: git waits for ever for
// somebody to write into a pipe that stands where it reads a file. Then it is not
// asked again for a while. No process of it is left in any case.
func (h *lister) git(ctx context.Context, about question, out io.Writer, args ...string) error {
	top, files := h.ws.GitFiles()
	marks := marksOf(files)
	doubt := &h.doubts[about]
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if top == "" || slices.ContainsFunc(marks, mark.odd) || doubt.holds() {
		return errGitHangs
	}
	cmd := h.gitCommand(top, args)
	if cmd.Err != nil {
		return cmd.Err
	}
	patient, cancel := context.WithTimeout(ctx, gitTime(ctx))
	defer cancel()
	code, err := run(patient, cmd, out)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case patient.Err() != nil:
		doubt.arise(marks)
		return errGitHangs
	}
	doubt.end()
	if err == nil && code != 0 {
		err = gitStatus(code)
	}
	return err
}

// run runs cmd to its end, or that of ctx, and has out take what it writes. No
// process of it is left, and so nobody who holds on to the output. It returns the
// exit code.
func run(ctx context.Context, cmd *exec.Cmd, out io.Writer) (code int, err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	cmd.Stdout = theirs
	group, err := proc.Start(cmd)
	_ = theirs.Close() // it has its own
	if err != nil {
		return 0, err
	}
	limitMemory(group.ID())
	taken := make(chan error, 1)
	go func() { // ends with the output, which gitDelay bounds
		_, err := io.Copy(out, ours)
		if err != nil {
			_ = ours.Close() // so that it does not wait for somebody to read
		}
		taken <- err
	}()
	select {
	case <-group.Exited():
	case <-ctx.Done():
	}
	group.Stop(0, nil)
	_ = ours.SetReadDeadline(time.Now().Add(gitDelay)) // it fails if nothing is to be read any more
	err = <-taken
	code, _ = group.Status()
	return code, err
}

// gitTime is half of what ctx leaves.
func gitTime(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return time.Until(end) / 2
	}
	return maxFollowTime / 2
}

// gitCommand returns a git process in the root, about the working tree at top
// whatever the repository says of that. It runs nothing that the repository's
// configuration names, and fetches nothing: who has no object does without it.
func (h *lister) gitCommand(top string, args []string) *exec.Cmd {
	cmd := exec.Command("git", slices.Concat(gitGuards, []string{"-C", h.ws.Root()}, args)...)
	env := proc.Environ(os.Environ(), h.hosted, slices.Concat(h.envPass, gitSettings))
	cmd.Env = slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "GIT_") && !slices.Contains(gitSettings, name)
	})
	cmd.Env = append(cmd.Env,
		"GIT_WORK_TREE="+top, "GIT_CEILING_DIRECTORIES="+filepath.Dir(top), "GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=", // the second is for older ones, and allows none
		"GIT_TERMINAL_PROMPT=0",
	)
	return cmd
}

// A doubt is that git would answer. It lasts longer each time in a row, and ends
// when git's own files change. Its methods may be called from any goroutine.
type doubt struct {
	mu    sync.Mutex
	until time.Time
	pause time.Duration // of the last time; 0 if git answered
	marks []mark        // of git's files at the time
}

func (d *doubt) holds() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.until) && hold(d.marks)
}

func (d *doubt) arise(marks []mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause = min(max(minPause, 2*d.pause), maxIdle)
	d.until, d.marks = time.Now().Add(d.pause), marks
}

// lift has git asked once more, by somebody who waits longer for it.
func (d *doubt) lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Time{}
}

func (d *doubt) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until, d.pause = time.Time{}, 0
}

// maxEntry bounds one path that git writes.
const maxEntry = 64 << 10

// errEnough says that no more of git's output is wanted.
var errEnough = errors.New("enough")

// An entryWriter takes git's output, which is entries that end in NUL, and hands
// them on until each wants no more. Git then fails to write.
type entryWriter struct {
	each func(entry []byte) bool // which does not keep the entry
	cut  []byte                  // the beginning of an entry; at most maxEntry
}

func (w *entryWriter) Write(p []byte) (int, error) {
	for rest := p; ; {
		entry, after, ended := bytes.Cut(rest, []byte{0})
		if len(w.cut)+len(entry) > maxEntry {
			return 0, errEnough
		}
		if !ended {
			w.cut = append(w.cut, entry...)
			return len(p), nil
		}
		if len(w.cut) > 0 {
			entry = append(w.cut, entry...)
		}
		if !w.each(entry) {
			return 0, errEnough
		}
		rest, w.cut = after, w.cut[:0]
	}
}

// gone returns the tracked files that are not there.
func (h *lister) gone(ctx context.Context) (map[string]bool, error) {
	gone := make(map[string]bool)
	out := &entryWriter{each: func(file []byte) bool {
		gone[string(file)] = true
		return len(gone) <= h.limit
	}}
	err := h.git(ctx, aboutIndex, out, "ls-files", "-z", "-d")
	return gone, err
}

// rootIgnored reports whether the repository around the root ignores all of it.
func (h *lister) rootIgnored(ctx context.Context) bool {
	return h.git(ctx, aboutRules, io.Discard, "check-ignore", "-q", ".") == nil
}

// odd reports whether something was there that is no file, as a pipe that git
// would wait at, or a device that it would read for ever.
func (m mark) odd() bool { return m.info != nil && !m.info.Mode().IsRegular() }
