package serverreq_test

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/serverreq"
)

var (
	yes  = true
	no   = false
	text = []contracts.ContentBlock{{Type: "text", Text: "answer"}}
)

func result(output, err string) *contracts.ToolResult {
	return &contracts.ToolResult{Output: output, Error: err}
}

func TestAnswerDecidesHowARequestEnds(t *testing.T) {
	type response = contracts.ServerRequestResponse
	tests := []struct {
		name    string
		kind    contracts.RequestType
		answer  contracts.Command
		verdict contracts.Verdict
		by      contracts.Resolver
		reason  string
		content []contracts.ContentBlock
	}{
		// R53, R55
		{"legacy approval", approval, &contracts.ToolResponse{CallID: "r", Approved: true}, "approved", "user", "Approved", nil},
		{"legacy approval with text", approval, &contracts.ToolResponse{CallID: "r", Approved: true, Result: result("go on", "no")}, "approved", "user", "go on", nil},
		{"legacy denial", approval, &contracts.ToolResponse{CallID: "r"}, "denied", "user", "Denied by user", nil},
		{"legacy denial with text", approval, &contracts.ToolResponse{CallID: "r", Result: result("yes", "Not on a Friday")}, "denied", "user", "Not on a Friday", nil},
		{"approval", approval, &response{Approved: &yes}, "approved", "user", "Approved", nil},
		{"approval with text", approval, &response{Approved: &yes, Result: result("go on", ""), Reason: "why"}, "approved", "user", "go on", nil},
		{"approval with a reason", approval, &response{Approved: &yes, Result: result("", "no"), Reason: "why"}, "approved", "user", "why", nil},
		{"denial", approval, &response{Approved: &no}, "denied", "user", "Denied by user", nil},
		{"denial with text", approval, &response{Approved: &no, Result: result("", "stop"), Reason: "why"}, "denied", "user", "stop", nil},
		{"denial with a reason", approval, &response{Approved: &no, Result: result("yes", ""), Reason: "why"}, "denied", "user", "why", nil},
		{"no decision", approval, &response{}, "denied", "user", "Denied by user", nil}, // R54
		{"content does not decide an approval", approval, &response{Approved: &yes, Content: text, IsError: true}, "approved", "user", "Approved", text},
		// R56, R57
		{"retry", toolRetry, &response{DecisionAction: "retry", Reason: "Network is back"}, "retried", "user", "Network is back", nil},
		{"skip", toolRetry, &response{DecisionAction: "skip"}, "skipped", "user", "", nil},
		{"abort", toolRetry, &response{DecisionAction: "abort", Reason: "enough"}, "aborted", "user", "enough", nil},
		{"no action", toolRetry, &response{Reason: "hm"}, "aborted", "user", "hm", nil},
		// R58
		{"tool done", clientTool, &response{Content: text}, "completed", "client", "", text},
		{"tool failed", clientTool, &response{Content: text, IsError: true, Reason: "ignored"}, "failed", "client", "Client tool result reported an error", text},
		{"legacy tool done", clientTool, &contracts.ClientToolResult{CallID: "r", Content: text}, "completed", "client", "", text},
		{"legacy tool failed", clientTool, &contracts.ClientToolResult{CallID: "r", IsError: true}, "failed", "client", "Client tool result reported an error", nil},
		{"user answered", userInput, &response{Content: text}, "answered", "client", "", text},
		{"user input failed", userInput, &response{IsError: true}, "failed", "client", "User input request reported an error", nil},
		{"legacy user answered", userInput, &contracts.ClientToolResult{CallID: "r", Content: text}, "answered", "client", "", text},
		{"elicited", elicitation, &response{Content: text}, "answered", "client", "", text},
		{"elicitation failed", elicitation, &response{IsError: true}, "failed", "client", "MCP elicitation request reported an error", nil},
		{"legacy elicited", elicitation, &contracts.ClientToolResult{CallID: "r", Content: text}, "answered", "client", "", text},
		{"no content", userInput, &response{}, "answered", "client", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if r, ok := tt.answer.(*response); ok {
				r.RequestID, r.RequestType = "r", tt.kind
			}
			var table serverreq.Table
			req := ask(t, &table, "r", tt.kind)
			got, err := table.Answer(tt.answer, "conn_1", after(time.Second), false)
			if err != nil {
				t.Fatal(err)
			}
			want := serverreq.Resolution{
				Request: req,
				Event: contracts.ServerRequestResolved{
					RequestID: "r", RequestType: tt.kind, CallID: "r",
					Resolution: tt.verdict, Reason: tt.reason, ResolvedBy: tt.by,
				},
				Content: tt.content, From: "conn_1", At: after(time.Second),
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			wantOutcome := contracts.Outcome{Verdict: tt.verdict, Reason: tt.reason, By: tt.by, Content: tt.content, Announced: true}
			if out := got.Outcome(); !reflect.DeepEqual(out, wantOutcome) {
				t.Errorf("outcome: got %+v, want %+v", out, wantOutcome)
			}
			if table.Len() != 0 {
				t.Error("the request is still pending")
			}
		})
	}
}

func TestAnswerToNothingNamesWhatWasMissed(t *testing.T) { // R61
	response := func(kind contracts.RequestType) contracts.Command {
		return &contracts.ServerRequestResponse{RequestID: "x", RequestType: kind}
	}
	tests := []struct {
		cmd             contracts.Command
		bare, networked string
	}{
		{&contracts.ToolResponse{CallID: "x"}, "No pending approval found for call_id: x", "No pending approval found for call_id: x"},
		{&contracts.ClientToolResult{CallID: "x"}, "No pending client tool request found for call_id: x", "No pending client tool request found for call_id: x"},
		{response(approval), "No pending approval found for request_id: x", "No pending server request found for request_id: x"},
		{response(toolRetry), "No pending tool retry request found for request_id: x", "No pending server request found for request_id: x"},
		{response(clientTool), "No pending client tool request found for request_id: x", "No pending server request found for request_id: x"},
		{response(elicitation), "No pending client tool request found for request_id: x", "No pending server request found for request_id: x"},
		{response(userInput), "No pending client tool request found for request_id: x", "No pending server request found for request_id: x"},
	}
	for _, tt := range tests {
		for bare, want := range map[bool]string{true: tt.bare, false: tt.networked} {
			var table serverreq.Table
			ask(t, &table, "y", approval)
			_, err := table.Answer(tt.cmd, "", start, bare)
			got := wantRefusal(t, err, contracts.CodeRequestNotFound, want, "x")
			if got.Metadata != nil {
				t.Errorf("metadata: got %v, want none about a request nobody made", got.Metadata)
			}
			if table.Len() != 1 {
				t.Error("the refused answer ended another request")
			}
		}
	}
}

func TestAnswerOfTheWrongTypeLeavesTheRequestPending(t *testing.T) { // R60
	for _, bare := range []bool{true, false} {
		for _, actual := range contracts.RequestTypes() {
			for _, given := range contracts.RequestTypes() {
				if given == actual {
					continue
				}
				var table serverreq.Table
				ask(t, &table, "r", actual)
				_, err := table.Answer(&contracts.ServerRequestResponse{RequestID: "r", RequestType: given, Approved: &yes}, "", start, bare)
				wantRefusal(t, err, contracts.CodeRequestTypeMismatch, fmt.Sprintf("Pending request r is %s, not %s", actual, given), "r")
				if table.Len() != 1 {
					t.Errorf("%s answered as %s is gone", actual, given)
				}
			}
		}
	}
}

func TestLegacyAnswerDoesNotReachOtherTypes(t *testing.T) {
	legacy := map[string]struct {
		cmd   contracts.Command
		kinds []contracts.RequestType // it cannot answer
		text  string
	}{
		"tool_response":      {&contracts.ToolResponse{CallID: "r", Approved: true}, []contracts.RequestType{clientTool, elicitation, userInput, toolRetry}, "No pending approval found for call_id: r"},
		"client_tool_result": {&contracts.ClientToolResult{CallID: "r"}, []contracts.RequestType{approval, toolRetry}, "No pending client tool request found for call_id: r"},
	}
	for name, tt := range legacy {
		for _, kind := range tt.kinds {
			t.Run(name+" for "+string(kind), func(t *testing.T) {
				var table serverreq.Table
				ask(t, &table, "r", kind)
				_, err := table.Answer(tt.cmd, "", start, true)
				wantRefusal(t, err, contracts.CodeRequestNotFound, tt.text, "r")
				if table.Len() != 1 {
					t.Error("the request is gone")
				}
			})
		}
	}
}

func TestLegacyAnswerMayNameRequestOrCall(t *testing.T) {
	for _, id := range []string{"apr_88", "call_7f2"} {
		var table serverreq.Table
		req := &contracts.ServerRequest{RequestID: "apr_88", RequestType: approval, CallID: "call_7f2"}
		if err := table.Open(req, start, time.Time{}); err != nil {
			t.Fatal(err)
		}
		got, err := table.Answer(&contracts.ToolResponse{CallID: id, Approved: true}, "", start, true)
		if err != nil || got.Event.RequestID != "apr_88" || got.Event.CallID != "call_7f2" {
			t.Errorf("answer to %s: got %+v, %v, want apr_88 resolved", id, got.Event, err)
		}
	}
}

func TestRequestIDWinsOverCallID(t *testing.T) {
	var table serverreq.Table
	for _, req := range []*contracts.ServerRequest{
		{RequestID: "other", RequestType: approval, CallID: "x"},
		{RequestID: "x", RequestType: approval, CallID: "y"},
	} {
		if err := table.Open(req, start, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := table.Answer(&contracts.ToolResponse{CallID: "x", Approved: true}, "", start, true)
	if err != nil || got.Event.RequestID != "x" {
		t.Errorf("got %q, %v, want the request whose id is x", got.Event.RequestID, err)
	}
}

func TestSecondAnswerLearnsWhoWasFirst(t *testing.T) { // R53, D8
	var table serverreq.Table
	req := &contracts.ServerRequest{RequestID: "apr_88", RequestType: approval, CallID: "call_7f2"}
	if err := table.Open(req, start, time.Time{}); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 4, 27, 11, 15, 0, 120_900_000, time.FixedZone("", 2*3600))
	if _, err := table.Answer(&contracts.ToolResponse{CallID: "apr_88", Approved: true}, "conn_1", at, false); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"resolution": "approved", "resolved_by": "user", "resolved_at": "2026-04-27T09:15:00.120Z", "connection_id": "conn_1",
	}
	for _, late := range []struct {
		cmd      contracts.Command
		id, text string
	}{
		{&contracts.ToolResponse{CallID: "apr_88"}, "apr_88", "No pending approval found for call_id: apr_88"},
		{&contracts.ToolResponse{CallID: "call_7f2"}, "call_7f2", "No pending approval found for call_id: call_7f2"},
		{&contracts.ServerRequestResponse{RequestID: "apr_88", RequestType: approval}, "apr_88", "No pending server request found for request_id: apr_88"},
	} {
		_, err := table.Answer(late.cmd, "conn_2", at, false)
		got := wantRefusal(t, err, contracts.CodeRequestNotFound, late.text, late.id)
		if !maps.Equal(got.Metadata, want) {
			t.Errorf("metadata: got %v, want %v", got.Metadata, want)
		}
	}
	// The call's id is not the id of a request, nor of a client tool.
	for _, cmd := range []contracts.Command{
		&contracts.ServerRequestResponse{RequestID: "call_7f2", RequestType: approval},
		&contracts.ClientToolResult{CallID: "call_7f2"},
	} {
		_, err := table.Answer(cmd, "conn_2", at, false)
		if got := err.(*contracts.Error); got.Metadata != nil {
			t.Errorf("%s: got metadata %v, want none", cmd.CommandType(), got.Metadata)
		}
	}
}

func TestLateAnswerLearnsOfExpiry(t *testing.T) {
	var table serverreq.Table
	askUntil(t, &table, "r", userInput, after(time.Minute))
	table.Expire(after(time.Minute))
	_, err := table.Answer(&contracts.ClientToolResult{CallID: "r"}, "conn_1", after(2*time.Minute), true)
	got := wantRefusal(t, err, contracts.CodeRequestNotFound, "No pending client tool request found for call_id: r", "r")
	want := map[string]string{"resolution": "failed", "resolved_by": "policy", "resolved_at": "2026-04-27T09:01:00.000Z"}
	if !maps.Equal(got.Metadata, want) {
		t.Errorf("metadata: got %v, want %v", got.Metadata, want)
	}
}

func TestAnswerBeforeTheExpiryIsHonoured(t *testing.T) {
	var table serverreq.Table
	askUntil(t, &table, "r", approval, after(time.Minute))
	got, err := table.Answer(&contracts.ToolResponse{CallID: "r", Approved: true}, "", after(2*time.Minute), true)
	if err != nil || got.Event.Resolution != contracts.VerdictApproved {
		t.Errorf("answer that the timer has not overtaken: got %s, %v, want approved", got.Event.Resolution, err)
	}
	if expired := table.Expire(after(3 * time.Minute)); expired != nil {
		t.Errorf("the answered request expired: %v", ids(expired))
	}
}

func TestLatest256ResolutionsAreRemembered(t *testing.T) {
	var table serverreq.Table
	metadata := func(id string) map[string]string {
		_, err := table.Answer(&contracts.ToolResponse{CallID: id}, "", start, true)
		return err.(*contracts.Error).Metadata
	}
	for i := range 600 {
		ask(t, &table, fmt.Sprint("r", i), approval)
		table.Cancel(fmt.Sprint("r", i), "over", start)
		if metadata(fmt.Sprint("r", i)) == nil {
			t.Fatalf("resolution %d was forgotten at once", i)
		}
	}
	for i := range 600 {
		if got, want := metadata(fmt.Sprint("r", i)) != nil, i >= 600-256; got != want {
			t.Errorf("resolution %d: remembered %t, want %t", i, got, want)
		}
	}
}

func TestLatestResolutionOfAReusedIDCounts(t *testing.T) {
	var table serverreq.Table
	ask(t, &table, "r", approval)
	table.Cancel("r", "over", start)
	ask(t, &table, "r", approval)
	if _, err := table.Answer(&contracts.ToolResponse{CallID: "r"}, "", start, true); err != nil {
		t.Fatalf("the second request: %v", err)
	}
	_, err := table.Answer(&contracts.ToolResponse{CallID: "r"}, "", start, true)
	if got := err.(*contracts.Error).Metadata["resolution"]; got != "denied" {
		t.Errorf("resolution: got %q, want denied", got)
	}
}

func TestOtherCommandsAnswerNothing(t *testing.T) {
	var table serverreq.Table
	_, err := table.Answer(&contracts.Prompt{}, "", start, true)
	wantRefusal(t, err, contracts.CodeBadRequest, "prompt answers no server request", "")
}
