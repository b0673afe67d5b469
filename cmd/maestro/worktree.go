package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect/chord"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// newWorktree is the value of --worktree for a worktree with a name of its own.
const newWorktree = "auto"

// enterWorktree makes a worktree the workspace, if a flag says so. The worktree and its
// branch are named alike. They are made if they do not exist, and stay when the process
// ends.
func (s *settings) enterWorktree() error {
	name := s.chord.worktree
	if name == "" {
		return nil
	}
	if name == newWorktree {
		name = "wt-" + uuid.NewString()[:8]
	}
	root, err := git(s.workspace, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join(s.stateDir, "worktrees", wiring.FolderOf(root), name))
	if err != nil {
		return err
	}
	if _, missing := os.Stat(path); missing != nil {
		if _, err := git(root, "worktree", "add", path); err != nil {
			return err
		}
	}
	branch, err := git(path, "rev-parse", "--abbrev-ref", "HEAD")
	s.workspace, s.chord.entered = path, &chord.Worktree{Name: name, Branch: branch, Path: path, RepoRoot: root}
	return err
}

// git returns what git prints about a folder.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, abridge.Bytes(strings.TrimSpace(said.String()), 1000))
	}
	return strings.TrimSpace(string(out)), err
}
