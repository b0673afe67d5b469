package double

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// A hosted runner has utilities, as far as section 6 asks for them: reads,
// searches by name, commands whose output comes at their end, and watches that
// report nothing.

// operate carries out a utility operation in the workspace.
func (c *client) operate(cmd contracts.Command) *contracts.Error {
	r := c.room
	switch cmd := cmd.(type) {
	case *contracts.UtilityFileRead:
		return r.readFile(cmd)
	case *contracts.UtilityFileSearch:
		r.search(cmd)
	case *contracts.UtilityCommandStart:
		return c.startCommand(cmd)
	case *contracts.UtilityFileWatchStart:
		w := contracts.ActiveWatch{WatchID: cmd.WatchID, RootDir: r.s.runner.Workspace, IncludePatterns: cmd.IncludePatterns,
			ExcludePatterns: cmd.ExcludePatterns, DebounceMS: 100, OwnerConnectionID: c.id}
		if cmd.DebounceMS != nil {
			w.DebounceMS = *cmd.DebounceMS
		}
		r.state.ActiveFileWatches = append(slices.Clone(r.state.ActiveFileWatches), w)
		r.publish(&contracts.UtilityFileWatchStarted{WatchID: w.WatchID, RootDir: w.RootDir, IncludePatterns: w.IncludePatterns,
			ExcludePatterns: w.ExcludePatterns, DebounceMS: w.DebounceMS, OwnerConnectionID: w.OwnerConnectionID})
	default:
		return refuse(contracts.CodeUnsupportedCapability, contracts.ErrorTool, cmd.CommandType()+" is not offered here")
	}
	return nil
}

// stopWatch ends a watch if there is one.
func (r *room) stopWatch(id string) {
	left := slices.DeleteFunc(slices.Clone(r.state.ActiveFileWatches), func(w contracts.ActiveWatch) bool { return w.WatchID == id })
	if len(left) < len(r.state.ActiveFileWatches) {
		r.state.ActiveFileWatches = left
		r.publish(&contracts.UtilityFileWatchStopped{WatchID: id, Reason: "Stopped by controller"})
	}
}

func (r *room) readFile(cmd *contracts.UtilityFileRead) *contracts.Error {
	root := r.s.runner.Workspace
	path := cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	relative, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(relative) {
		return refuse(contracts.CodeWorkspaceViolation, contracts.ErrorTool, "Path is outside hosted workspace root")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return refuse(contracts.CodeNotFound, contracts.ErrorTool, "File not found: "+path)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	first, count := int64(1), int64(400)
	if cmd.Offset != nil {
		first = *cmd.Offset
	}
	if cmd.Limit != nil {
		count = *cmd.Limit
	}
	total := int64(len(lines))
	last := min(total, first+count-1)
	if first < 1 || first > last {
		return refuse(contracts.CodeBadRequest, contracts.ErrorTool, "Offset is beyond end of file")
	}
	r.publish(&contracts.UtilityFileReadResult{ReadID: cmd.ReadID, Path: path, RelativePath: relative, Cwd: root,
		Content: strings.Join(lines[first-1:last], "\n"), StartLine: first, EndLine: last, TotalLines: total, Truncated: last < total})
	return nil
}

// search looks at names in the workspace itself.
func (r *room) search(cmd *contracts.UtilityFileSearch) {
	found := []contracts.FileMatch{}
	files, _ := os.ReadDir(r.s.runner.Workspace) // one that cannot be read has no files
	for _, f := range files {
		if strings.Contains(f.Name(), strings.TrimSpace(cmd.Query)) {
			found = append(found, contracts.FileMatch{Path: f.Name(), Score: 1})
		}
	}
	r.publish(&contracts.UtilityFileSearchResults{SearchID: cmd.SearchID, Query: strings.TrimSpace(cmd.Query), Cwd: r.s.runner.Workspace, Results: found})
}

// startCommand starts a program whose output is told at its end.
func (c *client) startCommand(cmd *contracts.UtilityCommandStart) *contracts.Error {
	r := c.room
	args := []string{"sh", "-c", cmd.Command}
	if cmd.ShellMode == contracts.ShellModeDirect {
		args = words(cmd.Command)
	}
	if len(args) == 0 {
		return refuse(contracts.CodeBadRequest, contracts.ErrorTool, "Command must contain an executable to run")
	}
	a := contracts.ActiveCommand{CommandID: cmd.CommandID, Command: cmd.Command, Cwd: r.s.runner.Workspace,
		ShellMode: cmp.Or(cmd.ShellMode, contracts.ShellModeShell), TerminalMode: contracts.TerminalPipe, OwnerConnectionID: c.id}
	r.state.ActiveUtilityCommands = append(slices.Clone(r.state.ActiveUtilityCommands), a)
	r.publish(&contracts.UtilityCommandStarted{CommandID: a.CommandID, Command: a.Command, Cwd: a.Cwd, ShellMode: a.ShellMode,
		TerminalMode: a.TerminalMode, OwnerConnectionID: a.OwnerConnectionID})
	program := exec.Command(args[0], args[1:]...)
	program.Dir = a.Cwd
	go func() { // ends with the program
		out, err := program.Output()
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.state.ActiveUtilityCommands = slices.DeleteFunc(slices.Clone(r.state.ActiveUtilityCommands), func(o contracts.ActiveCommand) bool { return o.CommandID == a.CommandID })
		if len(out) > 0 {
			r.publish(&contracts.UtilityCommandOutput{CommandID: a.CommandID, Stream: contracts.StreamStdout, Content: string(out)})
		}
		end := &contracts.UtilityCommandExited{CommandID: a.CommandID, Success: err == nil}
		if state := program.ProcessState; state != nil {
			code := int64(state.ExitCode())
			end.ExitCode = &code
		}
		r.publish(end)
	}()
	return nil
}

// words splits a command line as direct mode does: quotes join, a backslash
// outside single quotes takes the next character as it is.
func words(line string) []string {
	var list []string
	var word strings.Builder
	var quote rune
	open, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			open, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, open = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if open {
				list = append(list, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if open {
		list = append(list, word.String())
	}
	return list
}
