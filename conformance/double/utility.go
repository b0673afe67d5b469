package double

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// A server with a workspace has utilities: commands on pipes and terminals,
// searches by walking, reads, and watches that look again and again.

// operations are what is offered.
func (s *Server) operations() []contracts.UtilityOperation {
	if s.workspace() == "" {
		return []contracts.UtilityOperation{}
	}
	return []contracts.UtilityOperation{contracts.OperationCommandExec, contracts.OperationFileSearch,
		contracts.OperationFileWatch, contracts.OperationFileRead}
}

// workspace is the root of what clients may see; empty is none.
func (s *Server) workspace() string {
	if s.runner != nil {
		return s.runner.Workspace
	}
	return s.opts.Workspace
}

// operate carries out a utility operation.
func (c *client) operate(cmd contracts.Command) *contracts.Error {
	if c.room.ending {
		return refuse(contracts.CodeRuntimeNotReady, contracts.ErrorTool, "Headless runtime is no longer available")
	}
	if e := unnamed(cmd); e != nil {
		return e
	}
	id, e := "", (*contracts.Error)(nil)
	switch cmd := cmd.(type) {
	case *contracts.UtilityCommandStart:
		id, e = cmd.CommandID, c.startCommand(cmd)
	case *contracts.UtilityCommandTerminate:
		id, e = cmd.CommandID, c.terminateCommand(cmd)
	case *contracts.UtilityCommandStdin:
		id, e = cmd.CommandID, c.feedCommand(cmd)
	case *contracts.UtilityCommandResize:
		id, e = cmd.CommandID, c.resizeCommand(cmd)
	case *contracts.UtilityFileSearch:
		id, e = cmd.SearchID, c.room.search(cmd)
	case *contracts.UtilityFileRead:
		id, e = cmd.ReadID, c.room.readFile(cmd)
	case *contracts.UtilityFileWatchStart:
		id, e = cmd.WatchID, c.startWatch(cmd)
	case *contracts.UtilityFileWatchStop:
		id, e = cmd.WatchID, c.stopWatch(cmd)
	}
	_, reads := cmd.(*contracts.UtilityFileRead)
	if e != nil && !c.room.s.has(NamelessRefusals) && (reads || !c.room.s.has(NamelessCommands)) {
		e.RequestID = id
	}
	return e
}

// unnamed refuses what is to be started without an id.
func unnamed(cmd contracts.Command) *contracts.Error {
	switch cmd := cmd.(type) {
	case *contracts.UtilityCommandStart:
		if cmd.CommandID != "" {
			return nil
		}
	case *contracts.UtilityFileWatchStart:
		if cmd.WatchID != "" {
			return nil
		}
	default:
		return nil
	}
	return noTool(contracts.CodeBadRequest, "an id is required and cannot be empty")
}

// noTool makes the refusal of an operation.
func noTool(code contracts.Code, text string) *contracts.Error {
	return refuse(code, contracts.ErrorTool, text)
}

// owns refuses what belongs to another connection.
func (c *client) owns(owner *client, what, id string) *contracts.Error {
	if owner == c || c.room.s.has(SharesUtilities) {
		return nil
	}
	return noTool(contracts.CodeAccessDenied, "Headless "+what+" "+id+" is owned by another connection")
}

// endUtilities ends what belongs to the owners that match, saying why.
func (r *room) endUtilities(why string, match func(*client) bool) {
	for _, p := range r.programs {
		if match(p.owner) {
			p.end(why+" while utility command was still running", false)
		}
	}
	if r.s.has(KeepsWatching) {
		return
	}
	for _, l := range slices.Clone(r.lookouts) {
		if match(l.owner) {
			l.stop(why + " while file watch was still running")
		}
	}
}

func everybody(*client) bool { return true }

// maxLinks bounds the links on the way to a file.
const maxLinks = 40

// A place is a path that a client named.
type place struct {
	named    string // absolute, without . and ..
	real     string // the same without links; what is missing is appended as it is
	relative string // real below the workspace; only if inside
	inside   bool
}

// locate finds out where a path leads.
func (r *room) locate(path string) place {
	root := r.s.workspace()
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	p := place{named: filepath.Clean(path)}
	p.real = follow(p.named)
	relative, err := filepath.Rel(root, p.real)
	p.inside = err == nil && filepath.IsLocal(relative)
	p.relative = relative
	return p
}

// directory is locate for a directory that may be left out.
func (r *room) directory(path *string) place {
	if path == nil {
		return r.locate(".")
	}
	return r.locate(*path)
}

// follow resolves the links of an absolute path, step by step.
func follow(path string) string {
	at, rest := string(filepath.Separator), strings.Split(path, string(filepath.Separator))
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		target := readLink(filepath.Join(at, name))
		if target == "" || links == maxLinks {
			at = filepath.Join(at, name)
			continue
		}
		links++
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		rest = append(strings.Split(target, string(filepath.Separator)), rest...)
	}
	return at
}

// outside refuses a place outside the workspace.
func (p place) outside() *contracts.Error {
	return noTool(contracts.CodeWorkspaceViolation, "Path is outside workspace root: "+p.named)
}

// orDefault is a number that may be left out, within bounds.
func orDefault(n *int64, standard, least, most int64) int64 {
	if n == nil {
		return standard
	}
	return max(least, min(*n, most))
}

// putCommand replaces a command in a list, as the newest.
func putCommand(list []contracts.ActiveCommand, a contracts.ActiveCommand) []contracts.ActiveCommand {
	return append(dropCommand(list, a.CommandID), a)
}

func dropCommand(list []contracts.ActiveCommand, id string) []contracts.ActiveCommand {
	return slices.DeleteFunc(slices.Clone(list), func(a contracts.ActiveCommand) bool { return a.CommandID == id })
}

// changed returns a list in which a command is as f makes it.
func changed(list []contracts.ActiveCommand, id string, f func(*contracts.ActiveCommand)) []contracts.ActiveCommand {
	list = slices.Clone(list)
	for i := range list {
		if list[i].CommandID == id {
			f(&list[i])
		}
	}
	return list
}

// applyUtility folds an event of a utility into the state (4.2).
func applyUtility(st *contracts.State, ev contracts.Event, keep int) {
	switch ev := ev.(type) {
	case *contracts.UtilityCommandStarted:
		st.ActiveUtilityCommands = putCommand(st.ActiveUtilityCommands, contracts.ActiveCommand{CommandID: ev.CommandID, Command: ev.Command, Cwd: ev.Cwd,
			ShellMode: ev.ShellMode, TerminalMode: ev.TerminalMode, PID: ev.PID, Columns: ev.Columns, Rows: ev.Rows, OwnerConnectionID: ev.OwnerConnectionID})
	case *contracts.UtilityCommandResized:
		st.ActiveUtilityCommands = changed(st.ActiveUtilityCommands, ev.CommandID, func(a *contracts.ActiveCommand) { a.Columns, a.Rows = ev.Columns, ev.Rows })
	case *contracts.UtilityCommandOutput:
		st.ActiveUtilityCommands = changed(st.ActiveUtilityCommands, ev.CommandID, func(a *contracts.ActiveCommand) {
			text := []rune(a.Output + ev.Content)
			a.Output = string(text[max(0, len(text)-keep):])
		})
	case *contracts.UtilityCommandExited:
		st.ActiveUtilityCommands = dropCommand(st.ActiveUtilityCommands, ev.CommandID)
	case *contracts.UtilityFileWatchStarted:
		st.ActiveFileWatches = append(slices.Clone(st.ActiveFileWatches), contracts.ActiveWatch{WatchID: ev.WatchID, RootDir: ev.RootDir,
			IncludePatterns: ev.IncludePatterns, ExcludePatterns: ev.ExcludePatterns, DebounceMS: ev.DebounceMS, OwnerConnectionID: ev.OwnerConnectionID})
	case *contracts.UtilityFileWatchStopped:
		st.ActiveFileWatches = slices.DeleteFunc(slices.Clone(st.ActiveFileWatches), func(w contracts.ActiveWatch) bool { return w.WatchID == ev.WatchID })
	}
}

// keptOutput is how many characters of a command's output the state has.
const keptOutput = 32_768

func (s *Server) keptOutput() int {
	if s.has(KeepsAllOutput) {
		return 1 << 30
	}
	return keptOutput
}

// shellOf is the mode of a command line.
func shellOf(cmd *contracts.UtilityCommandStart) contracts.ShellMode {
	return cmp.Or(cmd.ShellMode, contracts.ShellModeShell)
}
