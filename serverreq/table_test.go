package serverreq_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/serverreq"
)

const (
	approval    = contracts.RequestApproval
	clientTool  = contracts.RequestClientTool
	elicitation = contracts.RequestMCPElicitation
	userInput   = contracts.RequestUserInput
	toolRetry   = contracts.RequestToolRetry
)

var start = time.Date(2026, 4, 27, 9, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

// ask opens a request without a deadline.
func ask(t testing.TB, table *serverreq.Table, id string, kind contracts.RequestType) *contracts.ServerRequest {
	t.Helper()
	return askUntil(t, table, id, kind, time.Time{})
}

func askUntil(t testing.TB, table *serverreq.Table, id string, kind contracts.RequestType, deadline time.Time) *contracts.ServerRequest {
	t.Helper()
	req := &contracts.ServerRequest{RequestID: id, RequestType: kind, CallID: id, Tool: "tool", Args: json.RawMessage(`{}`)}
	if err := table.Open(req, start, deadline); err != nil {
		t.Fatalf("Open(%s %s): %v", kind, id, err)
	}
	return req
}

func wantRefusal(t *testing.T, err error, code contracts.Code, text, requestID string) *contracts.Error {
	t.Helper()
	got, ok := errors.AsType[*contracts.Error](err)
	if !ok {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
	if got.Code != code || got.Message != text || got.RequestID != requestID || got.Type != contracts.ErrorTool {
		t.Errorf("got %s %q for %q of type %s, want %s %q for %q of type tool",
			got.Code, got.Message, got.RequestID, got.Type, code, text, requestID)
	}
	return got
}

func ids(resolutions []serverreq.Resolution) []string {
	var list []string
	for _, r := range resolutions {
		list = append(list, r.Request.RequestID)
	}
	return list
}

func TestOpenRefusesWhatCannotBeAnswered(t *testing.T) {
	table := serverreq.New(3)
	ask(t, table, "r1", approval)
	ask(t, table, "r2", clientTool)
	open := func(id, call string, kind contracts.RequestType) error {
		return table.Open(&contracts.ServerRequest{RequestID: id, CallID: call, RequestType: kind}, start, time.Time{})
	}
	wantRefusal(t, open("", "c", approval), contracts.CodeBadRequest, "server request has no id", "")
	wantRefusal(t, open("r3", "", approval), contracts.CodeBadRequest, "server request has no id", "r3")
	wantRefusal(t, open("r3", "c", "poll"), contracts.CodeBadRequest, "unknown server request type: poll", "r3")
	wantRefusal(t, open("r1", "c", userInput), contracts.CodeBadRequest, "server request already pending: r1", "r1")
	wantRefusal(t, open("r3", "r1", approval), contracts.CodeBadRequest, "server request already pending for call: r1", "r3")
	// A legacy answer to r2 could mean either.
	wantRefusal(t, open("r3", "r2", userInput), contracts.CodeBadRequest, "server request already pending for call: r2", "r3")
	if err := open("r1:retry:1", "r1", toolRetry); err != nil {
		t.Errorf("retry of a call whose approval waits: got %v, want no error", err)
	}
	wantRefusal(t, open("r4", "r4", approval), contracts.CodeOverloaded, "too many pending server requests", "r4")
	if table.Len() != 3 {
		t.Errorf("pending: got %d, want 3", table.Len())
	}
}

func TestZeroTableHolds256(t *testing.T) {
	var table serverreq.Table
	for i := range 256 {
		ask(t, &table, fmt.Sprint("r", i), approval)
	}
	req := &contracts.ServerRequest{RequestID: "more", CallID: "more", RequestType: approval}
	if err := table.Open(req, start, time.Time{}); !errors.Is(err, &contracts.Error{Code: contracts.CodeOverloaded}) {
		t.Errorf("request 257: got %v, want overloaded", err)
	}
	table.Cancel("r17", "gone", start)
	if err := table.Open(req, start, time.Time{}); err != nil {
		t.Errorf("after one ended: got %v, want no error", err)
	}
}

func TestPendingIsInTheOrderOpened(t *testing.T) {
	var table serverreq.Table
	for i, kind := range []contracts.RequestType{toolRetry, approval, userInput} {
		askUntil(t, &table, fmt.Sprint("r", i), kind, after(time.Duration(10-i)*time.Second))
	}
	rows := table.Pending()
	for i, row := range rows {
		if want := fmt.Sprint("r", i); row.Request.RequestID != want || !row.Opened.Equal(start) || !row.Deadline.Equal(after(time.Duration(10-i)*time.Second)) {
			t.Errorf("row %d: got %s opened %v until %v, want %s", i, row.Request.RequestID, row.Opened, row.Deadline, want)
		}
	}
	rows[0] = contracts.KeptRequest{}
	if table.Pending()[0].Request == nil {
		t.Error("the caller's slice is the table's")
	}
}

func TestRequestsExpireAtTheirDeadlineByDefaultVerdict(t *testing.T) { // R62
	tests := []struct {
		kind    contracts.RequestType
		verdict contracts.Verdict
		reason  string
		content bool
	}{
		{approval, contracts.VerdictDenied, "Approval request timed out", false},
		{clientTool, contracts.VerdictFailed, "Client tool execution timed out", true},
		{elicitation, contracts.VerdictFailed, "MCP elicitation request timed out before the connected client responded.", true},
		{userInput, contracts.VerdictFailed, "User input request timed out before the connected client responded.", true},
		{toolRetry, contracts.VerdictCancelled, "Tool retry request timed out before a retry decision was provided.", false},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			var table serverreq.Table
			deadline := after(time.Minute)
			req := askUntil(t, &table, "r", tt.kind, deadline)
			if got := table.Expire(deadline.Add(-1)); got != nil {
				t.Fatalf("before the deadline: got %d resolutions, want none", len(got))
			}
			got := table.Expire(deadline)
			if len(got) != 1 || table.Len() != 0 {
				t.Fatalf("at the deadline: got %d resolutions, %d pending, want 1 and 0", len(got), table.Len())
			}
			want := serverreq.Resolution{
				Request: req,
				Event: contracts.ServerRequestResolved{
					RequestID: "r", RequestType: tt.kind, CallID: "r",
					Resolution: tt.verdict, Reason: tt.reason, ResolvedBy: contracts.ResolvedByPolicy,
				},
				At: deadline,
			}
			if tt.content { // what the agent gets in place of an answer
				want.Content = []contracts.ContentBlock{{Type: "text", Text: tt.reason}}
			}
			if !reflect.DeepEqual(got[0], want) {
				t.Errorf("resolution: got %+v, want %+v", got[0], want)
			}
		})
	}
}

func TestEarliestDeadlineExpiresFirst(t *testing.T) {
	var table serverreq.Table
	askUntil(t, &table, "late", approval, after(3*time.Second))
	ask(t, &table, "never", approval)
	askUntil(t, &table, "early", approval, after(time.Second))
	askUntil(t, &table, "early too", approval, after(time.Second))
	if got, ok := table.Next(); !ok || !got.Equal(after(time.Second)) {
		t.Errorf("Next: got %v, %t, want %v", got, ok, after(time.Second))
	}
	if got, want := ids(table.Expire(after(time.Hour))), []string{"early", "early too", "late"}; !slices.Equal(got, want) {
		t.Errorf("expired: got %v, want %v", got, want)
	}
	if got, ok := table.Next(); ok {
		t.Errorf("Next with a request that never expires: got %v, want none", got)
	}
	if table.Len() != 1 {
		t.Errorf("pending: got %d, want 1", table.Len())
	}
}

func TestCancelAllGoesByClassThenAge(t *testing.T) { // R66, section 3.4
	var table serverreq.Table
	for i, kind := range []contracts.RequestType{toolRetry, userInput, approval, elicitation, clientTool, approval, userInput} {
		ask(t, &table, fmt.Sprint(i), kind)
	}
	const reason = "Interrupted before request completed"
	all := table.CancelAll(reason, after(time.Second))
	if got, want := ids(all), []string{"2", "5", "4", "3", "1", "6", "0"}; !slices.Equal(got, want) {
		t.Errorf("order: got %v, want %v", got, want)
	}
	for _, r := range all {
		if r.Event.Resolution != contracts.VerdictCancelled || r.Event.ResolvedBy != contracts.ResolvedByRuntime || r.Event.Reason != reason {
			t.Errorf("%s: got %s by %s because %q", r.Request.RequestID, r.Event.Resolution, r.Event.ResolvedBy, r.Event.Reason)
		}
		hasContent := slices.Contains([]contracts.RequestType{clientTool, elicitation, userInput}, r.Request.RequestType)
		if (len(r.Content) == 1 && r.Content[0].Text == reason) != hasContent {
			t.Errorf("%s %s: got content %v, want an error result: %t", r.Request.RequestType, r.Request.RequestID, r.Content, hasContent)
		}
	}
	if got := table.CancelAll(reason, after(time.Second)); got != nil || table.Len() != 0 {
		t.Errorf("second time: got %d resolutions and %d pending, want none", len(got), table.Len())
	}
}

func TestChangeOfModeDecidesWaitingApprovals(t *testing.T) { // R65
	tests := []struct {
		mode    contracts.ApprovalMode
		verdict contracts.Verdict
		reason  string
	}{
		{contracts.ApprovalAuto, contracts.VerdictApproved, "Auto-approved by policy"},
		{contracts.ApprovalFail, contracts.VerdictDenied, "Denied by approval policy"},
		{contracts.ApprovalPrompt, "", ""},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode), func(t *testing.T) {
			var table serverreq.Table
			ask(t, &table, "a", approval)
			ask(t, &table, "u", userInput)
			ask(t, &table, "b", approval)
			got := table.PolicyAll(tt.mode, start)
			if tt.verdict == "" {
				if got != nil || table.Len() != 3 {
					t.Errorf("got %d resolutions, %d pending, want 0 and 3", len(got), table.Len())
				}
				return
			}
			if want := []string{"a", "b"}; !slices.Equal(ids(got), want) || table.Len() != 1 {
				t.Fatalf("got %v, %d pending, want %v and 1", ids(got), table.Len(), want)
			}
			for _, r := range got {
				if r.Event.Resolution != tt.verdict || r.Event.ResolvedBy != contracts.ResolvedByPolicy || r.Event.Reason != tt.reason {
					t.Errorf("got %s by %s because %q, want %s by policy because %q",
						r.Event.Resolution, r.Event.ResolvedBy, r.Event.Reason, tt.verdict, tt.reason)
				}
			}
		})
	}
}

func TestWithdrawEndsOnlyWhatMayEndThatWay(t *testing.T) {
	var table serverreq.Table
	ask(t, &table, "r", approval)
	if _, ok := table.Withdraw("other", contracts.VerdictDenied, "", contracts.ResolvedByPolicy, start); ok {
		t.Error("an unknown request was withdrawn")
	}
	if _, ok := table.Withdraw("r", contracts.VerdictCompleted, "", contracts.ResolvedByClient, start); ok || table.Len() != 1 {
		t.Error("an approval ended as a completed client tool")
	}
	got, ok := table.Withdraw("r", contracts.VerdictDenied, "session limit", contracts.ResolvedByPolicy, after(time.Second))
	if !ok || got.Event.Resolution != contracts.VerdictDenied || got.Event.Reason != "session limit" || got.From != "" || !got.At.Equal(after(time.Second)) {
		t.Errorf("got %+v, %t, want denied by policy", got, ok)
	}
	if _, ok := table.Cancel("r", "again", start); ok {
		t.Error("a request ended twice")
	}
}

func TestLegalIsTheTable(t *testing.T) { // section 3.4; the change of mode is its last paragraph
	const (
		user, policy, client, runtime = contracts.ResolvedByUser, contracts.ResolvedByPolicy, contracts.ResolvedByClient, contracts.ResolvedByRuntime
	)
	legal := map[string]bool{}
	for _, row := range []struct {
		kind    contracts.RequestType
		verdict contracts.Verdict
		by      contracts.Resolver
	}{
		{approval, "approved", user}, {approval, "denied", user}, {approval, "denied", policy}, {approval, "approved", policy},
		{clientTool, "completed", client}, {clientTool, "failed", client}, {clientTool, "failed", policy},
		{elicitation, "answered", client}, {elicitation, "failed", client}, {elicitation, "failed", policy},
		{userInput, "answered", client}, {userInput, "failed", client}, {userInput, "failed", policy},
		{toolRetry, "retried", user}, {toolRetry, "skipped", user}, {toolRetry, "aborted", user}, {toolRetry, "cancelled", policy},
		{approval, "cancelled", runtime}, {clientTool, "cancelled", runtime}, {elicitation, "cancelled", runtime},
		{userInput, "cancelled", runtime}, {toolRetry, "cancelled", runtime},
	} {
		legal[fmt.Sprint(row)] = true
	}
	verdicts := []contracts.Verdict{"approved", "denied", "completed", "failed", "answered", "retried", "skipped", "aborted", "cancelled", "", "maybe"}
	for _, kind := range append(contracts.RequestTypes(), "", "poll") {
		for _, verdict := range verdicts {
			for _, by := range []contracts.Resolver{user, policy, client, runtime, "", "somebody"} {
				row := struct {
					kind    contracts.RequestType
					verdict contracts.Verdict
					by      contracts.Resolver
				}{kind, verdict, by}
				if got, want := serverreq.Legal(kind, verdict, by), legal[fmt.Sprint(row)]; got != want {
					t.Errorf("Legal(%s, %s, %s): got %t, want %t", kind, verdict, by, got, want)
				}
			}
		}
	}
}

func TestDefaultTimeouts(t *testing.T) {
	for kind, want := range map[contracts.RequestType]time.Duration{
		approval: time.Hour, toolRetry: time.Hour, userInput: time.Hour, elicitation: time.Hour, clientTool: time.Minute,
	} {
		if got := serverreq.DefaultTimeout(kind); got != want {
			t.Errorf("%s: got %v, want %v", kind, got, want)
		}
	}
}

func TestPendingRequestsSurviveARestart(t *testing.T) { // D8
	var table serverreq.Table
	askUntil(t, &table, "r1", approval, after(time.Minute))
	ask(t, &table, "r2", userInput)
	kept, err := json.Marshal(table.Pending())
	if err != nil {
		t.Fatal(err)
	}
	var rows []contracts.KeptRequest
	if err := json.Unmarshal(kept, &rows); err != nil {
		t.Fatal(err)
	}
	var restored serverreq.Table
	if err := restored.Restore(rows); err != nil {
		t.Fatal(err)
	}
	if got, want := restored.Pending(), table.Pending(); !reflect.DeepEqual(got, want) {
		t.Errorf("restored: got %+v, want %+v", got, want)
	}
	if got := ids(restored.Expire(after(time.Minute))); !slices.Equal(got, []string{"r1"}) {
		t.Errorf("expired after the restart: got %v, want r1", got)
	}
}

func TestRestoreRefusesWhatWasNeverPending(t *testing.T) {
	req := &contracts.ServerRequest{RequestID: "r", CallID: "r", RequestType: approval}
	for name, rows := range map[string][]contracts.KeptRequest{
		"a row without a request": {{}},
		"a request twice":         {{Request: req}, {Request: req}},
	} {
		var table serverreq.Table
		if err := table.Restore(rows); !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
			t.Errorf("%s: got %v, want bad_request", name, err)
		}
	}
}
