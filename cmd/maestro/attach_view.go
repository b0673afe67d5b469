package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/show"
)

// A view prints updates as lines for a human. The goroutine of the attachment owns
// it. It cleans every text from elsewhere before it prints it.
type view struct {
	screen *console.Screen

	me         string            // our connection id
	session    string            // id of the session
	viewer     bool              // we may never act
	approver   bool              // we may only answer approvals and user input
	controller string            // the lease holder; empty if nobody
	approvers  bool              // an approver is attached
	known      bool              // controller has been printed
	where      string            // the workspace, as printed last
	answers    string            // the agent, as printed last
	lost       string            // why there is no connection, as printed last; empty with one
	failed     string            // the error, as printed last; empty if the state has none
	names      map[string]string // client names by connection id, of the attached clients
	persons    map[string]string // names of their users, as far as they are known
	voted      bool              // a vote was printed, and the status of the same vote comes next
	replay     bool              // the agent plays a script
	remembers  bool              // the agent can remember answers
	rules      bool              // the agent knows /rules and /forget
	announced  []string          // commands of the agent, with their slashes; at most maxFlows

	flow     string            // the text to which the open line belongs
	flows    map[string]flow   // texts that arrive in pieces and have not ended
	tools    map[string]string // tool names by call id, of the calls that have not ended
	response string            // the response whose text was printed last
	own      []string          // prompts typed here whose event has not arrived, in order
	prompted bool              // prompt_accepted came, and the message_start of the same prompt comes next
	present  bool              // the events before this attachment have been printed
	past     bool              // only the history is printed

	pending func(id string) bool // reports whether a replayed question is still open; nil if unknown

	commands  map[string]bool          // running commands of clients, by id
	questions map[string]shownQuestion // printed open questions, by id
}

// A flow is the state of a text that arrives in pieces.
type flow struct {
	show.Cleaner
	code bool   // within a code block, whose lines are not broken between words
	line string // the beginning of the open line
}

// note reads a piece of one line. Code blocks begin and end with three backquotes.
func (f *flow) note(piece string) {
	const mark = "```"
	if len(f.line) < 4*len(mark) {
		f.line += piece[:min(len(piece), 4*len(mark))]
	}
	if strings.HasSuffix(piece, "\n") {
		if strings.HasPrefix(strings.TrimLeft(f.line, " "), mark) {
			f.code = !f.code
		}
		f.line = ""
	}
}

// A shownQuestion is a question that was printed.
type shownQuestion struct {
	keys    bool // how to answer was printed too
	options contracts.ApprovalOptions
}

// maxFlows bounds the open texts. Of a text beyond the bound, an escape sequence that
// is cut between two pieces is printed in part.
const maxFlows = 256

func newView(s *console.Screen) *view {
	return &view{
		screen: s, names: map[string]string{}, persons: map[string]string{}, flows: map[string]flow{}, tools: map[string]string{},
		commands: map[string]bool{}, questions: map[string]shownQuestion{},
	}
}

// show prints an update.
func (v *view) show(u client.Update) {
	switch u.Kind {
	case client.KindEvent:
		if info, ok := u.Event.(*contracts.ConnectionInfo); ok && u.Replayed && !v.past {
			v.people(info.Connections) // the present controller came with the connection
			return
		}
		if q, ok := u.Event.(*contracts.ServerRequest); ok && (v.past || u.Replayed && v.pending != nil && !v.pending(q.RequestID)) {
			v.ask(requestOf(q), "")
			return
		}
		v.event(u.Event)
	case client.KindSnapshot:
		if !u.Replayed { // a replayed snapshot repeats events that are shown anyway
			v.snapshot(u.Snapshot)
		}
	case client.KindReset:
		switch {
		case v.past:
			v.notice(console.Yellow, "what was before is not kept any more: this is the current state")
		case v.present:
			v.notice(console.Yellow, "missed too much (%s): starting over from the current state", show.OneLine(string(u.Reason), 40))
		default: // earlier entries may be kept, such as those of an earlier epoch
			v.notice(console.Yellow, "this is the current state: /history shows what is kept of the time before")
		}
		v.forget()
		v.snapshot(u.Snapshot)
	case client.KindControl:
		v.control(u.Control)
	case client.KindConnected:
		v.connected(u.Attached)
	case client.KindDisconnected:
		v.disconnected(u.Err)
	}
}

// forget drops the state before a reset.
func (v *view) forget() {
	clear(v.flows)
	clear(v.tools)
	clear(v.questions)
	v.flow, v.response = "", ""
}

// snapshot prints the parts of a state that have not been printed.
func (v *view) snapshot(s *contracts.Snapshot) {
	st := &s.State
	v.people(st.Connections)
	if st.People != nil {
		v.learn(st.People.Controller)
	}
	if st.Model != "" && v.answers == "" {
		v.ready(st.Model, st.Provider, "")
	}
	if st.Cwd != "" {
		branch := st.GitBranch.Get()
		v.place(st.Cwd, &branch)
	}
	if st.ControllerConnectionID.Present {
		v.setController(st.ControllerConnectionID.Get(), "")
	}
	for _, t := range st.ActiveTools {
		if _, shown := v.tools[t.CallID]; shown {
			continue
		}
		v.tools[t.CallID] = t.Tool
		v.screen.Line(console.Cyan, "* "+show.OneLine(t.Tool, 60)+" is running")
		v.stream("tool "+t.CallID, console.Plain, outputPrefix, t.Output)
	}
	if r := st.CurrentResponse; r != nil && (r.ResponseID == "" || r.ResponseID != v.response) {
		v.chunk(&contracts.ResponseChunk{ResponseID: r.ResponseID, Content: r.Thinking, IsThinking: true})
		v.chunk(&contracts.ResponseChunk{ResponseID: r.ResponseID, Content: r.Text})
	}
	if st.LastError != nil && *st.LastError != v.failed { // every lease change brings the state again
		v.notice(console.Red, "last error: %s", show.OneLine(*st.LastError, show.MaxArgs))
	}
	v.failed = orEmpty(st.LastError)
	v.waiting(st.PendingRequests)
	clear(v.commands)
	for _, c := range st.ActiveUtilityCommands[:min(len(st.ActiveUtilityCommands), maxFlows)] {
		v.commands[c.CommandID] = true
	}
}

// event prints one entry.
func (v *view) event(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.HelloOK:
		v.present = true
	case *contracts.Ready:
		v.ready(e.Model, e.Provider, e.ExecutorType)
	case *contracts.SessionInfo:
		v.place(e.Cwd, e.GitBranch)
	case *contracts.ConnectionInfo:
		v.connections(e)
	case *contracts.RawAgentEvent:
		v.raw(e)
	case *contracts.PromptAccepted:
		v.learn(&e.Author)
		v.prompt(e)
	case *contracts.QueueChanged:
		v.queue(e)
	case *contracts.ControlChanged:
		v.learn(e.From)
		v.learn(e.To)
	case *contracts.RequestShown:
		if e.Escaped {
			v.notice(console.Red, "the request has hidden characters: %s", show.InLine(e.Display, show.MaxArgs))
		}
		if e.VotesNeeded > 0 {
			v.notice(console.Dim, "%d principals must approve", e.VotesNeeded)
		}
	case *contracts.RequestVoted:
		if v.voted = e.Approved; v.voted {
			v.notice(console.Dim, "%s approved, %d of %d", v.author(&e.Author), e.Votes, e.VotesNeeded)
		}
	case *contracts.ResponseChunk:
		v.chunk(e)
	case *contracts.ResponseEnd:
		v.responseEnd(e)
	case *contracts.ToolCall:
		v.toolCall(e)
	case *contracts.ToolOutput:
		v.stream("tool "+e.CallID, console.Plain, outputPrefix, e.Content)
	case *contracts.ToolEnd:
		v.toolEnd(e)
	case *contracts.ServerRequest:
		v.request(requestOf(e))
	case *contracts.ServerRequestResolved:
		v.resolved(e)
	case *contracts.UtilityCommandStarted:
		v.commandStarted(e)
	case *contracts.UtilityCommandOutput:
		v.commandOutput(e)
	case *contracts.UtilityCommandExited:
		v.commandExited(e)
	case *contracts.Compaction:
		v.notice(console.Dim, "history summarised: %s", show.OneLine(e.Summary, show.MaxArgs))
	case *contracts.Status:
		if commands, ok := strings.CutPrefix(e.Message, "Agent commands: "); ok {
			words := strings.Fields(commands)
			v.announced = words[:min(len(words), maxFlows)]
		}
		voted := v.voted && strings.HasSuffix(e.Message, " votes")
		v.voted = false
		if voted {
			return
		}
		if e.Message != contracts.StatusWorking || len(v.questions) == 0 && !v.screen.Live() { // an agent that waits for an answer does not work; a prompt shows it too
			v.notice(console.Dim, "%s", show.OneLine(e.Message, show.MaxArgs))
		}
	case *contracts.ErrorEvent:
		v.failure(e)
	}
}

// commandsOfAgent returns the commands of the agent, with their slashes.
func (v *view) commandsOfAgent() []string {
	if v.rules {
		return append([]string{"/rules", "/forget"}, v.announced...)
	}
	return v.announced
}

// help returns the help for typed lines.
func (v *view) help() string {
	text := attachHelp
	if v.rules {
		text += rulesHelp
	}
	if len(v.announced) > 0 {
		text += "\n  of the agent      " + show.InLine(strings.Join(v.announced, " "), show.MaxArgs)
	}
	return text
}

// notice prints a line. args must have been cleaned.
func (v *view) notice(look console.Style, format string, args ...any) {
	v.flow = ""
	v.screen.Line(look, "-- "+fmt.Sprintf(format, args...))
}

// stream prints a piece of a text that arrives in pieces. Pieces of different
// texts never share a line.
func (v *view) stream(name string, look console.Style, prefix, piece string) {
	f := v.flows[name]
	if v.flow != name {
		v.screen.EndLine()
		v.flow = name
	}
	for line := range strings.Lines(f.Clean(piece)) {
		v.screen.Write(look, prefix, line, f.code)
		f.note(line)
	}
	if len(v.flows) < maxFlows {
		v.flows[name] = f
	}
}

// hanging returns a cleaned text whose lines after the first are indented.
func hanging(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(show.Clean(text), "\n"), "\n", "\n"+margin)
}

// Prefixes of lines. Every line of an agent has one, so that it cannot look like a
// line of this program.
const (
	margin       = "  "   // texts of the agent
	outputPrefix = "  | " // output
	errorPrefix  = " 2| " // standard error of a command
)

func (v *view) chunk(e *contracts.ResponseChunk) {
	v.response = e.ResponseID
	if e.IsThinking {
		v.stream("thinking", console.Dim, margin, e.Content)
		return
	}
	v.stream("response", console.Plain, margin, e.Content)
}

// responseEnd prints the cost of the response, if it is known.
func (v *view) responseEnd(e *contracts.ResponseEnd) {
	v.screen.EndLine()
	v.flow = ""
	delete(v.flows, "thinking")
	delete(v.flows, "response")
	if e.Usage.TotalTokens == 0 {
		return
	}
	cost := ""
	if e.Usage.TotalCostUSD > 0 {
		cost = fmt.Sprintf(", $%.4f", e.Usage.TotalCostUSD)
	}
	v.notice(console.Dim, "%.1f s, %d tokens%s", float64(e.DurationMS)/1000, e.Usage.TotalTokens, cost)
}

func (v *view) toolCall(e *contracts.ToolCall) {
	if len(v.tools) < maxFlows {
		v.tools[e.CallID] = e.Tool
	}
	v.flow = ""
	v.screen.Block(console.Cyan, "* "+show.OneLine(e.Tool, 60)+" "+show.Summary(e.Args))
}

func (v *view) toolEnd(e *contracts.ToolEnd) {
	name := v.tools[e.CallID]
	delete(v.tools, e.CallID)
	delete(v.flows, "tool "+e.CallID)
	v.flow = ""
	if e.Success {
		v.screen.Line(console.Green, "  done"+colon(show.OneLine(name, 60)))
		return
	}
	why := ""
	if e.ErrorCode != "" {
		why = " (" + show.OneLine(e.ErrorCode, 60) + ")"
	}
	v.screen.Line(console.Red, "  failed"+colon(show.OneLine(name, 60))+why)
}

func (v *view) commandStarted(e *contracts.UtilityCommandStarted) {
	if len(v.commands) < maxFlows {
		v.commands[e.CommandID] = true
	}
	v.notice(console.Cyan, "command %s: %s", show.OneLine(e.CommandID, 40), show.InLine(e.Command, show.MaxArgs))
}

// commandOutput prints a piece of a command's output, with the command's id while
// several commands run.
func (v *view) commandOutput(e *contracts.UtilityCommandOutput) {
	prefix := outputPrefix
	if e.Stream == contracts.StreamStderr {
		prefix = errorPrefix
	}
	if len(v.commands) > 1 {
		prefix = "  " + show.OneLine(e.CommandID, 40) + " " + strings.TrimLeft(prefix, " ")
	}
	v.stream("command "+e.CommandID+string(e.Stream), console.Plain, prefix, e.Content)
}

func (v *view) commandExited(e *contracts.UtilityCommandExited) {
	delete(v.flows, "command "+e.CommandID+string(contracts.StreamStdout))
	delete(v.flows, "command "+e.CommandID+string(contracts.StreamStderr))
	delete(v.commands, e.CommandID)
	how := "ended"
	switch {
	case e.Signal != nil:
		how = "ended by " + show.OneLine(*e.Signal, 20)
	case e.ExitCode != nil:
		how = fmt.Sprintf("exited with %d", *e.ExitCode)
	}
	v.notice(console.Cyan, "command %s %s%s", show.OneLine(e.CommandID, 40), how, colon(e.Reason))
}

func (v *view) failure(e *contracts.ErrorEvent) {
	word := "error"
	if e.Fatal {
		word = "fatal error"
	}
	v.flow, v.failed = "", e.Message
	v.screen.Line(console.Red, fmt.Sprintf("! %s (%s): %s", word, show.OneLine(string(e.ErrorType), 20), hanging(e.Message)))
}

// resolved prints how a question ended, and who answered it.
func (v *view) resolved(e *contracts.ServerRequestResolved) {
	options := v.questions[e.RequestID].options
	delete(v.questions, e.RequestID)
	verdict, more := decided(e, options)
	how, by := show.OneLine(verdict, 20), show.OneLine(string(e.ResolvedBy), 20)
	if e.RequestType != contracts.RequestApproval {
		how = strings.ReplaceAll(show.OneLine(string(e.RequestType), 20), "_", " ") + " " + how
	}
	if e.Author != nil {
		by = cmp.Or(v.author(e.Author), by)
	}
	v.notice(console.Dim, "%s by %s%s", how, by, more)
}

// prompt prints the prompt of a user, with the author's name if it is another one.
func (v *view) prompt(e *contracts.PromptAccepted) {
	v.prompted = true
	mine := e.Author.ConnectionID == v.me
	typed := func(own string) bool { return own == e.Content || e.Truncated && strings.HasPrefix(own, e.Content) }
	if i := slices.IndexFunc(v.own, typed); mine && i >= 0 { // the typed line stands there already
		v.own = v.own[i+1:] // the events of earlier ones do not come any more
		return
	}
	name := ""
	if !mine {
		name = v.author(&e.Author)
	}
	cut := ""
	if e.Truncated {
		cut = "…"
	}
	v.flow = ""
	v.screen.Block(console.Bold, name+"> "+hanging(e.Content+cut))
	if len(e.Attachments) > 0 {
		v.notice(console.Dim, "with %s", show.OneLine(strings.Join(e.Attachments, ", "), show.MaxArgs))
	}
}

// queue prints how many prompts wait.
func (v *view) queue(e *contracts.QueueChanged) {
	switch n := len(e.Prompts); {
	case e.Held:
		v.notice(console.Yellow, "the queue is held (%d): /resume lets it go on", n)
	case n > 0:
		list := make([]string, 0, maxQueued)
		for _, p := range e.Prompts[:min(n, maxQueued)] {
			list = append(list, show.OneLine(p.Content, 40))
		}
		if n > maxQueued {
			list = append(list, "…")
		}
		v.notice(console.Dim, "in the queue (%d): %s", n, strings.Join(list, " · "))
	}
}

// maxQueued is the number of prompts of the queue that a change shows. /queued shows all.
const maxQueued = 4

// author returns the name of an author for the user.
func (v *view) author(a *contracts.Author) string {
	if a.ConnectionID != "" && a.ConnectionID == v.me {
		return "you"
	}
	return authorName(a)
}

// learn notes the name of the user of a connection.
func (v *view) learn(a *contracts.Author) {
	if a != nil && a.ConnectionID != "" {
		v.persons[a.ConnectionID] = authorName(a)
	}
}

// authorName returns the proven name of an author with the name that the client gives.
// Without authentication there is no proven name, and perhaps no name at all.
func authorName(a *contracts.Author) string {
	said := a.ClaimedName
	if said == "" && a.ClientInfo != nil && a.ClientInfo.Name != attachName {
		said = a.ClientInfo.Name
	}
	name := show.OneLine(a.Name, 40)
	switch {
	case a.Name == "anonymous":
		return show.OneLine(said, 40)
	case said != "" && said != a.Name:
		return name + " (" + show.OneLine(said, 40) + ")"
	}
	return name
}

// raw prints the prompt of a user if no prompt_accepted did, as with an older server.
func (v *view) raw(e *contracts.RawAgentEvent) {
	if v.prompted && e.EventKind == "message_start" {
		v.prompted = false
		return
	}
	prompt, ok := e.UserMessage()
	if !ok {
		return
	}
	if i := slices.Index(v.own, prompt); i >= 0 { // the typed line stands there already
		v.own = v.own[i+1:] // the events of earlier ones do not come any more
		return
	}
	v.flow = ""
	v.screen.Block(console.Bold, "> "+hanging(prompt))
}

// expect notes that a prompt was typed here, so that its event is not printed.
func (v *view) expect(prompt string) {
	if v.screen.Live() && len(v.own) < maxFlows {
		v.own = append(v.own, prompt)
	}
}

// unexpect undoes expect after a refusal.
func (v *view) unexpect(prompt string) {
	if i := slices.Index(v.own, prompt); i >= 0 {
		v.own = slices.Delete(v.own, i, i+1)
	}
}
