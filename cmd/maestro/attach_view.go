package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A view turns updates into lines for a human. It is owned by the goroutine
// that follows the session. Everything it prints that came from elsewhere has
// been cleaned.
type view struct {
	screen *screen

	me         string            // our connection id
	viewer     bool              // we may never act
	controller string            // who holds the lease; empty if nobody
	known      bool              // controller has been told
	where      string            // the workspace that was told last
	answers    string            // the agent that was told last
	lost       string            // why there is no connection, as told last; empty with one
	failed     string            // the error that was told last; empty once the state has none
	names      map[string]string // client names by connection id, of those attached now
	replay     bool              // the agent plays a script
	remembers  bool              // the agent may be told to remember answers
	announced  []string          // commands of the agent's, with their slashes, as told last; at most maxFlows

	flow  string             // what the open line belongs to
	clean map[string]cleaner // by flow; an entry lives as long as its flow
	tools map[string]string  // tool names by call id, of the calls that have not ended
	own   []string           // prompts typed here that have not come back yet, in their order

	commands  map[string]bool  // that clients started and that have not ended, by id
	questions map[string]posed // questions that wait and have been shown, by id
}

// A posed is what is known of a question that was shown.
type posed struct {
	keys    bool // with how to answer it
	options contracts.ApprovalOptions
}

// maxFlows bounds how many outputs may be open at once. More than that only
// costs an escape sequence that is cut between two pieces.
const maxFlows = 256

// maxArgs is how many characters of a tool's arguments are shown.
const maxArgs = 500

func newView(s *screen) *view {
	return &view{
		screen: s, names: map[string]string{}, clean: map[string]cleaner{}, tools: map[string]string{},
		commands: map[string]bool{}, questions: map[string]posed{},
	}
}

// show prints what there is to say about an update.
func (v *view) show(u client.Update) {
	switch u.Kind {
	case client.KindEvent:
		v.event(u.Event)
	case client.KindSnapshot:
		v.snapshot(u.Snapshot)
	case client.KindReset:
		v.notice(styleYellow, "missed too much (%s): starting over from the current state", oneLine(string(u.Reason), 40))
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

// forget drops what belongs to a session that is told anew.
func (v *view) forget() {
	clear(v.clean)
	clear(v.tools)
	clear(v.questions)
	v.flow = ""
}

// event prints one entry.
func (v *view) event(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.Ready:
		v.ready(e.Model, e.Provider, e.ExecutorType)
	case *contracts.SessionInfo:
		v.place(e.Cwd, e.GitBranch)
	case *contracts.ConnectionInfo:
		v.connections(e)
	case *contracts.RawAgentEvent:
		v.raw(e)
	case *contracts.ResponseChunk:
		v.chunk(e)
	case *contracts.ResponseEnd:
		v.responseEnd(e)
	case *contracts.ToolCall:
		v.toolCall(e)
	case *contracts.ToolOutput:
		v.output("tool "+e.CallID, e.Content, stylePlain)
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
		v.notice(styleDim, "history summarised: %s", oneLine(e.Summary, maxArgs))
	case *contracts.Status:
		v.learn(e.Message)
		if e.Message != contracts.StatusWorking || len(v.questions) == 0 { // nobody works who waits for an answer
			v.notice(styleDim, "%s", oneLine(e.Message, maxArgs))
		}
	case *contracts.ErrorEvent:
		v.failure(e)
	}
}

// learn notes the commands that a status says the agent has.
func (v *view) learn(status string) {
	if commands, ok := strings.CutPrefix(status, "Agent commands: "); ok {
		words := strings.Fields(commands)
		v.announced = words[:min(len(words), maxFlows)]
	}
}

// notice prints a line of our own words around cleaned ones.
func (v *view) notice(look style, format string, args ...any) {
	v.flow = ""
	v.screen.line(look, "-- "+fmt.Sprintf(format, args...))
}

// stream prints a piece of a text that arrives in pieces. Pieces of different
// texts never share a line.
func (v *view) stream(flow string, look style, prefix, piece string) {
	c := v.clean[flow]
	piece = c.clean(piece)
	if len(v.clean) < maxFlows {
		v.clean[flow] = c
	}
	if v.flow != flow {
		v.screen.endLine()
		v.flow = flow
	}
	if prefix == "" {
		piece = setApart(piece, v.screen.midLine)
	} else if v.screen.midLine {
		prefix, piece = "", indentAfterFirst(prefix, piece)
	}
	if prefix != "" && piece != "" {
		piece = prefix + indentAfterFirst(prefix, piece)
	}
	v.screen.write(look, piece)
}

// What our own lines begin with.
var ownMarks = []string{"? ", "-- ", "* ", "! ", "> "}

// setApart puts spaces before the lines of a piece of a text that look like ours,
// or may once the next piece has come; midLine says that the first one goes on.
func setApart(piece string, midLine bool) string {
	lines := strings.SplitAfter(piece, "\n")
	for i, l := range lines {
		if l != "" && (i > 0 || !midLine) && looksOwn(l) {
			lines[i] = "  " + l
		}
	}
	return strings.Join(lines, "")
}

// looksOwn reports whether a line begins with one of our marks, or with a part of
// one and then the line or what is known of it ends; what is not seen is left out.
func looksOwn(line string) bool {
	seen := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unseen(r):
			return -1
		}
		return r
	}, line)
	return slices.ContainsFunc(ownMarks, func(mark string) bool {
		return strings.HasPrefix(seen, mark) || strings.HasPrefix(mark, seen)
	})
}

// indentAfterFirst puts prefix at the beginning of all lines but the first.
func indentAfterFirst(prefix, text string) string {
	body, ended := strings.CutSuffix(text, "\n")
	body = strings.ReplaceAll(body, "\n", "\n"+prefix)
	if ended {
		body += "\n"
	}
	return body
}

// What stands before the lines of an output, and of what a command says on its
// standard error.
const (
	outputPrefix = "  | "
	errorPrefix  = " 2| "
)

func (v *view) output(flow, content string, look style) { v.stream(flow, look, outputPrefix, content) }

func (v *view) chunk(e *contracts.ResponseChunk) {
	if e.IsThinking {
		v.stream("thinking", styleDim, "", e.Content)
		return
	}
	v.stream("response", stylePlain, "", e.Content)
}

// responseEnd prints what the response cost, if that is known.
func (v *view) responseEnd(e *contracts.ResponseEnd) {
	v.screen.endLine()
	v.flow = ""
	delete(v.clean, "thinking")
	delete(v.clean, "response")
	if e.Usage.TotalTokens == 0 {
		return
	}
	cost := ""
	if e.Usage.TotalCostUSD > 0 {
		cost = fmt.Sprintf(", $%.4f", e.Usage.TotalCostUSD)
	}
	v.notice(styleDim, "%.1f s, %d tokens%s", float64(e.DurationMS)/1000, e.Usage.TotalTokens, cost)
}

func (v *view) toolCall(e *contracts.ToolCall) {
	if len(v.tools) < maxFlows {
		v.tools[e.CallID] = e.Tool
	}
	v.flow = ""
	v.screen.line(styleCyan, "* "+oneLine(e.Tool, 60)+" "+summary(e.Args))
}

func (v *view) toolEnd(e *contracts.ToolEnd) {
	name := v.tools[e.CallID]
	delete(v.tools, e.CallID)
	delete(v.clean, "tool "+e.CallID)
	v.flow = ""
	if e.Success {
		v.screen.line(styleGreen, "  done"+colon(oneLine(name, 60)))
		return
	}
	why := ""
	if e.ErrorCode != "" {
		why = " (" + oneLine(e.ErrorCode, 60) + ")"
	}
	v.screen.line(styleRed, "  failed"+colon(oneLine(name, 60))+why)
}

func (v *view) commandStarted(e *contracts.UtilityCommandStarted) {
	if len(v.commands) < maxFlows {
		v.commands[e.CommandID] = true
	}
	v.notice(styleCyan, "command %s: %s", oneLine(e.CommandID, 40), inLine(e.Command, maxArgs))
}

// commandOutput prints a piece of what a command says, with its id while there is
// more than one of them.
func (v *view) commandOutput(e *contracts.UtilityCommandOutput) {
	prefix := outputPrefix
	if e.Stream == contracts.StreamStderr {
		prefix = errorPrefix
	}
	if len(v.commands) > 1 {
		prefix = "  " + oneLine(e.CommandID, 40) + " " + strings.TrimLeft(prefix, " ")
	}
	v.stream("command "+e.CommandID+string(e.Stream), stylePlain, prefix, e.Content)
}

func (v *view) commandExited(e *contracts.UtilityCommandExited) {
	delete(v.clean, "command "+e.CommandID+string(contracts.StreamStdout))
	delete(v.clean, "command "+e.CommandID+string(contracts.StreamStderr))
	delete(v.commands, e.CommandID)
	how := "ended"
	switch {
	case e.Signal != nil:
		how = "ended by " + oneLine(*e.Signal, 20)
	case e.ExitCode != nil:
		how = fmt.Sprintf("exited with %d", *e.ExitCode)
	}
	v.notice(styleCyan, "command %s %s%s", oneLine(e.CommandID, 40), how, colon(e.Reason))
}

func (v *view) failure(e *contracts.ErrorEvent) {
	word := "error"
	if e.Fatal {
		word = "fatal error"
	}
	v.flow, v.failed = "", e.Message
	v.screen.line(styleRed, fmt.Sprintf("! %s (%s): %s", word, oneLine(string(e.ErrorType), 20), indentAfterFirst("  ", strings.TrimSuffix(cleanText(e.Message), "\n"))))
}

func (v *view) resolved(e *contracts.ServerRequestResolved) {
	options := v.questions[e.RequestID].options
	delete(v.questions, e.RequestID)
	verdict, more := decided(e, options)
	kind := strings.ReplaceAll(oneLine(string(e.RequestType), 20), "_", " ")
	v.notice(styleDim, "%s %s by %s%s", kind, oneLine(verdict, 20), oneLine(string(e.ResolvedBy), 20), more)
}

// raw prints what a user asked, which no other event tells.
func (v *view) raw(e *contracts.RawAgentEvent) {
	prompt, ok := userMessage(e)
	if !ok {
		return
	}
	if i := slices.Index(v.own, prompt); i >= 0 { // the terminal has shown it
		v.own = v.own[i+1:] // those before it do not come any more
		return
	}
	v.flow = ""
	v.screen.line(styleBold, "> "+indentAfterFirst("  ", strings.TrimSuffix(cleanText(prompt), "\n")))
}

// expect notes that prompt was typed here and needs no second line.
func (v *view) expect(prompt string) {
	if v.screen.terminal && len(v.own) < maxFlows {
		v.own = append(v.own, prompt)
	}
}

// unexpect takes expect back: prompt was refused.
func (v *view) unexpect(prompt string) {
	if i := slices.Index(v.own, prompt); i >= 0 {
		v.own = slices.Delete(v.own, i, i+1)
	}
}

// userMessage returns the text of a message_start event of a user.
func userMessage(e *contracts.RawAgentEvent) (string, bool) {
	var event struct {
		Message struct {
			Role    string
			Content json.RawMessage
		}
	}
	if e.EventKind != "message_start" || json.Unmarshal(e.Event, &event) != nil || event.Message.Role != "user" {
		return "", false
	}
	var text string
	if json.Unmarshal(event.Message.Content, &text) == nil {
		return text, true
	}
	var blocks []struct{ Type, Text string }
	if json.Unmarshal(event.Message.Content, &blocks) != nil {
		return "", false
	}
	var parts []string
	for _, b := range blocks {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n"), true
}
