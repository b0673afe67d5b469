package utility

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/pty"
	"github.com/seed-028515a8/maestro/workspace"
)

// Limits of a command, in characters.
const (
	maxCommandChars = 100_000
	maxCwdChars     = 4_096
	maxKeyChars     = 256
	maxValueChars   = 32_768
	maxTerminalSide = 65_535 // columns, or rows
)

// A spec is a checked command.
type spec struct {
	cmd   *contracts.UtilityCommandStart
	words []string // of the line; nil if a shell runs it
	rel   string   // the directory, relative to the root
	dir   string   // the directory, absolute
	env   []string
	size  *pty.Size // of the terminal; nil without one
}

// newSpec checks a command and returns a refusal if it cannot be run.
func (h *Host) newSpec(cmd *contracts.UtilityCommandStart) (spec, error) {
	s := spec{cmd: cmd}
	size, text := sizeOf(cmd.Columns, cmd.Rows)
	if text = cmp.Or(badCommand(cmd), text); text != "" {
		return s, refuse(contracts.CodeBadRequest, cmd.CommandID, text)
	}
	var err error
	if cmd.ShellMode == contracts.ShellModeDirect {
		if s.words, err = proc.SplitWords(cmd.Command); err == nil && s.words[0] == "" {
			err = proc.ErrNoExecutable
		}
		if err != nil {
			return s, refuse(contracts.CodeBadRequest, cmd.CommandID, err.Error())
		}
	}
	if s.rel, s.dir, err = h.workingDir(cmd.CommandID, cmd.Cwd); err != nil {
		return s, err
	}
	s.env = append(proc.Environ(os.Environ(), h.opts.Hosted, h.opts.EnvPass), "PWD="+s.dir)
	for _, key := range slices.Sorted(maps.Keys(cmd.Env)) {
		s.env = append(s.env, key+"="+cmd.Env[key]) // of entries with the same name the last counts
	}
	if cmd.TerminalMode == contracts.TerminalPTY {
		s.size = &size
		s.env = onTerminal(s.env, cmd.Env)
	}
	return s, nil
}

// sizeOf returns the requested size, or the text of a refusal.
func sizeOf(columns, rows *int64) (size pty.Size, refused string) {
	width, height := given(columns, int64(pty.DefaultSize.Columns)), given(rows, int64(pty.DefaultSize.Rows))
	switch {
	case width < 1 || width > maxTerminalSide:
		return size, "Utility command columns must be a positive integer"
	case height < 1 || height > maxTerminalSide:
		return size, "Utility command rows must be a positive integer"
	}
	return pty.Size{Columns: uint16(width), Rows: uint16(height)}, ""
}

// onTerminal returns env for a new terminal: without the variables about the
// server's own terminal, unless the client sets them, and with TERM.
func onTerminal(env []string, asked map[string]string) []string {
	env = slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, wanted := asked[name]
		return !wanted && slices.Contains([]string{"TMUX", "TMUX_PANE", "STY", "WINDOW", "COLUMNS", "LINES"}, name)
	})
	kind := "TERM=xterm-256color"
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "TERM="); ok && value != "" {
			kind = entry // the last counts
		}
	}
	return append(env, kind)
}

// workingDir returns a directory that a client names, relative to the root and
// absolute. The operation with the id is refused if there is none.
func (h *Host) workingDir(id string, named *string) (rel, abs string, err error) {
	cwd := given(named, ".")
	rel, info, err := h.locate(cwd)
	switch {
	case errors.Is(err, workspace.ErrOutside):
		return "", "", outside(id, h.ws.Abs(cwd))
	case err != nil || !info.IsDir():
		return "", "", refuse(contracts.CodeNotFound, id, "Working directory not found: "+cwd)
	}
	return rel, h.ws.At(rel), nil
}

// given returns what a client gave, or def if it gave nothing.
func given[T any](value *T, def T) T {
	if value == nil {
		return def
	}
	return *value
}

// locate returns a client's path relative to the root, and its file info.
func (h *Host) locate(path string) (rel string, info fs.FileInfo, err error) {
	if rel, err = h.ws.Rel(path); err != nil {
		return "", nil, err
	}
	info, err = h.ws.Stat(rel)
	return rel, info, err
}

// outside refuses a path that leaves the workspace.
func outside(id, path string) error {
	return refuse(contracts.CodeWorkspaceViolation, id, "Path is outside workspace root: "+path)
}

// badCommand returns the text of a refusal, or "" if the command is well formed
// except for its size.
func badCommand(cmd *contracts.UtilityCommandStart) string {
	switch {
	case strings.TrimSpace(cmd.Command) == "":
		return "command is required and cannot be empty"
	case !fit(cmd.Command, maxCommandChars):
		return "Command contains invalid control characters"
	case cmd.Cwd != nil && strings.TrimSpace(*cmd.Cwd) == "":
		return "cwd is required and cannot be empty"
	case cmd.Cwd != nil && !fit(*cmd.Cwd, maxCwdChars):
		return "Working directory contains invalid characters"
	}
	for _, key := range slices.Sorted(maps.Keys(cmd.Env)) {
		switch {
		case strings.TrimSpace(key) == "":
			return "environment variable key is required and cannot be empty"
		case !fit(key, maxKeyChars) || strings.Contains(key, "=") || !fit(cmd.Env[key], maxValueChars):
			return "Environment variable " + key + " contains invalid characters"
		}
	}
	if cmd.TerminalMode != contracts.TerminalPTY && (cmd.Columns != nil || cmd.Rows != nil) {
		return "Utility command columns and rows require terminal_mode=pty"
	}
	return ""
}

// fit reports whether text has at most limit characters and no control
// characters except tab, LF and CR.
func fit(text string, limit int) bool {
	return utf8.RuneCountInString(text) <= limit && !strings.ContainsFunc(text, func(c rune) bool {
		return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
	})
}

// started returns the first event of the command, without its PID.
func (s spec) started(owner string) *contracts.UtilityCommandStarted {
	first := &contracts.UtilityCommandStarted{
		CommandID: s.cmd.CommandID, Command: s.cmd.Command, Cwd: s.dir,
		ShellMode:         cmp.Or(s.cmd.ShellMode, contracts.ShellModeShell),
		TerminalMode:      cmp.Or(s.cmd.TerminalMode, contracts.TerminalPipe),
		OwnerConnectionID: owner,
	}
	if s.size != nil {
		first.Columns, first.Rows = int64(s.size.Columns), int64(s.size.Rows)
	}
	return first
}

// command returns the process to start.
func (s spec) command(shell string) (*exec.Cmd, error) {
	cmd := proc.ShellCommand(shell, s.cmd.Command)
	if s.words != nil {
		program, err := proc.FindProgram(s.words[0], s.dir, s.env)
		if err != nil {
			return nil, err
		}
		cmd = exec.Command(program)
		cmd.Args = s.words
	}
	cmd.Env = s.env // launch sets Dir
	return cmd, nil
}
