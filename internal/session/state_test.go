package session_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

// fold applies events and commands to a fresh state.
func fold(messages ...any) *session.State {
	s := session.New()
	apply(s, messages...)
	return s
}

func apply(s *session.State, messages ...any) {
	for _, m := range messages {
		switch m := m.(type) {
		case contracts.Event:
			s.Apply(m)
		case contracts.Command:
			s.ApplyCommand(m)
		default:
			panic(fmt.Sprintf("%T is no message", m))
		}
	}
}

func wire(t testing.TB, snap *contracts.Snapshot) string {
	t.Helper()
	body, err := contracts.EncodeSnapshot(snap, 0)
	if err != nil {
		t.Fatalf("encode snapshot: %v", err)
	}
	return string(body)
}

// ids lists what waits, runs and is announced: "kind:id" in wire order.
func ids(s *session.State) string {
	state := s.Snapshot(0).State
	var list []string
	for _, p := range state.PendingRequests {
		list = append(list, string(p.Kind)+":"+p.ID)
	}
	for _, tool := range state.ActiveTools {
		list = append(list, "active:"+tool.CallID)
	}
	for _, e := range state.TrackedTools {
		list = append(list, "tracked:"+e.CallID)
	}
	return strings.Join(list, " ")
}

func wantIDs(t *testing.T, s *session.State, want string) {
	t.Helper()
	if got := ids(s); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func args(text string) json.RawMessage { return json.RawMessage(text) }

func call(id string, gated bool) *contracts.ToolCall {
	return &contracts.ToolCall{CallID: id, Tool: "bash", Args: args(`{"command":"ls"}`), RequiresApproval: gated}
}

func request(kind contracts.RequestType, requestID, callID string) *contracts.ServerRequest {
	return &contracts.ServerRequest{
		RequestID: requestID, RequestType: kind, CallID: callID, Tool: "tool", Args: args(`{}`),
		DisplayName: "Tool", SummaryLabel: "Ran tool", ActionDescription: "Running tool", Reason: "why",
	}
}

func resolved(kind contracts.RequestType, requestID, callID string, verdict contracts.Verdict) *contracts.ServerRequestResolved {
	return &contracts.ServerRequestResolved{
		RequestID: requestID, RequestType: kind, CallID: callID, Resolution: verdict, ResolvedBy: contracts.ResolvedByRuntime,
	}
}

func TestFreshStateHasNothingNull(t *testing.T) { // R72
	const want = `{"protocolVersion":"2026-04-02","session_id":"","cursor":0,"last_init":null,"state":{` +
		`"connection_count":0,"subscriber_count":0,"connections":[],"pending_requests":[],"pending_approvals":[],` +
		`"pending_client_tools":[],"pending_mcp_elicitations":[],"pending_user_inputs":[],"pending_tool_retries":[],` +
		`"active_tools":[],"active_utility_commands":[],"active_file_watches":[],"tracked_tools":[],"is_ready":false,"is_responding":false}}`
	if got := wire(t, session.New().Snapshot(0)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var restored session.State
	restored.Restore(session.New().Snapshot(0))
	if got := wire(t, restored.Snapshot(0)); got != want {
		t.Errorf("restored: got  %s\nwant %s", got, want)
	}
}

func TestAbsentIsNotNull(t *testing.T) { // section 4.1
	id := "sess_1"
	for _, tt := range []struct {
		name     string
		messages []any
		has, not string
	}{
		{"session unknown", []any{&contracts.Ready{}}, `"session_id":null`, ``},
		{"session known", []any{&contracts.Ready{SessionID: &id}}, `"session_id":"sess_1"`, `null,"is_ready"`},
		{"no branch", []any{&contracts.SessionInfo{Cwd: "/srv"}}, `"git_branch":null`, ``},
		{"nobody in control", []any{&contracts.HelloOK{ControllerConnectionID: contracts.Null()}}, `"controller_connection_id":null`, ``},
		{"control not said", []any{&contracts.HelloOK{ControllerConnectionID: contracts.String("a")}, &contracts.HelloOK{}}, ``, `controller_connection_id`},
		{"no time to first token", []any{&contracts.ResponseEnd{TTFTMS: ptr[int64](3)}, &contracts.ResponseEnd{}}, `"last_response_duration_ms":0`, `last_ttft_ms`},
		{"blank status", []any{&contracts.Status{}}, `"last_status":""`, ``},
		{"prompt after an error", []any{&contracts.ErrorEvent{Message: "m", ErrorType: "tool"}, &contracts.Status{Message: "s"}, &contracts.Prompt{}}, `"is_responding":true`, `last_`},
		{"no opt-outs", []any{&contracts.HelloOK{OptOutNotifications: []contracts.Notification{}}}, ``, `opt_out`},
		{"empty capabilities", []any{&contracts.HelloOK{Capabilities: &contracts.Capabilities{}}}, `"capabilities":{}`, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := wire(t, fold(tt.messages...).Snapshot(1))
			state := strings.Replace(body[strings.Index(body, `"state":`):], `"last_init":null`, "", 1)
			if !strings.Contains(state, tt.has) || tt.not != "" && strings.Contains(state, tt.not) {
				t.Errorf("got %s, want %s and not %s", state, tt.has, tt.not)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestSnapshotSaysWhereTheSessionStands(t *testing.T) {
	id, branch := "sess_20f", "main"
	s := fold(
		&contracts.Ready{ProtocolVersion: "2026-04-02", Model: "atlas-large", Provider: "example"},
		&contracts.SessionInfo{SessionID: &id, Cwd: "/srv/project", GitBranch: &branch},
	)
	snap := s.Snapshot(7)
	if snap.ProtocolVersion != contracts.ProtocolVersion || snap.Cursor != 7 || snap.SessionID != id {
		t.Errorf("got version %q, cursor %d, session %q", snap.ProtocolVersion, snap.Cursor, snap.SessionID)
	}
	st := snap.State
	if st.Model != "atlas-large" || st.Provider != "example" || !st.IsReady || st.Cwd != "/srv/project" ||
		st.GitBranch.Get() != "main" || st.SessionID.Get() != id || st.ProtocolVersion != "2026-04-02" {
		t.Errorf("got %+v", st)
	}
}

func TestConnectionInfoReplacesWhatItGives(t *testing.T) { // section 4.2
	two := []contracts.ConnectionState{{ConnectionID: "a"}, {ConnectionID: "b"}}
	s := fold(&contracts.ConnectionInfo{
		ClientProtocolVersion: "v", ClientInfo: &contracts.ClientInfo{Name: "n"}, Capabilities: &contracts.Capabilities{},
		OptOutNotifications: []contracts.Notification{"status"}, Role: "viewer", Connections: two,
		ControllerConnectionID: contracts.String("a"),
	})
	if st := s.Snapshot(0).State; st.ConnectionCount != 2 || len(st.Connections) != 2 || st.ConnectionRole != "viewer" || st.ControllerConnectionID.Get() != "a" {
		t.Errorf("first: got %+v", st)
	}
	s.Apply(&contracts.ConnectionInfo{ConnectionCount: ptr[int64](5)})
	st := s.Snapshot(0).State
	if st.ConnectionCount != 5 || len(st.Connections) != 2 {
		t.Errorf("count without list: got %d and %d listed, want 5 and 2", st.ConnectionCount, len(st.Connections))
	}
	if st.ClientProtocolVersion != "" || st.ClientInfo != nil || st.Capabilities != nil || st.OptOutNotifications != nil || st.ConnectionRole != "" || st.ControllerConnectionID.Present {
		t.Errorf("absent fields were kept: %+v", st)
	}
	s.Apply(&contracts.ConnectionInfo{})
	if st := s.Snapshot(0).State; st.ConnectionCount != 0 || len(st.Connections) != 2 {
		t.Errorf("neither count nor list: got %d and %d listed, want 0 and 2", st.ConnectionCount, len(st.Connections))
	}
	s.Apply(&contracts.ConnectionInfo{Connections: []contracts.ConnectionState{}})
	if st := s.Snapshot(0).State; len(st.Connections) != 0 {
		t.Errorf("empty list: got %d listed, want 0", len(st.Connections))
	}
}

func TestConnectionInfoWithoutAListIsOneChange(t *testing.T) {
	const viewer, controller = contracts.RoleViewer, contracts.RoleController
	s := fold(&contracts.ConnectionInfo{ConnectionID: "b", Connections: []contracts.ConnectionState{
		{ConnectionID: "b", Role: viewer, SubscriptionCount: 2}, {ConnectionID: "c", Role: viewer},
	}})
	for _, step := range []struct {
		change contracts.ConnectionInfo
		want   string
	}{
		{contracts.ConnectionInfo{ConnectionID: "d", Role: controller, ControllerConnectionID: contracts.String("d")}, "d controller 1 true, b viewer 2 false, c viewer 0 false"},
		{contracts.ConnectionInfo{ConnectionID: "a", Role: viewer, ControllerConnectionID: contracts.Null()}, "d controller 1 false, a viewer 1 false, b viewer 2 false, c viewer 0 false"},
		{contracts.ConnectionInfo{ConnectionID: "b", ControllerConnectionID: contracts.String("d")}, "d controller 1 true, a viewer 1 false, c viewer 0 false"},
		{contracts.ConnectionInfo{ConnectionID: "nobody", ControllerConnectionID: contracts.String("d")}, "d controller 1 true, a viewer 1 false, c viewer 0 false"},
	} {
		s.Apply(&step.change)
		var got []string
		for _, c := range s.Snapshot(0).State.Connections {
			got = append(got, fmt.Sprint(c.ConnectionID, " ", c.Role, " ", c.SubscriptionCount, " ", c.ControllerLeaseGranted))
		}
		if strings.Join(got, ", ") != step.want {
			t.Errorf("after %+v:\n got %s\nwant %s", step.change, strings.Join(got, ", "), step.want)
		}
	}
}

func TestHelloRecordsTheClient(t *testing.T) { // section 4.3
	s := fold(&contracts.Hello{ProtocolVersion: "v1", ClientInfo: &contracts.ClientInfo{Name: "n"}, OptOutNotifications: []contracts.Notification{"status", "compaction", "status"}})
	st := s.Snapshot(0).State
	if st.ConnectionRole != contracts.RoleController || st.ClientProtocolVersion != "v1" || st.ClientInfo.Name != "n" {
		t.Errorf("first hello: got %+v", st)
	}
	if want := []contracts.Notification{"status", "compaction"}; !reflect.DeepEqual(st.OptOutNotifications, want) {
		t.Errorf("opt-outs: got %v, want %v", st.OptOutNotifications, want)
	}
	apply(s, &contracts.Hello{Role: contracts.RoleViewer}, &contracts.Hello{})
	st = s.Snapshot(0).State
	if st.ConnectionRole != contracts.RoleViewer || st.ClientProtocolVersion != "" || st.ClientInfo != nil || st.OptOutNotifications != nil {
		t.Errorf("later hello: got %+v, want the role kept and the rest cleared", st)
	}
}

func TestLastInitIsKeptWhole(t *testing.T) { // R35
	s := fold(&contracts.Init{SystemPrompt: ptr("be <brief>"), ApprovalMode: contracts.ApprovalPrompt}, &contracts.Init{AppendSystemPrompt: ptr("")})
	if got, want := string(s.Snapshot(0).LastInit), `{"type":"init","append_system_prompt":""}`; got != want {
		t.Errorf("last init: got %s, want %s", got, want)
	}
	s.ApplyCommand(&contracts.Prompt{})
	if s.Snapshot(0).LastInit == nil {
		t.Error("a prompt cleared the last init")
	}
}

func TestResponseGrowsWhileItIsOpen(t *testing.T) { // section 4.2
	chunk := func(id, content string, thinking bool) contracts.Event {
		return &contracts.ResponseChunk{ResponseID: id, Content: content, IsThinking: thinking}
	}
	s := fold(
		chunk("r1", "early", false),
		&contracts.ResponseStart{ResponseID: "r1"},
		chunk("r1", "why ", true), chunk("r1", "be", false), chunk("r0", "stale", false), // R70
		chunk("r1", "not", true), chunk("r1", "cause", false),
	)
	want := &contracts.CurrentResponse{ResponseID: "r1", Text: "because", Thinking: "why not"}
	if st := s.Snapshot(0).State; !reflect.DeepEqual(st.CurrentResponse, want) || !st.IsResponding {
		t.Errorf("got %+v, responding %t, want %+v", st.CurrentResponse, st.IsResponding, want)
	}
	s.Apply(&contracts.ErrorEvent{Message: "m"}) // R49
	if !s.Snapshot(0).State.IsResponding {
		t.Error("an error ended the response")
	}
	s.Apply(&contracts.ResponseEnd{ResponseID: "other", DurationMS: 5})
	st := s.Snapshot(0).State
	if st.CurrentResponse != nil || st.IsResponding || *st.LastResponseDurationMS != 5 {
		t.Errorf("after the end: got %+v", st)
	}
	s.Apply(chunk("r1", "late", false))
	if s.Snapshot(0).State.CurrentResponse != nil {
		t.Error("a late chunk opened a response") // R70
	}
}

func TestToolRunsFromCallToEnd(t *testing.T) { // section 4.2
	s := fold(call("c1", false))
	wantIDs(t, s, "tracked:c1")
	apply(s, &contracts.ToolStart{CallID: "c1"}, &contracts.ToolStart{CallID: "c9"},
		&contracts.ToolOutput{CallID: "c1", Content: "a"}, &contracts.ToolOutput{CallID: "nobody", Content: "x"}, &contracts.ToolOutput{CallID: "c1", Content: "b"})
	got := s.Snapshot(0).State.ActiveTools
	want := []contracts.ActiveTool{{CallID: "c1", Tool: "bash", Output: "ab"}, {CallID: "c9", Tool: "unknown"}} // R77
	if !reflect.DeepEqual(got, want) {
		t.Errorf("active tools: got %+v, want %+v", got, want)
	}
	if e, ok := s.TrackedTool("c1"); !ok || e.Tool != "bash" {
		t.Errorf("TrackedTool: got %+v, %t", e, ok)
	}
	if _, ok := s.TrackedTool("c9"); ok {
		t.Error("a tool that was never announced is tracked")
	}
	apply(s, &contracts.ToolEnd{CallID: "c1"}, &contracts.ToolEnd{CallID: "c9"})
	wantIDs(t, s, "")
}

func TestToolEndDropsTheCallEverywhere(t *testing.T) {
	s := session.New()
	for _, kind := range contracts.RequestTypes() {
		s.Apply(request(kind, "req_"+string(kind), "c1"))
	}
	apply(s, &contracts.ToolStart{CallID: "c1"}, &contracts.ToolEnd{CallID: "c1"})
	wantIDs(t, s, "")
}

func TestToolTakesItsNameFromWhatAnnouncedIt(t *testing.T) {
	s := fold(request(contracts.RequestToolRetry, "c1:retry:1", "c1"), resolved(contracts.RequestApproval, "x", "c1", "denied"))
	wantIDs(t, s, "tool_retry:c1:retry:1") // no longer tracked, still waiting
	s.Apply(&contracts.ToolStart{CallID: "c1"})
	if got := s.Snapshot(0).State.ActiveTools[0].Tool; got != "tool" {
		t.Errorf("tool name: got %q, want %q", got, "tool")
	}
}

func TestPuttingAgainMovesToTheEnd(t *testing.T) { // section 4.1, array discipline
	s := fold(call("c1", true), call("c2", true), call("c1", true))
	wantIDs(t, s, "approval:c2 approval:c1 tracked:c2 tracked:c1")
}

func TestPendingRequestsAreTheFiveListsInOrder(t *testing.T) { // R73, R74
	id := "sess"
	s := fold(&contracts.Ready{SessionID: &id},
		request(contracts.RequestToolRetry, "c1:retry:1", "c1"), request(contracts.RequestUserInput, "u", "u"),
		request(contracts.RequestMCPElicitation, "m", "m"), request(contracts.RequestClientTool, "t", "t"),
		request(contracts.RequestApproval, "apr", "c2"),
	)
	wantIDs(t, s, "approval:apr client_tool:t mcp_elicitation:m user_input:u tool_retry:c1:retry:1 tracked:c1 tracked:u tracked:m tracked:t tracked:c2")
	st := s.Snapshot(0).State
	first := contracts.PendingRequest{
		ID: "apr", Kind: "approval", Status: "pending", Visibility: "user", SessionID: contracts.String("sess"),
		ToolCallID: "c2", CallID: "c2", RequestID: "apr", ToolName: "tool", Tool: "tool",
		DisplayName: "Tool", SummaryLabel: "Ran tool", ActionDescription: "Running tool", Args: args(`{}`), Source: "local",
	}
	if got := st.PendingRequests[0]; !reflect.DeepEqual(got, first) {
		t.Errorf("first: got %+v, want %+v", got, first)
	}
	if e := st.PendingUserInputs[0]; e.RequestID != "" || e.DisplayName != "" {
		t.Errorf("user input: got %+v, want no request id and no labels", e)
	}
	if e := st.PendingToolRetries[0]; e.RequestID != "c1:retry:1" {
		t.Errorf("retry: got %+v, want its request id", e)
	}
}

func TestRetryKeepsTheTrackedArguments(t *testing.T) { // R75
	s := fold(call("c1", false), request(contracts.RequestToolRetry, "c1:retry:1", "c1"), request(contracts.RequestToolRetry, "c2:retry:1", "c2"))
	if e, _ := s.TrackedTool("c1"); string(e.Args) != `{"command":"ls"}` {
		t.Errorf("tracked args: got %s", e.Args)
	}
	if _, ok := s.TrackedTool("c2"); !ok {
		t.Error("a retry of an unknown call is not tracked")
	}
}

func TestLegacyRequestsWait(t *testing.T) { // section 4.2
	s := fold(call("a", true), call("b", false),
		&contracts.ClientToolRequest{CallID: "t", Tool: "open_editor", Args: args(`{}`)},
		&contracts.ClientToolRequest{CallID: "u", Tool: "ask_user", Args: args(`{}`)},
		request(contracts.RequestApproval, "a", "a"), request(contracts.RequestUserInput, "u", "u")) // the pair is one
	wantIDs(t, s, "approval:a client_tool:t user_input:u tracked:b tracked:t tracked:a tracked:u")
}

func TestResolutionDecidesWhatStaysTracked(t *testing.T) { // section 4.2, R76, defect (e)
	keeps := map[contracts.RequestType][]contracts.Verdict{
		contracts.RequestApproval:       {"approved"},
		contracts.RequestClientTool:     {"completed", "failed"},
		contracts.RequestMCPElicitation: {"answered"},
		contracts.RequestUserInput:      {"answered"},
		contracts.RequestToolRetry:      {"retried", "skipped", "aborted", "cancelled"},
	}
	drops := map[contracts.RequestType][]contracts.Verdict{
		contracts.RequestApproval:       {"denied", "cancelled"},
		contracts.RequestClientTool:     {"cancelled"},
		contracts.RequestMCPElicitation: {"failed", "cancelled"},
		contracts.RequestUserInput:      {"failed", "cancelled"},
	}
	for want, table := range map[string]map[contracts.RequestType][]contracts.Verdict{"tracked:c": keeps, "": drops} {
		for kind, verdicts := range table {
			for _, verdict := range verdicts {
				t.Run(string(kind)+" "+string(verdict), func(t *testing.T) {
					wantIDs(t, fold(request(kind, "r", "c"), resolved(kind, "r", "c", verdict)), want)
				})
			}
		}
	}
}

func TestResolutionDropsByRequestAndType(t *testing.T) {
	s := fold(request(contracts.RequestApproval, "r", "c"), request(contracts.RequestToolRetry, "c:retry:1", "c"))
	apply(s, resolved(contracts.RequestApproval, "c", "x", "approved"), resolved(contracts.RequestToolRetry, "r", "x", "skipped"))
	wantIDs(t, s, "approval:r tool_retry:c:retry:1 tracked:c")
	apply(s, resolved(contracts.RequestApproval, "r", "c", "approved"))
	wantIDs(t, s, "tool_retry:c:retry:1 tracked:c")
}

func TestAnswersDropWhatTheyAnswer(t *testing.T) { // section 4.3
	type response = contracts.ServerRequestResponse
	one := func(kind contracts.RequestType) []any {
		return []any{request(kind, "r", "c"), request(contracts.RequestApproval, "other", "o")}
	}
	tests := []struct {
		name   string
		before []any
		cmd    contracts.Command
		want   string
	}{
		{"legacy approval", []any{call("c", true)}, &contracts.ToolResponse{CallID: "c", Approved: true}, "tracked:c"},
		{"legacy denial", []any{call("c", true)}, &contracts.ToolResponse{CallID: "c"}, ""},
		{"legacy denial by request", one("approval"), &contracts.ToolResponse{CallID: "r"}, "approval:other tracked:o"},
		{"legacy denial by call", one("approval"), &contracts.ToolResponse{CallID: "c"}, "approval:other tracked:o"},
		{"legacy denial of nothing", []any{call("c", false)}, &contracts.ToolResponse{CallID: "c"}, "tracked:c"}, // (d)
		{"approved", one("approval"), &response{RequestID: "r", RequestType: "approval", Approved: ptr(true)}, "approval:other tracked:c tracked:o"},
		{"denied", one("approval"), &response{RequestID: "r", RequestType: "approval", Approved: ptr(false)}, "approval:other tracked:o"}, // (c)
		{"not decided", one("approval"), &response{RequestID: "r", RequestType: "approval"}, "approval:other tracked:o"},
		{"elicitation", one("mcp_elicitation"), &response{RequestID: "r", RequestType: "mcp_elicitation"}, "approval:other tracked:c tracked:o"}, // (a), R80
		{"retry", one("tool_retry"), &response{RequestID: "r", RequestType: "tool_retry"}, "approval:other tracked:c tracked:o"},
		{"another type", one("user_input"), &response{RequestID: "r", RequestType: "client_tool"}, "approval:other user_input:r tracked:c tracked:o"},
		{"unknown type", one("user_input"), &response{RequestID: "r", RequestType: "poll"}, "approval:other user_input:r tracked:c tracked:o"},
		{"legacy tool", one("client_tool"), &contracts.ClientToolResult{CallID: "c"}, "approval:other tracked:c tracked:o"},
		{"legacy user input", one("user_input"), &contracts.ClientToolResult{CallID: "r"}, "approval:other tracked:c tracked:o"},
		{"legacy elicitation", one("mcp_elicitation"), &contracts.ClientToolResult{CallID: "r"}, "approval:other tracked:c tracked:o"}, // (b), R80
		{"legacy tool that asks the user", []any{request("client_tool", "c", "c"), request("user_input", "c", "c")}, &contracts.ClientToolResult{CallID: "c"}, "tracked:c"},
		{"legacy content for a retry", one("tool_retry"), &contracts.ClientToolResult{CallID: "r"}, "approval:other tool_retry:r tracked:c tracked:o"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fold(tt.before...)
			s.ApplyCommand(tt.cmd)
			wantIDs(t, s, tt.want)
		})
	}
}

func TestInterruptAndShutdownClearWhatRuns(t *testing.T) { // R69, R71
	for _, cmd := range []contracts.Command{&contracts.Interrupt{}, &contracts.Cancel{}, &contracts.Shutdown{}} {
		t.Run(cmd.CommandType(), func(t *testing.T) {
			s := fold(&contracts.Ready{Model: "m"}, &contracts.Prompt{}, &contracts.ResponseStart{ResponseID: "r"}, call("c", true),
				&contracts.ToolStart{CallID: "c"}, &contracts.UtilityCommandStarted{CommandID: "k"}, &contracts.UtilityFileWatchStarted{WatchID: "w"},
				&contracts.Status{Message: "busy"})
			for _, kind := range contracts.RequestTypes() {
				s.Apply(request(kind, string(kind), string(kind)))
			}
			s.ApplyCommand(cmd)
			wantIDs(t, s, "")
			st := s.Snapshot(0).State
			if st.CurrentResponse != nil || st.IsResponding || len(st.ActiveUtilityCommands)+len(st.ActiveFileWatches) != 0 {
				t.Errorf("something still runs: %+v", st)
			}
			if want := cmd.CommandType() != "shutdown"; st.IsReady != want || st.Model != "m" || *st.LastStatus != "busy" {
				t.Errorf("got ready %t, model %q, want ready %t and the rest kept", st.IsReady, st.Model, want)
			}
		})
	}
}

func TestUtilitiesAreListedWhileTheyRun(t *testing.T) { // section 4.2
	out := func(stream contracts.Stream, text string) contracts.Event {
		return &contracts.UtilityCommandOutput{CommandID: "k", Stream: stream, Content: text}
	}
	s := fold(
		&contracts.UtilityCommandStarted{CommandID: "k", Command: "make", Cwd: "/srv", ShellMode: "shell", TerminalMode: "pty", PID: 7, Columns: 80, Rows: 24, OwnerConnectionID: "a"},
		out("stdout", "one "), out("stderr", "two"), &contracts.UtilityCommandResized{CommandID: "k", Columns: 100, Rows: 30},
		&contracts.UtilityCommandOutput{CommandID: "gone", Content: "x"}, &contracts.UtilityCommandResized{CommandID: "gone", Columns: 1},
		&contracts.UtilityFileWatchStarted{WatchID: "w", RootDir: "/srv", IncludePatterns: []string{"*.go"}, DebounceMS: 50},
	)
	st := s.Snapshot(0).State
	wantCommand := contracts.ActiveCommand{CommandID: "k", Command: "make", Cwd: "/srv", ShellMode: "shell", TerminalMode: "pty", PID: 7, Columns: 100, Rows: 30, OwnerConnectionID: "a", Output: "one two"}
	if len(st.ActiveUtilityCommands) != 1 || st.ActiveUtilityCommands[0] != wantCommand {
		t.Errorf("commands: got %+v, want %+v", st.ActiveUtilityCommands, wantCommand)
	}
	wantWatch := contracts.ActiveWatch{WatchID: "w", RootDir: "/srv", IncludePatterns: []string{"*.go"}, DebounceMS: 50}
	if len(st.ActiveFileWatches) != 1 || !reflect.DeepEqual(st.ActiveFileWatches[0], wantWatch) {
		t.Errorf("watches: got %+v, want %+v", st.ActiveFileWatches, wantWatch)
	}
	apply(s, &contracts.UtilityCommandExited{CommandID: "k"}, &contracts.UtilityFileWatchStopped{WatchID: "w"}, out("stdout", "late"))
	if st := s.Snapshot(0).State; len(st.ActiveUtilityCommands)+len(st.ActiveFileWatches) != 0 {
		t.Errorf("after their ends: got %+v", st)
	}
}

func TestMessagesWithoutEffect(t *testing.T) { // section 4.2 and 4.3, R32
	s := fold(&contracts.Ready{}, call("c", true), &contracts.Status{Message: "s"})
	before := wire(t, s.Snapshot(0))
	apply(s,
		&contracts.RawAgentEvent{}, &contracts.Compaction{}, &contracts.UtilityFileSearchResults{}, &contracts.UtilityFileReadResult{}, &contracts.UtilityFileWatchEvent{},
		&contracts.UtilityCommandStart{CommandID: "k"}, &contracts.UtilityCommandTerminate{}, &contracts.UtilityCommandStdin{}, &contracts.UtilityCommandResize{},
		&contracts.UtilityFileSearch{}, &contracts.UtilityFileRead{}, &contracts.UtilityFileWatchStart{}, &contracts.UtilityFileWatchStop{},
		request("poll", "r", "p"), resolved("poll", "r", "c", "denied"),
	)
	if got := wire(t, s.Snapshot(0)); got != before {
		t.Errorf("got  %s\nwant %s", got, before)
	}
}

// BenchmarkApplyChunk is what a streamed token costs under the hub's lock.
func BenchmarkApplyChunk(b *testing.B) {
	s := fold(&contracts.ResponseStart{ResponseID: "r"})
	chunk := &contracts.ResponseChunk{ResponseID: "r", Content: "a token or two "}
	b.ReportAllocs()
	for b.Loop() {
		s.Apply(chunk)
	}
}

// BenchmarkSnapshot is what an attaching client costs under the hub's lock in a
// busy session.
func BenchmarkSnapshot(b *testing.B) {
	s := fold(&contracts.ResponseStart{ResponseID: "r"}, &contracts.ResponseChunk{ResponseID: "r", Content: strings.Repeat("x", 20_000)})
	for i := range 8 {
		id := fmt.Sprint("c", i)
		apply(s, call(id, true), &contracts.ToolStart{CallID: id}, &contracts.ToolOutput{CallID: id, Content: strings.Repeat("x", 10_000)})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Snapshot(1)
	}
}
