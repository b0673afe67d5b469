package session_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

// Drawing messages: ids come from small pools, so that messages meet, and the
// order is arbitrary, so that most make no sense.

var (
	drawCall    = rapid.SampledFrom([]string{"c1", "c2", "c3"})
	drawRequest = rapid.SampledFrom([]string{"c1", "c2", "c3", "apr", "c1:retry:1"})
	drawKind    = rapid.SampledFrom(contracts.RequestTypes())
	drawName    = rapid.SampledFrom([]string{"bash", "ask_user", "mcp_elicitation", ""})
	drawArgs    = rapid.SampledFrom([]string{`{}`, `null`, `{"command":"rm"}`, `[1,"<é>"]`})
	drawText    = rapid.OneOf(
		rapid.StringOf(rapid.SampledFrom([]rune("ab \n\"<é€😀"))),
		rapid.SampledFrom([]string{strings.Repeat("long é€😀 ", 2500), strings.Repeat("x", contracts.MaxTextBytes)}),
	)
	drawOptional = rapid.SampledFrom([]*string{nil, ptr(""), ptr("s")})
	drawNull     = rapid.SampledFrom([]contracts.NullString{{}, contracts.Null(), contracts.String("conn_1")})
	drawRole     = rapid.SampledFrom([]contracts.Role{"", contracts.RoleViewer, contracts.RoleController})
	drawVerdict  = rapid.SampledFrom([]contracts.Verdict{"approved", "denied", "completed", "failed", "answered", "retried", "cancelled"})
	drawOptOuts  = rapid.SliceOfNDistinct(rapid.SampledFrom([]contracts.Notification{"status", "heartbeat", "compaction"}), 0, 3, rapid.ID)
	drawMessage  = rapid.OneOf(rapid.Custom(drawEvent), rapid.Custom(drawEvent), rapid.Custom(drawCommand))
)

func drawClient(t *rapid.T) (*contracts.ClientInfo, *contracts.Capabilities) {
	info := rapid.SampledFrom([]*contracts.ClientInfo{nil, {Name: "acme", Version: "3"}}).Draw(t, "info")
	caps := rapid.SampledFrom([]*contracts.Capabilities{nil, {}, {RawAgentEvents: true, ServerRequests: contracts.RequestTypes()}}).Draw(t, "capabilities")
	return info, caps
}

// one draws a number below n, each as often as the others: rapid draws integers
// of a range that are small more often.
func one(t *rapid.T, n int, label string) int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return rapid.SampledFrom(numbers).Draw(t, label)
}

func drawEvent(t *rapid.T) any {
	switch one(t, 28, "event") {
	case 0:
		return &contracts.Ready{ProtocolVersion: "2026-04-02", Model: drawName.Draw(t, "model"), Provider: "p", SessionID: drawOptional.Draw(t, "session")}
	case 1:
		return &contracts.SessionInfo{SessionID: drawOptional.Draw(t, "session"), Cwd: "/srv", GitBranch: drawOptional.Draw(t, "branch")}
	case 2:
		info, caps := drawClient(t)
		return &contracts.HelloOK{
			ProtocolVersion: "2026-04-02", ClientInfo: info, Capabilities: caps, Role: drawRole.Draw(t, "role"),
			OptOutNotifications: drawOptOuts.Draw(t, "opt-outs"), ControllerConnectionID: drawNull.Draw(t, "controller"),
		}
	case 3:
		return drawConnectionInfo(t)
	case 4:
		return &contracts.ResponseStart{ResponseID: drawCall.Draw(t, "response")}
	case 5, 6, 7:
		return &contracts.ResponseChunk{ResponseID: drawCall.Draw(t, "response"), Content: drawText.Draw(t, "content"), IsThinking: rapid.Bool().Draw(t, "thinking")}
	case 8:
		return &contracts.ResponseEnd{
			ResponseID: drawCall.Draw(t, "response"), DurationMS: rapid.Int64Range(0, 9).Draw(t, "duration"),
			ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}}, TTFTMS: rapid.SampledFrom([]*int64{nil, ptr[int64](0), ptr[int64](4)}).Draw(t, "ttft"),
		}
	case 9:
		return &contracts.ToolCall{CallID: drawCall.Draw(t, "call"), Tool: drawName.Draw(t, "tool"), Args: args(drawArgs.Draw(t, "args")), RequiresApproval: rapid.Bool().Draw(t, "gated")}
	case 10:
		return &contracts.ToolStart{CallID: drawCall.Draw(t, "call")}
	case 11, 12:
		return &contracts.ToolOutput{CallID: drawCall.Draw(t, "call"), Content: drawText.Draw(t, "content")}
	case 13:
		return &contracts.ToolEnd{CallID: drawCall.Draw(t, "call"), Success: true}
	case 14:
		return &contracts.ClientToolRequest{CallID: drawCall.Draw(t, "call"), Tool: drawName.Draw(t, "tool"), Args: args(drawArgs.Draw(t, "args"))}
	case 15, 16:
		return &contracts.ServerRequest{
			RequestID: drawRequest.Draw(t, "request"), RequestType: drawKind.Draw(t, "kind"), CallID: drawCall.Draw(t, "call"),
			Tool: drawName.Draw(t, "tool"), DisplayName: drawName.Draw(t, "display name"), Args: args(drawArgs.Draw(t, "args")),
		}
	case 17, 18:
		return &contracts.ServerRequestResolved{
			RequestID: drawRequest.Draw(t, "request"), RequestType: drawKind.Draw(t, "kind"), CallID: drawCall.Draw(t, "call"),
			Resolution: drawVerdict.Draw(t, "verdict"), ResolvedBy: contracts.ResolvedByUser,
			Author: rapid.SampledFrom([]*contracts.Author{nil, &bob}).Draw(t, "author"),
		}
	case 19:
		return &contracts.PromptAccepted{PromptID: drawCall.Draw(t, "prompt"), Content: drawText.Draw(t, "content"), Author: ann}
	case 20:
		if rapid.Bool().Draw(t, "queue") {
			return &contracts.QueueChanged{
				Prompts: []contracts.QueuedPrompt{{PromptID: drawCall.Draw(t, "prompt"), Author: bob, When: contracts.PromptNext}},
				Held:    rapid.Bool().Draw(t, "held"),
			}
		}
		return &contracts.ControlChanged{From: &ann, To: rapid.SampledFrom([]*contracts.Author{nil, &bob}).Draw(t, "to"), Reason: contracts.LeaseExpired}
	}
	return drawUtilityEvent(t)
}

func drawConnectionInfo(t *rapid.T) any {
	info, caps := drawClient(t)
	e := &contracts.ConnectionInfo{
		ClientInfo: info, Capabilities: caps, Role: drawRole.Draw(t, "role"), OptOutNotifications: drawOptOuts.Draw(t, "opt-outs"),
		ControllerConnectionID: drawNull.Draw(t, "controller"),
		ConnectionCount:        rapid.SampledFrom([]*int64{nil, ptr[int64](0), ptr[int64](9)}).Draw(t, "count"),
	}
	if rapid.Bool().Draw(t, "change") {
		e.ConnectionID = fmt.Sprint("conn_", rapid.IntRange(0, 70).Draw(t, "about"))
	}
	if n := rapid.IntRange(-1, 80).Draw(t, "connections"); n >= 0 {
		e.Connections = make([]contracts.ConnectionState, n)
		for i := range e.Connections {
			e.Connections[i] = contracts.ConnectionState{ConnectionID: fmt.Sprint("conn_", i), Role: contracts.RoleViewer, LeaseExpiresAt: drawNull.Draw(t, "lease")}
		}
	}
	return e
}

func drawUtilityEvent(t *rapid.T) any {
	id := drawCall.Draw(t, "id")
	switch one(t, 9, "utility event") {
	case 0:
		return &contracts.UtilityCommandStarted{CommandID: id, Command: "make", ShellMode: "shell", TerminalMode: "pty", PID: rapid.Int64Range(0, 3).Draw(t, "pid")}
	case 1, 2:
		return &contracts.UtilityCommandOutput{CommandID: id, Stream: "stderr", Content: drawText.Draw(t, "content")}
	case 3:
		return &contracts.UtilityCommandResized{CommandID: id, Columns: 80, Rows: 24}
	case 4:
		return &contracts.UtilityCommandExited{CommandID: id}
	case 5:
		return &contracts.UtilityFileWatchStarted{WatchID: id, RootDir: "/srv", IncludePatterns: []string{"*.go"}}
	case 6:
		return &contracts.UtilityFileWatchStopped{WatchID: id}
	case 7:
		return &contracts.ErrorEvent{Message: drawName.Draw(t, "message"), ErrorType: contracts.ErrorTool}
	}
	return &contracts.Status{Message: drawName.Draw(t, "message")}
}

func drawCommand(t *rapid.T) any {
	switch one(t, 10, "command") {
	case 0:
		info, caps := drawClient(t)
		return &contracts.Hello{Role: drawRole.Draw(t, "role"), ClientInfo: info, Capabilities: caps, OptOutNotifications: drawOptOuts.Draw(t, "opt-outs")}
	case 1:
		return &contracts.Init{SystemPrompt: drawOptional.Draw(t, "prompt"), ApprovalMode: contracts.ApprovalAuto}
	case 2:
		return &contracts.Prompt{}
	case 3:
		return &contracts.Interrupt{}
	case 4:
		return &contracts.Cancel{}
	case 5:
		return &contracts.Shutdown{}
	case 6:
		return &contracts.ToolResponse{CallID: drawRequest.Draw(t, "call"), Approved: rapid.Bool().Draw(t, "approved")}
	case 7:
		return &contracts.ClientToolResult{CallID: drawRequest.Draw(t, "call"), Content: []contracts.ContentBlock{}}
	}
	return &contracts.ServerRequestResponse{
		RequestID: drawRequest.Draw(t, "request"), RequestType: drawKind.Draw(t, "kind"),
		Approved: rapid.SampledFrom([]*bool{nil, ptr(true), ptr(false)}).Draw(t, "approved"),
	}
}

// overTheWire returns a message as the other side decodes it.
func overTheWire(t *rapid.T, m any) any {
	var decoder contracts.Decoder
	switch m := m.(type) {
	case contracts.Event:
		enc, err := contracts.EncodeEvent(m)
		if err != nil {
			t.Fatalf("encode %s: %v", m.EventType(), err)
		}
		ev, err := decoder.Event(enc.Body)
		if err != nil {
			t.Fatalf("decode %s: %v", m.EventType(), err)
		}
		return ev
	case contracts.Command:
		body, err := contracts.EncodeCommand(m)
		if err != nil {
			t.Fatalf("encode %s: %v", m.CommandType(), err)
		}
		cmd, err := decoder.Command(body)
		if err != nil {
			t.Fatalf("decode %s: %v", m.CommandType(), err)
		}
		return cmd
	}
	t.Fatalf("%T is no message", m)
	return nil
}

func encoded(t *rapid.T, snap *contracts.Snapshot) string {
	body, err := contracts.EncodeSnapshot(snap, 0)
	if err != nil {
		t.Fatalf("encode snapshot: %v", err)
	}
	return string(body)
}

// TestSnapshotAndTheRestGiveTheLiveState is the product's central promise
// (R79): whoever starts from any snapshot, read off the wire, and follows what
// comes after it, has the state of whoever followed from the beginning. A
// snapshot once taken does not change, and bounds hold throughout.
func TestSnapshotAndTheRestGiveTheLiveState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(drawMessage, 0, 60).Draw(t, "messages")
		k := rapid.IntRange(0, len(messages)).Draw(t, "k")

		live := session.New()
		apply(live, messages[:k]...)
		snap := live.Snapshot(uint64(k))
		taken := encoded(t, snap)
		decoded, err := new(contracts.Decoder).Snapshot([]byte(taken))
		if err != nil {
			t.Fatalf("decode snapshot: %v", err)
		}
		var late session.State
		late.Restore(decoded)
		if got := encoded(t, late.Snapshot(uint64(k))); got != taken {
			t.Fatalf("restored at %d:\ngot  %s\nwant %s", k, got, taken)
		}
		for _, m := range messages[k:] {
			apply(live, m)
			apply(&late, overTheWire(t, m))
		}
		end := uint64(len(messages))
		if got, want := encoded(t, late.Snapshot(end)), encoded(t, live.Snapshot(end)); got != want {
			t.Fatalf("after %d messages from %d:\ngot  %s\nwant %s", end, k, got, want)
		}
		if again := encoded(t, snap); again != taken {
			t.Fatalf("the snapshot at %d changed:\ngot  %s\nwant %s", k, again, taken)
		}
		if again := encoded(t, decoded); again != taken {
			t.Fatalf("the snapshot restored from changed:\ngot  %s\nwant %s", again, taken)
		}
		checkBounds(t, live.Snapshot(end))
	})
}

// TestReadsAgreeWithTheSnapshot: the cheap read says what a snapshot says.
func TestReadsAgreeWithTheSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := session.New()
		apply(s, rapid.SliceOfN(drawMessage, 0, 40).Draw(t, "messages")...)
		st := s.Snapshot(0).State
		for _, e := range st.TrackedTools {
			if got, ok := s.TrackedTool(e.CallID); !ok || got.Tool != e.Tool {
				t.Fatalf("tracked %s: got %+v, %t, want %+v", e.CallID, got, ok, e)
			}
		}
	})
}
