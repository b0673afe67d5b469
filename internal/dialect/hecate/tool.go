package hecate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const (
	maxCalls   = 64      // open calls; the oldest call is ended if there are more
	maxOutput  = 8 << 10 // bytes of output that are held until they are shown
	minOutput  = 6 << 10 // bytes of a chunk that is shown because of maxOutput
	maxEarly   = 250     // chunks of a call that are shown before maxOutput bytes are held
	holdTime   = 100 * time.Millisecond
	maxSummary = 200     // characters
	maxCommand = 4 << 10 // bytes of a command that tool.shell.command shows
	maxWords   = 64      // words of a command that is a list, and variables
)

// The kinds of tools.
const (
	kindShell = "shell"
	kindFile  = "file"
	kindMCP   = "mcp"
	kindOther = "other"
)

// kinds are the kinds of known tools by their names in lower case.
var kinds = map[string]string{
	"bash": kindShell, "shell": kindShell, "shell_exec": kindShell, "execute": kindShell, "exec": kindShell, "run_command": kindShell,
	"read": kindFile, "write": kindFile, "edit": kindFile, "delete": kindFile, "move": kindFile,
}

// mcpPrefix begins the names of the tools of MCP servers: mcp__server__tool.
const mcpPrefix = "mcp__"

// A call is a tool call that has not ended.
type call struct {
	ID      string    `json:"id"`
	Tool    string    `json:"tool"`
	Kind    string    `json:"kind"`
	Round   int64     `json:"round,omitempty"`
	Invoked bool      `json:"invoked,omitempty"`
	Refused bool      `json:"refused,omitempty"` // an approval was asked for and not given
	Began   time.Time `json:"began,omitzero"`
	Shell   *shell    `json:"shell,omitempty"` // what a call of a shell will run

	Out    flow      `json:"out,omitzero"`
	Since  time.Time `json:"since,omitzero"`   // start of the time that output is held
	Bytes  int64     `json:"bytes,omitempty"`  // of shown output
	Chunks int       `json:"chunks,omitempty"` // shown before maxOutput bytes were held
	Line   clean     `json:"line,omitzero"`    // the last line of the output
}

// A shell is what a call of a shell runs, without its secrets.
type shell struct {
	Argv      []clean `json:"argv"`
	Line      clean   `json:"line,omitzero"`
	Cwd       clean   `json:"cwd,omitzero"`
	EnvKeys   []clean `json:"env_keys"`
	TimeoutMS int64   `json:"timeout_ms,omitempty"`
}

// kindOf returns the kind of a tool. Agents of the Agent Client Protocol name it in the
// args.
func kindOf(tool string, args json.RawMessage) string {
	var in struct {
		Details struct{ Kind string } `json:"_acp"`
	}
	_ = json.Unmarshal(args, &in) // args may be any JSON
	switch in.Details.Kind {
	case "execute":
		return kindShell
	case "read", "edit", "delete", "move":
		return kindFile
	}
	if strings.HasPrefix(tool, mcpPrefix) {
		return kindMCP
	}
	return cmp.Or(kinds[strings.ToLower(tool)], kindOther)
}

func (r *run) call(id string) *call {
	if i := slices.IndexFunc(r.Calls, func(c *call) bool { return c.ID == id }); i >= 0 {
		return r.Calls[i]
	}
	return nil
}

// propose announces a call, once.
func (s *Session) propose(id, tool string, args json.RawMessage) *call {
	s.work()
	if c := s.Run.call(id); c != nil {
		return c
	}
	s.endBlock()
	c := s.addCall(id, tool, kindOf(tool, args))
	if s.Run.Turn != nil {
		s.Run.Turn.Calls++
	}
	if c.Kind == kindShell {
		c.Shell = s.shellOf(args)
	}
	s.draft("assistant.tool_call_proposed", s.Run.index(c.named(member{"input", inputOf(args)})...))
	return c
}

// inputOf returns the args as an object.
func inputOf(args json.RawMessage) any {
	var input map[string]any
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	switch err := dec.Decode(&input); {
	case err != nil && len(args) > 0:
		return map[string]any{"raw": string(args)}
	case input == nil:
		return map[string]any{}
	}
	return input
}

// addCall adds a call. It ends the oldest one if there are too many.
func (s *Session) addCall(id, tool, kind string) *call {
	if len(s.Run.Calls) >= maxCalls {
		s.endCall(s.Run.Calls[0], "tool.failed", plain("too many calls are open"))
	}
	c := &call{ID: id, Tool: cmp.Or(tool, unknown), Kind: kind, Round: s.Run.Rounds}
	s.Run.Calls = append(s.Run.Calls, c)
	return c
}

// named returns the members that name the call, and more.
func (c *call) named(more ...member) object {
	return append(object{{"tool_call_id", c.ID}, {"tool_name", c.Tool}}, more...)
}

// shellOf returns what the args of a shell's call run.
func (s *Session) shellOf(args json.RawMessage) *shell {
	var in struct {
		Command   json.RawMessage            `json:"command"`
		Argv      []string                   `json:"argv"`
		Cwd       string                     `json:"cwd"`
		Env       map[string]json.RawMessage `json:"env"`
		TimeoutMS int64                      `json:"timeout_ms"`
	}
	_ = json.Unmarshal(args, &in) // decodes the members that fit
	sh := &shell{Cwd: s.clean(cmp.Or(in.Cwd, s.Cwd), maxCommand), TimeoutMS: in.TimeoutMS}
	var line string
	if json.Unmarshal(in.Command, &line) == nil && line != "" {
		sh.Line = s.clean(line, maxCommand)
		sh.Argv = []clean{{Text: "sh"}, {Text: "-c"}, sh.Line}
	} else {
		_ = json.Unmarshal(in.Command, &in.Argv) // a list of words, or no command
		sh.Argv = s.words(in.Argv)
	}
	sh.EnvKeys = s.words(slices.Sorted(maps.Keys(in.Env)))
	return sh
}

// words returns at most maxWords words without secrets, about maxCommand bytes of them.
func (s *Session) words(words []string) []clean {
	list, left := []clean{}, maxCommand
	for _, word := range words[:min(len(words), maxWords)] {
		shown := s.clean(word, max(left, 0))
		list, left = append(list, shown), left-len(shown.Text)
	}
	return list
}

// toolStart says that a call runs. A call that another run has announced is known by its
// question.
func (s *Session) toolStart(id string) *call {
	s.work()
	c := s.Run.call(id)
	if c == nil {
		tool := s.takeKept(id).Tool
		c = s.addCall(id, tool, kindOf(tool, nil))
	}
	if !c.Invoked {
		s.invoke(c)
	}
	return c
}

func (s *Session) invoke(c *call) {
	s.endBlock()
	c.Invoked, c.Began = true, s.At
	data := c.named(member{"kind", c.Kind})
	if c.Round > 0 {
		data = append(data, member{"turn_index", c.Round})
	}
	s.draft("tool.invoked", data)
	s.draft("tool.started", data)
	if c.Shell == nil || len(c.Shell.Argv) == 0 {
		return
	}
	sh := c.Shell
	data = object{{"tool_call_id", c.ID}, {"argv", sh.Argv}}
	if sh.Cwd.Text != "" {
		data = append(data, member{"cwd", sh.Cwd})
	}
	data = append(data, member{"env_keys", sh.EnvKeys}, member{"sandbox_layer", "none"})
	if sh.TimeoutMS > 0 {
		data = append(data, member{"timeout_ms", sh.TimeoutMS})
	}
	if sh.Line.Text != "" {
		data = append(data, member{"command_string", sh.Line})
	}
	s.draft("tool.shell.command", data)
	c.Shell = nil
}

func (s *Session) toolOutput(e *contracts.ToolOutput) {
	if s.Run == nil || e.Content == "" {
		return
	}
	c := s.Run.call(e.CallID)
	if c == nil || !c.Invoked {
		return // it was ended when the continuity was lost
	}
	s.Run.Failure = nil
	if len(c.Out.Held) == 0 {
		c.Since = s.At
	}
	for _, piece := range contracts.SplitText(e.Content, maxOutput) {
		c.Out.Held = append(c.Out.Held, piece...)
		if len(c.Out.Held) >= maxOutput {
			s.showFull(c)
		}
	}
	s.showEarly(c)
}

// showFull shows the held output up to the last word, or all of it if that is little.
func (s *Session) showFull(c *call) {
	n := c.Out.words(maxOutput)
	if n < minOutput {
		n = len(c.Out.Held)
	}
	s.showOutput(c, n)
}

// showEarly shows the held words of a call if they have been held long enough and there
// are not too many small chunks yet.
func (s *Session) showEarly(c *call) {
	if s.At.Sub(c.Since) < holdTime || c.Chunks >= maxEarly {
		return
	}
	c.Since = s.At
	if n := c.Out.words(maxOutput); n > 0 {
		c.Chunks++
		s.showOutput(c, n)
	}
}

// showOutput shows the first n bytes of the held output. Only the output of shells has
// an event; of other output the last line is kept for the summary.
func (s *Session) showOutput(c *call, n int) {
	if n == 0 {
		return
	}
	shown := c.Out.take(n, s.Options.Redact)
	if line := lastLine(shown.Text); line != "" {
		c.Line = clean{abridge.Chars(line, maxSummary), shown.Hidden}
	}
	if c.Kind != kindShell || shown.Text == "" {
		return
	}
	s.draft("tool.shell.output_chunk", object{{"tool_call_id", c.ID}, {"stream", "stdout"}, {"data", shown}, {"byte_offset", c.Bytes}})
	c.Bytes += int64(len(shown.Text))
}

// lastLine returns the last line that is not empty, without the end of a code block in
// Markdown.
func lastLine(text string) string {
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "```"))
	return strings.TrimSpace(text[strings.LastIndexAny(text, "\r\n")+1:])
}

// toolEnd ends a call.
func (s *Session) toolEnd(e *contracts.ToolEnd) {
	if s.Run == nil && !s.lateEnd(e.CallID) {
		return
	}
	c := s.Run.call(e.CallID)
	if c == nil {
		s.takeKept(e.CallID)
		return
	}
	timedOut := strings.Contains(e.ErrorCode, "timeout") || strings.Contains(e.ErrorCode, "timed_out")
	cancelled := strings.HasPrefix(e.ErrorCode, "cancel")
	switch {
	case c.Invoked:
	case c.Refused:
	case e.GovernedOutcome != "" || strings.HasPrefix(e.ErrorCode, "governance"):
		s.blocked(c, e)
	case e.Success || e.ErrorCode != "" && !cancelled:
		s.invoke(c)
	}
	why := s.clean(cmp.Or(e.ErrorCode, e.GovernedOutcome), maxSummary)
	switch {
	case e.Success:
		s.endCall(c, "tool.completed", why)
	case timedOut:
		s.endCall(c, "tool.timed_out", why)
	case cancelled:
		s.endCall(c, "tool.cancelled", why)
	default:
		s.endCall(c, "tool.failed", why)
	}
}

func (s *Session) blocked(c *call, e *contracts.ToolEnd) {
	s.draft("policy.tool_blocked", c.named(append(c.mcp("blocked"), member{"reason", cmp.Or(e.GovernedOutcome, e.ErrorCode)})...))
}

// endCall removes a call. If it was invoked, endCall shows the rest of its output and
// its terminal event.
func (s *Session) endCall(c *call, name string, why clean) {
	s.Run.Calls = slices.DeleteFunc(s.Run.Calls, func(other *call) bool { return other == c })
	if !c.Invoked {
		return
	}
	s.endBlock()
	s.showOutput(c, len(c.Out.Held))
	s.exited(c, name == "tool.completed")
	took := max(s.At.Sub(c.Began).Milliseconds(), 0)
	data := c.named(member{"kind", c.Kind}, member{"duration_ms", took})
	result := "dispatched"
	if name != "tool.completed" {
		result = "tool_error"
	}
	data = append(data, c.mcp(result)...)
	how := strings.TrimPrefix(name, "tool.")
	data = append(data, member{"summary", c.Line.or(why, plain(how))})
	if name == "tool.timed_out" {
		data = append(data, member{"after_ms", took})
	}
	if name != "tool.completed" {
		data = append(data, member{"error", why.or(c.Line, plain(how))})
	}
	s.draft(name, data)
}

// mcp returns the members that only tools of MCP servers have.
func (c *call) mcp(result string) object {
	server, tool, ok := strings.Cut(strings.TrimPrefix(c.Tool, mcpPrefix), "__")
	if c.Kind != kindMCP || !ok {
		return nil
	}
	return object{{"mcp_server", server}, {"mcp_tool", tool}, {"result", result}}
}

// exits finds how a command ended in the last line of its output, where our own agents
// say it if it failed.
var exits = lazyregexp.New(`^(?:Exit code ([0-9]{1,9})|Ended by (\S{1,32}) after .*)\.$`)

// exited shows the exit code of a shell's call if it is known: the last line of the
// output says it, or the tool is one of our own agents, which succeeds with 0 only.
func (s *Session) exited(c *call, success bool) {
	found := exits().FindStringSubmatch(c.Line.Text)
	ours := c.Tool == "bash" || c.Tool == "shell"
	if c.Kind != kindShell || success && !ours || !success && found == nil {
		return
	}
	code, signal := int64(0), any(nil)
	if !success {
		code, _ = strconv.ParseInt(cmp.Or(found[1], "-1"), 10, 64) // at most nine digits
		if found[2] != "" {
			signal = found[2]
		}
	}
	s.draft("tool.shell.exited", object{
		{"tool_call_id", c.ID}, {"exit_code", code}, {"signal", signal},
		{"stdout_bytes", c.Bytes}, {"stderr_bytes", int64(0)}, {"truncated", false},
	})
}
