package session_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

func TestListsLoseTheirOldest(t *testing.T) {
	s := session.New()
	for i := range session.MaxTools + 10 {
		id := fmt.Sprint("c", i)
		apply(s, call(id, true), &contracts.ToolStart{CallID: id},
			&contracts.UtilityCommandStarted{CommandID: id}, &contracts.UtilityFileWatchStarted{WatchID: id})
	}
	st := s.Snapshot(0).State
	last := session.MaxTools + 9
	for _, list := range []struct {
		name        string
		length, max int
		first       string
	}{
		{"tracked", len(st.TrackedTools), session.MaxTools, st.TrackedTools[0].CallID},
		{"active", len(st.ActiveTools), session.MaxTools, st.ActiveTools[0].CallID},
		{"approvals", len(st.PendingApprovals), session.MaxPending, st.PendingApprovals[0].CallID},
		{"commands", len(st.ActiveUtilityCommands), session.MaxCommands, st.ActiveUtilityCommands[0].CommandID},
		{"watches", len(st.ActiveFileWatches), session.MaxWatches, st.ActiveFileWatches[0].WatchID},
	} {
		if want := fmt.Sprint("c", last-list.max+1); list.length != list.max || list.first != want {
			t.Errorf("%s: got %d from %s, want %d from %s", list.name, list.length, list.first, list.max, want)
		}
	}
}

func TestConnectionsAreCutButCounted(t *testing.T) {
	many := make([]contracts.ConnectionState, contracts.MaxListed+6)
	for i := range many {
		many[i].ConnectionID = fmt.Sprint(i)
	}
	st := fold(&contracts.ConnectionInfo{Connections: many}).Snapshot(0).State
	if len(st.Connections) != contracts.MaxListed || st.Connections[0].ConnectionID != "0" || st.ConnectionCount != int64(len(many)) {
		t.Errorf("got %d listed of %d, want the first %d of %d", len(st.Connections), st.ConnectionCount, contracts.MaxListed, len(many))
	}
}

func TestTextsKeepTheirEnds(t *testing.T) { // R78
	const piece = "€uro und ein wenig mehr " // 26 bytes: no limit is a multiple of it
	s := fold(call("c", false), &contracts.ToolStart{CallID: "c"}, &contracts.UtilityCommandStarted{CommandID: "k"}, &contracts.ResponseStart{ResponseID: "r"})
	big := strings.Repeat(piece, contracts.MaxTextBytes/len(piece))
	var all strings.Builder
	for range 3 * contracts.MaxStateText / len(big) {
		all.WriteString(big)
		apply(s, &contracts.ToolOutput{CallID: "c", Content: big}, &contracts.UtilityCommandOutput{CommandID: "k", Content: big},
			&contracts.ResponseChunk{ResponseID: "r", Content: big}, &contracts.ResponseChunk{ResponseID: "r", Content: big, IsThinking: true})
	}
	st := s.Snapshot(0).State
	for _, text := range []struct {
		name  string
		got   string
		count func(string) int
		limit int
	}{
		{"characters of tool output", st.ActiveTools[0].Output, utf8.RuneCountInString, contracts.MaxStateOutput},
		{"characters of command output", st.ActiveUtilityCommands[0].Output, utf8.RuneCountInString, contracts.MaxStateOutput},
		{"bytes of response text", st.CurrentResponse.Text, func(s string) int { return len(s) }, contracts.MaxStateText},
		{"bytes of response thinking", st.CurrentResponse.Thinking, func(s string) int { return len(s) }, contracts.MaxStateText},
	} {
		if n := text.count(text.got); n > text.limit || n < text.limit-2 {
			t.Errorf("%s: got %d, want at most %d and no more than two less", text.name, n, text.limit)
		}
		if !utf8.ValidString(text.got) || !strings.HasSuffix(all.String(), text.got) {
			t.Errorf("%s is not the end of what was written", text.name)
		}
	}
}

func TestForeignSnapshotIsCutToBounds(t *testing.T) {
	snap := session.New().Snapshot(3)
	snap.SessionID = "elsewhere"
	snap.LastInit = args(" null ")
	snap.State.PendingUserInputs = []contracts.PendingEntry{{CallID: "u", RequestID: "u"}, {CallID: "u"}}
	snap.State.PendingRequests = []contracts.PendingRequest{{ID: "stray"}}
	snap.State.CurrentResponse = &contracts.CurrentResponse{ResponseID: "r", Text: strings.Repeat("x", contracts.MaxStateText+5), Usage: &contracts.Usage{InputTokens: 3}}
	snap.State.Connections = make([]contracts.ConnectionState, 2*contracts.MaxListed)
	for i := range 2 * session.MaxTools {
		id := fmt.Sprint(i)
		snap.State.ActiveTools = append(snap.State.ActiveTools, contracts.ActiveTool{CallID: id})
		snap.State.TrackedTools = append(snap.State.TrackedTools, contracts.PendingEntry{CallID: id})
		snap.State.PendingApprovals = append(snap.State.PendingApprovals, contracts.PendingEntry{CallID: id})
		snap.State.ActiveUtilityCommands = append(snap.State.ActiveUtilityCommands, contracts.ActiveCommand{CommandID: id})
		snap.State.ActiveFileWatches = append(snap.State.ActiveFileWatches, contracts.ActiveWatch{WatchID: id})
	}
	var s session.State
	s.Restore(snap)
	got := s.Snapshot(4)
	checkBounds(t, got)
	if got.SessionID != "elsewhere" || got.LastInit != nil {
		t.Errorf("got session %q and last init %q, want elsewhere and none", got.SessionID, got.LastInit)
	}
	if in := got.State.PendingUserInputs; len(in) != 1 || in[0].RequestID != "" {
		t.Errorf("user inputs: got %+v, want one without a request id", in)
	}
	if len(got.State.CurrentResponse.Text) != contracts.MaxStateText || got.State.CurrentResponse.Usage.InputTokens != 3 {
		t.Errorf("response: got %d bytes, want %d", len(got.State.CurrentResponse.Text), contracts.MaxStateText)
	}
}

// checkBounds holds for every snapshot a State makes.
func checkBounds(t fataler, snap *contracts.Snapshot) {
	st := &snap.State
	var want []string
	for kind, list := range map[contracts.RequestType][]contracts.PendingEntry{
		contracts.RequestApproval: st.PendingApprovals, contracts.RequestClientTool: st.PendingClientTools,
		contracts.RequestMCPElicitation: st.PendingMCPElicitations, contracts.RequestUserInput: st.PendingUserInputs,
		contracts.RequestToolRetry: st.PendingToolRetries,
	} {
		if list == nil || len(list) > session.MaxPending {
			t.Fatalf("%s: got %d waiting, want a list of at most %d", kind, len(list), session.MaxPending)
		}
		for _, e := range list {
			if e.RequestID == e.CallID && e.RequestID != "" {
				t.Fatalf("%s %s repeats its call id", kind, e.CallID) // R74
			}
		}
	}
	for _, list := range [][]contracts.PendingEntry{
		st.PendingApprovals, st.PendingClientTools, st.PendingMCPElicitations, st.PendingUserInputs, st.PendingToolRetries,
	} {
		for _, e := range list {
			want = append(want, e.ID())
		}
	}
	if len(want) != len(st.PendingRequests) || st.PendingRequests == nil {
		t.Fatalf("pending requests: got %d, want %d", len(st.PendingRequests), len(want))
	}
	for i, p := range st.PendingRequests {
		if p.ID != want[i] { // R73
			t.Fatalf("pending request %d: got %q, want %q", i, p.ID, want[i])
		}
	}
	for _, n := range []struct{ got, max int }{
		{len(st.TrackedTools), session.MaxTools}, {len(st.ActiveTools), session.MaxTools},
		{len(st.ActiveUtilityCommands), session.MaxCommands}, {len(st.ActiveFileWatches), session.MaxWatches},
		{len(st.Connections), contracts.MaxListed},
	} {
		if n.got > n.max {
			t.Fatalf("a list has %d entries, want at most %d", n.got, n.max)
		}
	}
	if st.Connections == nil || st.TrackedTools == nil || st.ActiveTools == nil || st.ActiveUtilityCommands == nil || st.ActiveFileWatches == nil {
		t.Fatalf("a list is nil: %+v", st)
	}
	for _, tool := range st.ActiveTools {
		checkText(t, tool.Output, contracts.MaxStateOutput, utf8.UTFMax*contracts.MaxStateOutput)
	}
	for _, c := range st.ActiveUtilityCommands {
		checkText(t, c.Output, contracts.MaxStateOutput, utf8.UTFMax*contracts.MaxStateOutput)
	}
	if r := st.CurrentResponse; r != nil {
		checkText(t, r.Text, contracts.MaxStateText, contracts.MaxStateText)
		checkText(t, r.Thinking, contracts.MaxStateText, contracts.MaxStateText)
	}
}

func checkText(t fataler, text string, maxChars, maxBytes int) {
	if chars := utf8.RuneCountInString(text); len(text) > maxBytes || chars > maxChars || !utf8.ValidString(text) {
		t.Fatalf("a text has %d characters in %d bytes, valid %t, want at most %d in %d", chars, len(text), utf8.ValidString(text), maxChars, maxBytes)
	}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatalf(string, ...any) }
