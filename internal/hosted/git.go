package hosted

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	gitTimeout  = time.Second
	maxGitLines = 16 << 10 // bytes kept of git's output; its headers come first
)

// gitVariables are the environment variables for git. The agent controls the
// workspace, and its git configuration may name programs, so git gets no
// secrets.
var gitVariables = []string{"PATH", "HOME", "TMPDIR", "SYSTEMROOT"}

// gitState asks git about the repository around the workspace, for at most 1 s.
// It returns nil outside a repository, without git and after that time. Changes
// in ignored, our own directories, do not count.
func gitState(ctx context.Context, root string, ignored ...string) *contracts.GitState {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	args := []string{
		"-c", "core.fsmonitor=", "-c", "core.hooksPath=" + os.DevNull, "-c", "core.untrackedCache=false", // older versions take "false" for a program
		"status", "--porcelain=v2", "--branch", "--", ".",
	}
	for _, dir := range ignored {
		if rel, ok := inside(root, dir); ok && rel != "." {
			args = append(args, ":(exclude,literal)"+filepath.ToSlash(rel))
		}
	}
	var out head
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stdout = root, &out
	cmd.Env = []string{"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=", "LC_ALL=C"}
	for _, name := range gitVariables {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	endWithChildren(cmd)
	cmd.WaitDelay = gitTimeout // a child that left the group may hold the output open
	if cmd.Run() != nil {
		return nil
	}
	return out.state()
}

// A head keeps the beginning of the data written to it.
type head struct {
	kept []byte
	more bool // something was dropped
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), maxGitLines-len(h.kept))
	h.kept = append(h.kept, p[:n]...)
	h.more = h.more || n < len(p)
	return len(p), nil
}

// state parses git's header lines; every other line is a change.
func (h *head) state() *contracts.GitState {
	g := &contracts.GitState{Dirty: h.more}
	for line := range bytes.Lines(h.kept) {
		fact, header := strings.CutPrefix(strings.TrimSpace(string(line)), "# ")
		name, value, _ := strings.Cut(fact, " ")
		switch {
		case !header:
			g.Dirty = true
		case name == "branch.oid" && value != "(initial)":
			g.Commit = value
		case name == "branch.head" && value != "(detached)":
			g.Branch = value
		}
	}
	return g
}
