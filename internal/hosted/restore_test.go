package hosted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

// An edit changes a manifest, or its parsed form.
type edit func(m map[string]any)

func in(m map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		m = m[k].(map[string]any)
	}
	return m
}

// load restores the golden manifest after an edit, in a workspace that has a
// link to outside.
func load(t *testing.T, e edit) (*contracts.Manifest, *contracts.Restored, error) {
	t.Helper()
	text, err := os.ReadFile("testdata/drained.json")
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if e != nil {
		e(m)
	}
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	root, _ := tree(t)
	path := filepath.Join(folder(t), "m.json")
	write(t, path, string(text))
	return LoadManifest(path, root)
}

func TestDrainedSessionIsRestored(t *testing.T) { // A104
	facts := story(t)
	facts.Queue = contracts.KeptQueue{Held: true, Prompts: []contracts.KeptPrompt{{
		PromptID: "prompt_1", Content: "then the docs", Attachments: []string{"/w/plan.md"}, When: contracts.PromptNext,
		Author: contracts.Author{Principal: "ann", Name: "Ann"}, Timestamp: "2026-04-20T09:15:00.120Z",
	}}}
	r := runner(t, &puppet{id: "sess_alpha", facts: facts})
	answer := drain(t, r, `{"reason":"ttl_expired"}`)
	c := r.config
	c.RestoreManifest, c.RunnerSessionID = answer.ManifestPath, "mrs_42"
	m, got, err := c.Restore()
	if err != nil {
		t.Fatal(err)
	}
	if m.RunnerSessionID != "mrs_41" || m.Reason != "ttl_expired" || m.Runtime.FlushStatus != contracts.FlushCompleted {
		t.Errorf("got %+v, want the manifest that was written", m)
	}
	mode := &contracts.Init{ApprovalMode: contracts.ApprovalPrompt}
	if got.SessionID != "sess_alpha" || got.Cursor != 42 || !got.Ready || got.LastError != "" || !reflect.DeepEqual(got.LastInit, mode) {
		t.Errorf("got %+v, want what the session was", got)
	}
	if !reflect.DeepEqual(got.Queue, facts.Queue) {
		t.Errorf("got queue %+v, want %+v", got.Queue, facts.Queue)
	}
	if !reflect.DeepEqual(got.Requests, facts.Requests) {
		t.Errorf("got questions %+v, want %+v", got.Requests, facts.Requests)
	}
	s := got.Snapshot
	if s.Cursor != 42 || s.SessionID != "sess_alpha" || !s.State.IsReady || *s.State.LastStatus != "Restored from snapshot" || s.State.LastError != nil || s.State.Model != "m-1" {
		t.Errorf("got %+v, want the restored state", s)
	}
	if text, err := contracts.EncodeSnapshot(s, 0); err != nil {
		t.Errorf("got %s, %v; want a snapshot that clients can be sent", text, err)
	} else if _, err := (&contracts.Decoder{Strict: true}).Snapshot(text); err != nil {
		t.Errorf("got %s: %v", text, err)
	}
}

func TestNothingConfiguredIsNothingRestored(t *testing.T) {
	c := configured(t)
	if m, r, err := c.Restore(); m != nil || r != nil || err != nil {
		t.Errorf("got %v, %v, %v; want nothing", m, r, err)
	}
}

func TestManifestOfAnotherSessionIsRefused(t *testing.T) { // A108
	c := configured(t, "--maestro-session-id", "sess_beta")
	path, err := filepath.Abs("testdata/skipped.json")
	if err != nil {
		t.Fatal(err)
	}
	c.RestoreManifest = path
	_, _, err = c.Restore()
	if err == nil || !strings.Contains(err.Error(), "sess_alpha") || !strings.Contains(err.Error(), "MAESTRO_SESSION_ID") {
		t.Errorf("got %v, want it to name both sides", err)
	}
	c.SessionID = "sess_alpha"
	if _, _, err := c.Restore(); err != nil {
		t.Errorf("got %v, want the same session accepted", err)
	}
}

func TestReadinessFollowsTheFlush(t *testing.T) { // A107
	for _, tt := range []struct {
		flush, reason string
		ready         bool
		status, err   string
	}{
		{"completed", "ignored", true, "Restored from snapshot", ""},
		{"failed", "", false, "Restore interrupted before runtime flush completed", "runtime flush failed before restore"},
		{"failed", "disk full", false, "Restore interrupted before runtime flush completed", "disk full"},
		{"interrupted", "", false, "Restore interrupted before runtime flush completed", "runtime flush failed before restore"},
		{"skipped", "", false, "Restore incomplete: runtime flush skipped", "runtime flush was skipped; no runtime activity was persisted"},
		{"skipped", "nothing", false, "Restore incomplete: runtime flush skipped", "nothing"},
	} {
		m, r, err := load(t, func(m map[string]any) {
			in(m, "runtime")["flush_status"] = tt.flush
			if tt.reason != "" {
				in(m, "runtime")["error"] = tt.reason
			}
		})
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		s := r.Snapshot.State
		if r.Ready != tt.ready || r.LastStatus != tt.status || r.LastError != tt.err || s.IsReady != tt.ready || *s.LastStatus != tt.status {
			t.Errorf("%s: got %+v, want %+v", tt.flush, r, tt)
		}
		if tt.ready {
			if s.LastError != nil || s.LastErrorType != "" || r.LastErrorType != "" {
				t.Errorf("%s: got %+v, want no error", tt.flush, s)
			}
		} else if *s.LastError != tt.err || s.LastErrorType != contracts.ErrorProtocol || r.LastErrorType != contracts.ErrorProtocol {
			t.Errorf("%s: got %+v, want the error in the state", tt.flush, s)
		}
		if tt.flush == "interrupted" && m.Runtime.FlushStatus != contracts.FlushFailed {
			t.Errorf("got %s, want the old word read as failed", m.Runtime.FlushStatus)
		}
	}
}

func TestCursorIsTheLargerOne(t *testing.T) {
	for _, tt := range []struct{ runtime, snapshot, want any }{
		{42, 42, 42}, {40, 42, 42}, {42, 40, 42}, {nil, 42, 42}, {nil, 0, 0},
	} {
		_, r, err := load(t, func(m map[string]any) {
			in(m, "runtime")["cursor"] = tt.runtime
			in(m, "snapshot")["cursor"] = tt.snapshot
		})
		if err != nil || int(r.Cursor) != tt.want || r.Snapshot.Cursor != r.Cursor {
			t.Errorf("%v: got %+v, %v", tt, r, err)
		}
	}
}

func TestBadManifestEndsTheStart(t *testing.T) { // A108
	for name, tt := range map[string]struct {
		edit edit
		want string
	}{
		"protocol":    {func(m map[string]any) { m["protocol_version"] = "v2" }, "invalid_snapshot_manifest: /protocol_version"},
		"mode":        {func(m map[string]any) { in(m, "workspace_export")["mode"] = "tar" }, "invalid_snapshot_manifest: /workspace_export/mode"},
		"flush":       {func(m map[string]any) { in(m, "runtime")["flush_status"] = "maybe" }, "invalid_snapshot_manifest: /runtime/flush_status"},
		"no runtime":  {func(m map[string]any) { delete(m, "runtime") }, "invalid_snapshot_manifest: /runtime Required property"},
		"no session":  {func(m map[string]any) { m["maestro_session_id"] = "" }, "invalid_snapshot_manifest: /maestro_session_id"},
		"no snapshot": {func(m map[string]any) { delete(m, "snapshot") }, "invalid_snapshot_manifest: /snapshot Required property"},
		"no list":     {func(m map[string]any) { delete(in(m, "snapshot", "state"), "active_tools") }, "invalid_snapshot_manifest: "},
		"bad list":    {func(m map[string]any) { in(m, "snapshot", "state")["pending_approvals"] = 1 }, "invalid_snapshot_manifest: "},
		"bad init": {func(m map[string]any) {
			in(m, "snapshot")["last_init"] = map[string]any{"type": "init", "approval_mode": "any"}
		}, "invalid_snapshot_manifest: last_init"},
		"no init":        {func(m map[string]any) { in(m, "snapshot")["last_init"] = map[string]any{"type": "interrupt"} }, "invalid_snapshot_manifest: last_init"},
		"cursor":         {func(m map[string]any) { in(m, "runtime")["cursor"] = uint64(1) << 60 }, "invalid_snapshot_manifest: cursor"},
		"escape":         {exporting("../workshop"), "workspace_violation: "},
		"escape below":   {exporting("src/../../workshop"), "workspace_violation: "},
		"escape by link": {exporting("escape/new"), "workspace_violation: "},
		"dangling":       {exporting("dangling"), "workspace_violation: "},
		"absolute":       {exporting("/etc"), "workspace_violation: "},
		"loop":           {exporting("loop"), "workspace_violation: "},
	} {
		_, r, err := load(t, tt.edit)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %+v, %v; want %s", name, r, err, tt.want)
		}
	}
}

func exporting(path string) edit {
	return func(m map[string]any) {
		in(m, "workspace_export")["paths"] = []any{map[string]any{"input": "x", "path": "/elsewhere/x", "relative_path": path, "type": "directory"}}
	}
}

func TestManifestThatIsNoFileIsNotRead(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/empty", "")
	write(t, dir+"/huge", "")
	if err := os.Truncate(dir+"/huge", maxManifestBytes+1); err != nil {
		t.Fatal(err)
	}
	const unreadable = "failed to read hosted runner restore manifest: "
	for path, want := range map[string]string{
		"missing": unreadable, ".": unreadable, "huge": unreadable, "empty": "invalid_snapshot_manifest: ",
	} {
		if _, _, err := LoadManifest(filepath.Join(dir, path), dir); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

func TestRestoreIgnoresWhatIsNotForIt(t *testing.T) { // A109
	_, want, err := load(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]edit{
		"unknown keys": func(m map[string]any) {
			m["manifest_version"], in(m, "runtime")["more"], in(m, "snapshot", "state")["newer"] = 9, []any{1}, "x"
		},
		"no blocks": func(m map[string]any) {
			for _, k := range []string{"retention_policy", "work_continuity", "platform_evidence"} {
				delete(m, k)
			}
		},
		"blocks of another shape": func(m map[string]any) {
			m["retention_policy"], m["work_continuity"], m["platform_evidence"], m["git"] = 1, []any{}, "x", map[string]any{}
		},
		"nulls": func(m map[string]any) {
			m["workspace_id"], m["agent_run_id"], m["reason"], in(m, "runtime")["error"] = nil, nil, nil, nil
		},
		"another place":  func(m map[string]any) { m["workspace_root"] = "/gone" },
		"missing export": exporting("not/there/yet"),
		"link inside":    exporting("absolute/main.go"),
	} {
		if _, got, err := load(t, e); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, want)
		}
	}
}

func TestForeignQuestionsAreNotPut(t *testing.T) {
	for name, tt := range map[string]struct {
		block any
		want  int
	}{
		"no list":      {map[string]any{"count": 2}, 0},
		"other items":  {[]any{map[string]any{"id": "a"}}, 0},
		"other event":  {[]any{map[string]any{"request": map[string]any{"type": "status", "message": "x"}, "opened_at": "2026-04-20T09:15:00Z"}}, 0},
		"unknown type": {[]any{map[string]any{"request": map[string]any{"type": "server_request", "request_type": "poll"}, "opened_at": "2026-04-20T09:15:00Z"}}, 0},
		"no time":      {[]any{map[string]any{"request": question("a"), "opened_at": "yesterday"}}, 0},
		"bad deadline": {[]any{map[string]any{"request": question("a"), "opened_at": "2026-04-20T09:15:00Z", "deadline": "soon"}}, 0},
		"one of two":   {[]any{map[string]any{"request": 1, "opened_at": ""}, map[string]any{"request": question("a"), "opened_at": "2026-04-20T09:15:00Z"}}, 1},
	} {
		_, r, err := load(t, func(m map[string]any) { m["pending_requests"] = tt.block })
		if err != nil || len(r.Requests) != tt.want {
			t.Errorf("%s: got %+v, %v; want %d", name, r, err, tt.want)
		}
	}
}

func question(id string) map[string]any {
	return map[string]any{
		"type": "server_request", "request_id": id, "request_type": "approval", "call_id": id,
		"tool": "shell", "args": map[string]any{}, "reason": "",
	}
}

// Other runners leave in their snapshots what no longer is.
func TestRestoredSessionHasNobodyAndRunsNothing(t *testing.T) {
	text, err := os.ReadFile("../../contracts/testdata/snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	var full map[string]any
	if err := json.Unmarshal(text, &full); err != nil {
		t.Fatal(err)
	}
	_, r, err := load(t, func(m map[string]any) {
		m["snapshot"] = full
		delete(m, "pending_requests")
	})
	if err != nil {
		t.Fatal(err)
	}
	want := r.Snapshot.State // compared with what it must be, field by field
	want.ConnectionCount, want.SubscriberCount = 0, 0
	want.ClientProtocolVersion, want.ClientInfo, want.Capabilities, want.OptOutNotifications, want.ConnectionRole = "", nil, nil, nil, ""
	want.ControllerConnectionID, want.ControllerSubscriptionID = contracts.NullString{}, contracts.NullString{}
	want.Connections = []contracts.ConnectionState{}
	want.PendingRequests = []contracts.PendingRequest{}
	for _, list := range []*[]contracts.PendingEntry{
		&want.PendingApprovals, &want.PendingClientTools, &want.PendingMCPElicitations, &want.PendingUserInputs, &want.PendingToolRetries,
	} {
		*list = []contracts.PendingEntry{}
	}
	want.ActiveTools, want.ActiveUtilityCommands, want.ActiveFileWatches = []contracts.ActiveTool{}, []contracts.ActiveCommand{}, []contracts.ActiveWatch{}
	want.CurrentResponse, want.IsResponding = nil, false
	if got := r.Snapshot.State; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s := r.Snapshot; s.State.Model == "" || len(s.State.TrackedTools) == 0 || s.State.Cwd == "" || s.State.SessionID.Get() != "sess_alpha" || s.SessionID != "sess_alpha" {
		t.Errorf("got %+v, want what the session is to be kept", s)
	}
}

// The state package makes of the questions what the snapshot says, so that a hub
// may start from either.
func TestQuestionsWaitInTheRestoredState(t *testing.T) {
	types := map[string]any{"approval": "call_1", "client_tool": "call_2", "mcp_elicitation": "call_3", "user_input": "call_4", "tool_retry": "call_1"}
	var block []any
	want := session.New()
	for _, kind := range []string{"user_input", "tool_retry", "approval", "client_tool", "mcp_elicitation"} {
		q := question("req_" + kind)
		if kind == "user_input" {
			q["request_id"] = types[kind]
		}
		q["request_type"], q["call_id"] = kind, types[kind]
		q["args"], q["display_name"] = map[string]any{"of": kind}, "shown"
		block = append(block, map[string]any{"request": q, "opened_at": "2026-04-20T09:15:00Z"})
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		event, err := (&contracts.Decoder{}).Event(text)
		if err != nil {
			t.Fatal(err)
		}
		want.Apply(event)
	}
	_, r, err := load(t, func(m map[string]any) { m["pending_requests"] = block })
	if err != nil {
		t.Fatal(err)
	}
	restored := session.New()
	restored.Restore(r.Snapshot)
	for name, got := range map[string]contracts.State{"snapshot": r.Snapshot.State, "state": restored.Snapshot(42).State} {
		w := want.Snapshot(42).State
		for i := range w.PendingRequests {
			w.PendingRequests[i].SessionID = contracts.String("sess_alpha")
		}
		for _, pair := range [][2]any{
			{got.PendingRequests, w.PendingRequests}, {got.PendingApprovals, w.PendingApprovals}, {got.PendingClientTools, w.PendingClientTools},
			{got.PendingMCPElicitations, w.PendingMCPElicitations}, {got.PendingUserInputs, w.PendingUserInputs}, {got.PendingToolRetries, w.PendingToolRetries},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s: got %+v, want %+v", name, pair[0], pair[1])
			}
		}
		if len(got.TrackedTools) != len(w.TrackedTools) {
			t.Errorf("%s: got tools %+v, want those of %+v", name, got.TrackedTools, w.TrackedTools)
		}
	}
}

func TestRestoredDeadlinesAreKept(t *testing.T) {
	_, r, err := load(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 4, 20, 10, 15, 0, 120e6, time.UTC)
	if len(r.Requests) != 2 || !r.Requests[0].Deadline.Equal(want) || !r.Requests[1].Deadline.IsZero() {
		t.Errorf("got %+v, want a deadline at %v and one that never comes", r.Requests, want)
	}
}

func TestInvalidPromptsOfAManifestAreDropped(t *testing.T) {
	from := &contracts.KeptQueue{Prompts: []contracts.KeptPrompt{{PromptID: ""}, {PromptID: "a"}, {PromptID: "a"}, {PromptID: strings.Repeat("x", contracts.MaxIDBytes+1)}}}
	for i := range contracts.MaxQueued {
		from.Prompts = append(from.Prompts, contracts.KeptPrompt{PromptID: fmt.Sprint("b", i)})
	}
	got := keptQueue(from)
	if len(got.Prompts) != contracts.MaxQueued || got.Prompts[0].PromptID != "a" || got.Prompts[1].PromptID != "b0" || got.Held {
		t.Errorf("got %+v", got)
	}
}
