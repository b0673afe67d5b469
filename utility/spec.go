package utility

import (
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
	"github.com/seed-028515a8/maestro/internal/pty"
	"github.com/seed-028515a8/maestro/internal/workspace"
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
	id    string
	line  string
	words []string // of the line; nil if a shell runs it
	shell string
	rel   string // the directory, relative to the root
	dir   string // the directory, absolute
	env   []string
	size  *pty.Size // of the terminal; nil without one
}

// newSpec checks a command and returns a refusal if it cannot be run.
func (h *Host) newSpec(cmd *contracts.UtilityCommandStart) (spec, error) {
	s := spec{id: cmd.CommandID, line: cmd.Command, shell: h.opts.Shell}
	if text := badCommand(cmd); text != "" {
		return s, refuse(contracts.CodeBadRequest, s.id, text)
	}
	if cmd.ShellMode == contracts.ShellModeDirect {
		words, err := proc.SplitWords(cmd.Command)
		if err == nil && words[0] == "" {
			err = proc.ErrNoExecutable
		}
		if err != nil {
			return s, refuse(contracts.CodeBadRequest, s.id, err.Error())
		}
		s.words = words
	}
	var err error
	if s.rel, s.dir, err = h.workingDir(s.id, cmd.Cwd); err != nil {
		return s, err
	}
	s.env = append(proc.Environ(os.Environ(), h.opts.Hosted, h.opts.EnvPass), "PWD="+s.dir)
	for _, key := range slices.Sorted(maps.Keys(cmd.Env)) {
		s.env = append(s.env, key+"="+cmd.Env[key]) // of entries with the same name the last counts
	}
	if cmd.TerminalMode == contracts.TerminalPTY {
		size, _ := sizeOf(cmd.Columns, cmd.Rows) // badCommand has checked it
		s.size = &size
		s.env = onTerminal(s.env, cmd.Env)
	}
	return s, nil
}

// sizeOf returns the requested size, or the text of a refusal.
func sizeOf(columns, rows *int64) (size pty.Size, refused string) {
	size = pty.DefaultSize
	for _, side := range []struct {
		name  string
		asked *int64
		set   *uint16
	}{{"columns", columns, &size.Columns}, {"rows", rows, &size.Rows}} {
		switch {
		case side.asked == nil:
		case *side.asked < 1 || *side.asked > maxTerminalSide:
			return size, "Utility command " + side.name + " must be a positive integer"
		default:
			*side.set = uint16(*side.asked)
		}
	}
	return size, ""
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

// badCommand returns the text of a refusal, or "" if the command is well formed.
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
	_, text := sizeOf(cmd.Columns, cmd.Rows)
	return text
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
	mode := contracts.ShellModeShell
	if s.words != nil {
		mode = contracts.ShellModeDirect
	}
	first := &contracts.UtilityCommandStarted{
		CommandID: s.id, Command: s.line, Cwd: s.dir,
		ShellMode: mode, TerminalMode: contracts.TerminalPipe, OwnerConnectionID: owner,
	}
	if s.size != nil {
		first.TerminalMode = contracts.TerminalPTY
		first.Columns, first.Rows = int64(s.size.Columns), int64(s.size.Rows)
	}
	return first
}

// command returns the process to start.
func (s spec) command() (*exec.Cmd, error) {
	cmd := proc.ShellCommand(s.shell, s.line)
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
