package utility

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// gitSettings are the environment variables that say where git's configuration
// is. The workspace's own listing uses them too.
var gitSettings = []string{"XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}

// gitGuards prevent git from running programs that the repository's
// configuration names, and from using a bare repository that it finds by
// itself. An empty core.fsmonitor is off for every git; for false, older
// versions run a program of that name.
var gitGuards = []string{
	"--no-pager", "-c", "core.fsmonitor=", "-c", "core.hooksPath=" + os.DevNull, "-c", "safe.bareRepository=explicit",
}

// maxGitMemory bounds the memory of a git process, in bytes: git reads some
// files without a bound.
const maxGitMemory = 1 << 30

// gitDelay bounds reading the rest of git's output after its end, in case
// another process holds the pipe open.
const gitDelay = time.Second

// A question is what git is asked about. It determines which files git reads.
type question int

const (
	aboutIndex question = iota // tracked files
	aboutRules                 // ignored files
	questions                  // the number of questions
)

var errGitHangs = errors.New("git does not answer")

// A gitStatus is the nonzero exit status of git: an error, or an empty result.
type gitStatus int

func (s gitStatus) Error() string { return fmt.Sprintf("git: exit status %d", int(s)) }

// git runs git in the root and calls each with its entries, which end in NUL,
// until each returns false. It takes at most half of the time left in ctx, so that
// the caller can continue without git. Git may hang, for example when a file that
// it reads is a pipe; then it is not asked again for a while. No process of it is
// left in any case.
func (h *lister) git(ctx context.Context, about question, each func(entry []byte) bool, args ...string) error {
	top, files, _ := h.ws.GitFiles()
	marks := fileStatesOf(files)
	backoff := &h.backoffs[about]
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if top == "" || slices.ContainsFunc(marks, fileState.odd) || backoff.active() {
		return errGitHangs
	}
	cmd := h.gitCommand(top, args)
	if cmd.Err != nil {
		return cmd.Err
	}
	patient, cancel := context.WithTimeout(ctx, gitTime(ctx))
	defer cancel()
	code, err := run(patient, cmd, each)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case patient.Err() != nil:
		backoff.fail(marks)
		return errGitHangs
	}
	backoff.reset()
	if err == nil && code != 0 {
		err = gitStatus(code)
	}
	return err
}

// run runs cmd to its end, or that of ctx, and returns the exit code. It calls each
// with the entries of the output until each returns false, which is errEnough; each
// must not keep them. run leaves no process, so none holds the output open.
func run(ctx context.Context, cmd *exec.Cmd, each func(entry []byte) bool) (code int, err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	cmd.Stdout = theirs
	group, err := proc.Start(cmd)
	_ = theirs.Close() // the process has its own
	if err != nil {
		return 0, err
	}
	limitMemory(group.ID())
	taken := make(chan error, 1)
	go func() { // ends with the output, which gitDelay bounds
		in := bufio.NewScanner(ours)
		in.Buffer(make([]byte, maxEntry), maxEntry)
		in.Split(untilNUL)
		enough := false
		for !enough && in.Scan() {
			enough = !each(in.Bytes())
		}
		err := in.Err()
		if enough {
			err = errEnough
		}
		if err != nil {
			_ = ours.Close() // so that the process does not block on writing
		}
		taken <- err
	}()
	select {
	case <-group.Exited():
	case <-ctx.Done():
	}
	group.Stop(0, nil)
	_ = ours.SetReadDeadline(time.Now().Add(gitDelay)) // an error says that the output has ended
	err = <-taken
	code, _ = group.Status()
	return code, err
}

// gitTime returns half of the time left in ctx.
func gitTime(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return time.Until(end) / 2
	}
	return maxFollowTime / 2
}

// gitCommand returns a git process in the root, with the working tree at top
// regardless of the repository's configuration. It runs no program that the
// configuration names and fetches no missing objects.
func (h *lister) gitCommand(top string, args []string) *exec.Cmd {
	cmd := exec.Command("git", slices.Concat(gitGuards, []string{"-C", h.ws.Root()}, args)...)
	env := proc.Environ(os.Environ(), h.hosted, slices.Concat(h.envPass, gitSettings))
	cmd.Env = slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "GIT_") && !slices.Contains(gitSettings, name)
	})
	cmd.Env = append(cmd.Env,
		"GIT_WORK_TREE="+top, "GIT_CEILING_DIRECTORIES="+filepath.Dir(top), "GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=", // the second is for older versions, and allows no protocol
		"GIT_TERMINAL_PROMPT=0",
	)
	return cmd
}

// A gitBackoff stops asking git after it did not answer. The pause doubles with
// each failure, and ends when git's own files change. Its methods may be called
// from any goroutine.
type gitBackoff struct {
	mu       sync.Mutex
	until    time.Time
	pause    time.Duration // the last pause; 0 after an answer
	gitFiles []fileState   // of git's files at the failure
}

func (d *gitBackoff) active() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.until) && allUnchanged(d.gitFiles)
}

func (d *gitBackoff) fail(marks []fileState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause = min(max(minPause, 2*d.pause), maxIdle)
	d.until, d.gitFiles = time.Now().Add(d.pause), marks
}

// lift ends the pause for one attempt with more time.
func (d *gitBackoff) lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Time{}
}

func (d *gitBackoff) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until, d.pause = time.Time{}, 0
}

// maxEntry bounds one path in git's output, in bytes.
const maxEntry = 64 << 10

// errEnough ends reading git's output.
var errEnough = errors.New("enough")

// untilNUL splits text into entries that end in NUL. It drops an incomplete last one.
func untilNUL(text []byte, _ bool) (int, []byte, error) {
	if n := bytes.IndexByte(text, 0); n >= 0 {
		return n + 1, text[:n], nil
	}
	return 0, nil, nil
}

// gone returns the tracked files that do not exist.
func (h *lister) gone(ctx context.Context) (map[string]bool, error) {
	gone := make(map[string]bool)
	err := h.git(ctx, aboutIndex, func(file []byte) bool {
		gone[string(file)] = true
		return len(gone) <= h.limit
	}, "ls-files", "-z", "-d")
	return gone, err
}

// rootIgnored reports whether the repository around the root ignores the whole
// root.
func (h *lister) rootIgnored(ctx context.Context) bool {
	return h.git(ctx, aboutRules, func([]byte) bool { return true }, "check-ignore", "-q", ".") == nil
}

// odd reports whether the path was not a regular file, such as a pipe that git
// would wait for or a device that it would read without end.
func (m fileState) odd() bool { return m.info != nil && !m.info.Mode().IsRegular() }
