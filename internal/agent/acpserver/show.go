package acpserver

import (
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// overlap is the length of the end of a text that is searched for in a newer
// version of it, in bytes.
const overlap = 4 << 10

// show sends an event to the editor.
func (a *attachment) show(u client.Update) {
	if tellsMore(u.Event) {
		a.flushFailure()
	}
	switch e := u.Event.(type) {
	case *contracts.ResponseChunk:
		a.chunk(e.Content, e.IsThinking)
	case *contracts.RawAgentEvent:
		a.raw(u.Cursor, e)
	case *contracts.ToolCall:
		a.called(e.CallID, e.Tool, e.Args)
	case *contracts.ClientToolRequest:
		a.called(e.CallID, e.Tool, e.Args)
	case *contracts.ServerRequest:
		if e.RequestType != contracts.RequestToolRetry { // a retry is about an earlier call
			a.called(e.CallID, e.Tool, e.Args)
		}
	case *contracts.ServerRequestResolved:
		a.resolved(e)
	case *contracts.ToolStart:
		c := a.find(e.CallID)
		c.status = acp.ToolCallStatusInProgress
		a.change(acp.SessionToolCallUpdate{ToolCallId: c.id, Status: &c.status})
	case *contracts.ToolOutput:
		a.output(e.CallID, e.Content)
	case *contracts.ToolEnd:
		a.toolEnded(e)
	case *contracts.ErrorEvent:
		a.failed = e
		if !a.running {
			a.flushFailure()
		}
	case *contracts.Status:
		a.notice(e.Message)
	case *contracts.Compaction:
		a.notice("The conversation so far was summarised.")
	}
}

// tellsMore reports whether an event shows that the run went on after an error.
func tellsMore(e contracts.Event) bool {
	switch e.(type) {
	case *contracts.ResponseChunk, *contracts.ToolCall, *contracts.ToolStart, *contracts.ToolOutput, *contracts.ErrorEvent,
		*contracts.ServerRequest, *contracts.ResponseStart:
		return true
	}
	return false
}

// raw handles a raw agent event: the start and end of a run, and a user's
// message.
func (a *attachment) raw(cursor uint64, e *contracts.RawAgentEvent) {
	switch e.EventKind {
	case "agent_start":
		a.running = true
	case "message_start":
		if text, ok := e.UserMessage(); ok && !a.echo(text) {
			a.message("user_message_chunk", text)
		}
	case "agent_end":
		a.flush()
		a.running = false
		if a.runEnded(cursor, a.failed) {
			a.failed = nil // the error is the answer to the prompt
		}
		a.flushFailure()
	}
}

func (a *attachment) message(kind, text string) {
	if text != "" {
		a.update(struct {
			SessionUpdate string               `json:"sessionUpdate"`
			Content       acp.ContentBlockText `json:"content"`
		}{kind, acp.ContentBlockText{Type: "text", Text: text}})
	}
}

func (a *attachment) chunk(text string, thinking bool) {
	kind := "agent_message_chunk"
	if thinking {
		kind = "agent_thought_chunk"
	}
	a.message(kind, text)
}

// notice sends a text that is not part of the answer.
func (a *attachment) notice(text string) { a.chunk(text+"\n", true) }

// flushFailure sends an error that is not the answer to a prompt of the editor.
func (a *attachment) flushFailure() {
	if e := a.failed; e != nil {
		a.failed = nil
		a.chunk("\n\nError: "+e.Message+"\n\n", false)
	}
}

// restore sets the state. If no updates were missed, the state contains nothing
// new. Otherwise restore sends what was missed.
func (a *attachment) restore(u client.Update) {
	before := a.fold.Snapshot(0).State
	a.fold.Restore(u.Snapshot)
	if !a.gap && u.Kind == client.KindSnapshot {
		return
	}
	a.gap = false
	now := &u.Snapshot.State
	a.flush()
	a.endCalls(now)
	if now.CurrentResponse != nil {
		a.catchUp(before.CurrentResponse, now.CurrentResponse)
	}
	for i := range now.TrackedTools {
		t := &now.TrackedTools[i]
		a.called(t.CallID, t.Tool, t.Args)
	}
	for _, t := range now.ActiveTools {
		a.calledAlready(t)
	}
	a.running = now.IsResponding
	if !now.IsResponding && len(now.TrackedTools) == 0 {
		a.lost(u.Cursor)
	}
}

// catchUp sends the new part of a response, of which before was sent.
func (a *attachment) catchUp(before, now *contracts.CurrentResponse) {
	if before == nil || before.ResponseID != now.ResponseID {
		before = &contracts.CurrentResponse{}
	}
	a.chunk(newText(before.Thinking, now.Thinking), true)
	a.chunk(newText(before.Text, now.Text), false)
}

// newText returns the part of text after shown. Both may lack their beginning.
func newText(shown, text string) string {
	if rest, ok := strings.CutPrefix(text, shown); ok {
		return rest
	}
	end := contracts.TailText(shown, overlap)
	if i := strings.LastIndex(text, end); i >= 0 {
		return text[i+len(end):]
	}
	return "\n\n[some of the answer is not kept any more]\n\n" + text
}
