package hecate

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
)

var (
	drawCall  = rapid.SampledFrom([]string{"c1", "c2", "c3", "c1", "c4"})
	drawAsk   = rapid.SampledFrom([]string{"q1", "q2", "c1"})
	drawTool  = rapid.SampledFrom([]string{"bash", "read", "mcp__a__b", "other", ""})
	drawArgs  = rapid.SampledFrom([]string{`{}`, `null`, `[1]`, `{"command":"ls ` + secret + `","env":{"A":"` + secret + `"}}`, `{"command":["a",1]}`, `{"_acp":{"kind":"execute"},"argv":["x"]}`})
	drawPiece = rapid.OneOf(
		rapid.SampledFrom([]string{secret, secret[:5], secret[5:], " ", "\n", "a b ", "é€😀", "", "Exit code 7."}),
		rapid.SampledFrom([]string{string(make20k()), "line\nline\n"}),
	)
	drawCode    = rapid.SampledFrom([]string{"", "", "timeout", "cancelled", "governance_denied", "unknown_tool"})
	drawVerdict = rapid.SampledFrom([]contracts.Verdict{contracts.VerdictApproved, contracts.VerdictDenied, contracts.VerdictCancelled, contracts.VerdictAnswered})
	drawBy      = rapid.SampledFrom([]contracts.Resolver{contracts.ResolvedByUser, contracts.ResolvedByPolicy, contracts.ResolvedByRuntime})
	drawError   = rapid.SampledFrom([]contracts.ErrorType{contracts.ErrorTransient, contracts.ErrorFatal, contracts.ErrorTool, contracts.ErrorCancelled, contracts.ErrorProtocol})
)

func make20k() []byte {
	text := make([]byte, 20<<10)
	for i := range text {
		text[i] = "abc d\n"[i%6]
	}
	return text
}

// drawEvent draws a native event. The order is arbitrary, so most make no sense.
func drawEvent(t *rapid.T) contracts.Event {
	call, text := drawCall.Draw(t, "call"), drawPiece.Draw(t, "text")
	events := []contracts.Event{
		agentStart, said(text), agentEnd, opened, closed, unpriced, ready, inSrv,
		chunk(text), chunk(text), thought(text),
		&contracts.ToolCall{CallID: call, Tool: drawTool.Draw(t, "tool"), Args: json.RawMessage(drawArgs.Draw(t, "args"))},
		&contracts.ClientToolRequest{CallID: call, Tool: "look", Args: json.RawMessage(`{}`)},
		&contracts.ToolStart{CallID: call}, &contracts.ToolStart{CallID: call},
		&contracts.ToolOutput{CallID: call, Content: text}, &contracts.ToolOutput{CallID: call, Content: text},
		&contracts.ToolEnd{CallID: call, Success: rapid.Bool().Draw(t, "success"), ErrorCode: drawCode.Draw(t, "code")},
		&contracts.ServerRequest{RequestID: drawAsk.Draw(t, "request"), CallID: call, Tool: "bash", RequestType: rapid.SampledFrom(contracts.RequestTypes()).Draw(t, "kind"), Args: json.RawMessage(`{}`)},
		&contracts.ServerRequestResolved{RequestID: drawAsk.Draw(t, "request"), CallID: call, Resolution: drawVerdict.Draw(t, "verdict"), ResolvedBy: drawBy.Draw(t, "by"), Reason: text},
		&contracts.ErrorEvent{ErrorType: drawError.Draw(t, "error"), Message: text},
		&contracts.Status{Message: text}, &contracts.Compaction{Summary: text},
	}
	return rapid.SampledFrom(events).Draw(t, "event")
}

func drawSnapshot(t *rapid.T, cursor uint64) *contracts.Snapshot {
	snap := &contracts.Snapshot{Cursor: cursor}
	if snap.State.IsResponding = rapid.Bool().Draw(t, "responding"); snap.State.IsResponding {
		snap.State.CurrentResponse = &contracts.CurrentResponse{ResponseID: "resp_5"}
	}
	if rapid.Bool().Draw(t, "pending") {
		snap.State.PendingRequests = []contracts.PendingRequest{{ID: drawAsk.Draw(t, "request"), CallID: drawCall.Draw(t, "call"), Kind: contracts.RequestApproval, Tool: "bash"}}
	}
	return snap
}

// Any native stream makes logs that are valid, and a session that was encoded and
// decoded after each event makes the same.
func TestAnyStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Thinking: rapid.Bool().Draw(t, "thinking"), Vocabulary: rapid.SampledFrom([]Vocabulary{"", VocabularyTurn, VocabularyModelCall}).Draw(t, "vocabulary")}
		whole, cut := newLog(t, o), newLog(t, o)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			step := drawStep(t, whole.cursor+1)
			late := time.Duration(rapid.SampledFrom([]int{0, 1, 200}).Draw(t, "late")) * time.Millisecond
			for _, l := range []*log{whole, cut} {
				l.cursor++
				l.at = l.at.Add(late)
				l.add(step(l))
			}
			options := cut.s.Options
			cut.s = decoded(t, cut.s)
			cut.s.Options = options
		}
		whole.check()
		if !slices.Equal(whole.texts, cut.texts) {
			t.Fatalf("got\n%v\nfrom sessions that were encoded, want\n%v", cut.texts, whole.texts)
		}
		whole.feed(agentEnd).check()
		if id := whole.s.RunID(); id != "" {
			t.Fatalf("got the open run %s at the end", id)
		}
	})
}

// drawStep draws what happens next to a session.
func drawStep(t *rapid.T, cursor uint64) func(l *log) []Draft {
	switch rapid.IntRange(0, 30).Draw(t, "step") {
	case 0:
		snap := drawSnapshot(t, cursor)
		return func(l *log) []Draft { return l.s.Reset(l.at, snap) }
	case 1:
		return func(l *log) []Draft { return l.s.Disconnected(l.at, "torn_write") }
	case 2:
		return func(l *log) []Draft { l.s.Stopping("operator", secret); return nil }
	case 3, 4:
		return func(l *log) []Draft { return l.s.Flush(l.at) }
	}
	ev := drawEvent(t)
	return func(l *log) []Draft { return l.s.Event(l.at, cursor, ev) }
}

func decoded(t *rapid.T, s *Session) *Session {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 100<<10 {
		t.Fatalf("got a state of %d bytes", len(text))
	}
	var again Session
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	return &again
}
