package acpserver

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/session"
)

const (
	maxOutput = contracts.MaxStateOutput // bytes of a call's output that are sent, from its end
	maxTitle  = 200                      // bytes of a call's title
)

// A call is a tool call that was sent to the editor.
type call struct {
	id     acp.ToolCallId
	status acp.ToolCallStatus
	output string // the end of its output
	cut    bool   // the beginning of the output was dropped
	dirty  bool   // some output was not sent
	diff   string // the change that the call would make, if the agent says so
}

// inputs are the known args of a call, and the details that are not for the
// tool: agents of package acp add those.
type inputs struct {
	Command  string `json:"command"`
	Path     string `json:"path"`
	FilePath string `json:"file_path"`
	Pattern  string `json:"pattern"`
	URL      string `json:"url"`
	Query    string `json:"query"`
	Message  string `json:"message"`
	Details  struct {
		Title     string                    `json:"title"`
		Kind      acp.ToolKind              `json:"kind"`
		Locations []acp.ToolCallLocation    `json:"locations"`
		Diff      string                    `json:"diff"`
		Options   contracts.ApprovalOptions `json:"options"`
	} `json:"_acp"`
}

// inputsOf decodes args. Members of a wrong type are ignored.
func inputsOf(args json.RawMessage) (in inputs) {
	_ = json.Unmarshal(args, &in) // args may be any JSON; decode what fits
	return in
}

func (in *inputs) title(tool string) string {
	what := cmp.Or(in.Details.Title, in.Command, in.Message)
	if what == "" {
		what = strings.TrimSpace(tool + " " + cmp.Or(in.Path, in.FilePath, in.Pattern, in.URL, in.Query))
	}
	line, rest, more := strings.Cut(strings.TrimSpace(what), "\n")
	line = contracts.CleanLabel(line, len(line))
	if short := abridge.Head(line, maxTitle); short != line || more && strings.TrimSpace(rest) != "" {
		return short + " …"
	}
	return line
}

// toApprove returns what a person needs to approve a call beside the title: the args if
// they have characters that are hidden or reorder text, else the command if it is not in
// the title, and the diff.
func (in *inputs) toApprove(tool string, args json.RawMessage) []acp.ToolCallContent {
	list := (&call{diff: in.Details.Diff}).content()
	text := ""
	if whole := contracts.DisplayRequest(&contracts.ServerRequest{Tool: tool, Args: args}); whole.Escaped {
		text = whole.Text
	} else if !strings.Contains(in.title(tool), in.Command) {
		text = in.Command
	}
	if text != "" {
		list = slices.Insert(list, 0, acp.ToolContent(acp.TextBlock(fenced("", text))))
	}
	return list
}

// kinds are the kinds of our own agents' tools.
var kinds = map[string]acp.ToolKind{
	"bash": acp.ToolKindExecute, "shell": acp.ToolKindExecute, "read": acp.ToolKindRead,
	"write": acp.ToolKindEdit, "edit": acp.ToolKindEdit, "glob": acp.ToolKindSearch, "grep": acp.ToolKindSearch,
	"fetch": acp.ToolKindFetch, "execute": acp.ToolKindExecute, "search": acp.ToolKindSearch,
	"delete": acp.ToolKindDelete, "move": acp.ToolKindMove, "think": acp.ToolKindThink,
}

func (in *inputs) kind(tool string) acp.ToolKind {
	return cmp.Or(in.Details.Kind, kinds[strings.ToLower(tool)], acp.ToolKindOther)
}

// locations returns the files that a call is about, so that the editor can
// follow the agent.
func (in *inputs) locations(cwd string) []acp.ToolCallLocation {
	if in.Details.Locations != nil {
		return in.Details.Locations
	}
	path := cmp.Or(in.FilePath, in.Path)
	if path == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return []acp.ToolCallLocation{{Path: path}}
}

// rawInput returns the args without the details.
func rawInput(args json.RawMessage) any {
	var all map[string]json.RawMessage
	if json.Unmarshal(args, &all) != nil {
		if len(args) == 0 {
			return nil
		}
		return args
	}
	delete(all, "_acp")
	return all
}

// called announces a call, once.
func (a *attachment) called(id, tool string, args json.RawMessage) *call {
	if c := a.calls[id]; c != nil {
		return c
	}
	if len(a.calls) >= session.MaxTools { // the server drops some too
		for other := range a.calls {
			delete(a.calls, other)
			break
		}
	}
	in := inputsOf(args)
	c := &call{id: acp.ToolCallId(id), status: acp.ToolCallStatusPending, diff: in.Details.Diff}
	a.calls[id] = c
	a.update(acp.SessionUpdateToolCall{
		SessionUpdate: "tool_call", ToolCallId: c.id, Title: cmp.Or(in.title(tool), tool, "tool"), Kind: in.kind(tool),
		Status: c.status, RawInput: rawInput(args), Locations: in.locations(a.fold.Snapshot(0).State.Cwd), Content: c.content(),
	})
	return c
}

// find returns a call. It announces a call of which only the id is known.
func (a *attachment) find(id string) *call {
	if c := a.calls[id]; c != nil {
		return c
	}
	if t, ok := a.fold.TrackedTool(id); ok {
		return a.called(id, t.Tool, t.Args)
	}
	return a.called(id, "tool", nil)
}

func (a *attachment) change(u acp.SessionToolCallUpdate) {
	u.SessionUpdate = "tool_call_update"
	a.update(u)
}

// output stores output to be sent soon.
func (a *attachment) output(id, text string) {
	c := a.find(id)
	c.append(text)
	if a.dirty.IsZero() {
		a.dirty = time.Now()
	}
}

// append adds to the output of a call.
func (c *call) append(text string) {
	all := c.output + text
	c.output = contracts.TailText(all, maxOutput)
	c.cut = c.cut || len(c.output) < len(all)
	c.dirty = true
}

// content returns the content of a call for the editor.
func (c *call) content() []acp.ToolCallContent {
	var list []acp.ToolCallContent
	if c.diff != "" {
		list = append(list, acp.ToolContent(acp.TextBlock(fenced("diff", c.diff))))
	}
	if c.output != "" {
		text := fenced("", c.output)
		if c.cut {
			text = "[the beginning of the output is left out]\n" + text
		}
		list = append(list, acp.ToolContent(acp.TextBlock(text)))
	}
	return list
}

// flush sends the stored output.
func (a *attachment) flush() {
	a.dirty = time.Time{}
	for _, c := range a.calls {
		if c.dirty {
			c.dirty = false
			a.change(acp.SessionToolCallUpdate{ToolCallId: c.id, Content: c.content()})
		}
	}
}

// toolEnded sends the end of a call, with its stored output.
func (a *attachment) toolEnded(e *contracts.ToolEnd) {
	c := a.find(e.CallID)
	delete(a.calls, e.CallID)
	status := acp.ToolCallStatusFailed
	if e.Success {
		status = acp.ToolCallStatusCompleted
	}
	u := acp.SessionToolCallUpdate{ToolCallId: c.id, Status: &status, Content: c.content()}
	if e.ErrorCode != "" || e.GovernedOutcome != "" {
		u.RawOutput = map[string]string{"error_code": e.ErrorCode, "governed_outcome": e.GovernedOutcome}
	}
	a.change(u)
}

// endCalls ends the calls whose end was missed.
func (a *attachment) endCalls(now *contracts.State) {
	open := map[string]bool{}
	for _, t := range now.TrackedTools {
		open[t.CallID] = true
	}
	for _, t := range now.ActiveTools {
		open[t.CallID] = true
	}
	for id, c := range a.calls {
		if !open[id] {
			delete(a.calls, id)
			c.append("[how this ended is not known any more]\n")
			a.change(acp.SessionToolCallUpdate{ToolCallId: c.id, Status: acp.Ptr(acp.ToolCallStatusFailed), Content: c.content()})
		}
	}
}

// calledAlready sends a running call with its output so far.
func (a *attachment) calledAlready(t contracts.ActiveTool) {
	c := a.find(t.CallID)
	c.status, c.output, c.cut, c.dirty = acp.ToolCallStatusInProgress, "", false, false
	c.append(t.Output)
	c.dirty = false
	a.change(acp.SessionToolCallUpdate{ToolCallId: c.id, Status: &c.status, Content: c.content()})
}

// fenced returns a text as a Markdown code block that the text cannot end.
func fenced(language, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	end := "\n"
	if strings.HasSuffix(text, "\n") {
		end = ""
	}
	return fence + language + "\n" + text + end + fence + "\n"
}
