package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// answeredBy is how a question ends that a client answered.
func answeredBy(said string) contracts.Outcome {
	return contracts.Outcome{Verdict: contracts.VerdictAnswered, By: contracts.ResolvedByClient, Content: text(said)}
}

// ask calls a tool and returns the question that comes of it, and how the call
// ends.
func ask(t *testing.T, s *Set, h *hosttest.Host, tool string) (*contracts.ServerRequest, <-chan Result) {
	t.Helper()
	done := make(chan Result, 1)
	go func() {
		res, err := s.Call(t.Context(), tool, nil, nil)
		if err != nil {
			t.Errorf("%s: got %v, want a result", tool, err)
		}
		done <- res
	}()
	return h.AwaitType("server_request").(*contracts.ServerRequest), done
}

// result returns how a call ended.
func result(t *testing.T, done <-chan Result) Result {
	t.Helper()
	select {
	case res := <-done:
		return res
	case <-time.After(hosttest.Patience):
		t.Fatal("got no end of the call, want one")
		return Result{}
	}
}

// shapes are the tools that ask the same in the shape of each generation; the
// last is that of the newer one for a client of the older.
var shapes = []struct{ revision, tool, prefix string }{
	{"2025-11-25", "mcp__one__ask", ""},
	{"2026-07-28", "mcp__one__rounds", "one "},
	{"2025-11-25", "mcp__one__rounds", "one "},
}

func TestBothShapesOfElicitationAreOneQuestion(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		t.Run(shape.revision+shape.tool, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := open(t, h, Options{callTimeout: 10 * time.Second}, testProgram(t, "one", "tools", revisionVariable, shape.revision))
			req, done := ask(t, s, h, shape.tool)
			var args map[string]any
			if err := json.Unmarshal(req.Args, &args); err != nil {
				t.Fatal(err)
			}
			id, _ := args["requestId"].(string)
			want := map[string]any{
				"serverName": "one", "requestId": id, "mode": "form", "message": "Who are you?",
				"requestedSchema": map[string]any{
					"type": "object", "required": []any{"name"},
					"properties": map[string]any{"name": map[string]any{"type": "string"}, "age": map[string]any{"type": "integer", "minimum": 0.0}},
				},
			}
			if id == "" || !reflect.DeepEqual(args, want) {
				t.Errorf("got args %v, want %v", args, want)
			}
			if req.RequestType != contracts.RequestMCPElicitation || req.Tool != "mcp_elicitation" || req.CallID != "mcp_elicitation:one:"+id ||
				req.RequestID != req.CallID || req.Reason != "MCP server requested additional user input" {
				t.Errorf("got %+v, want the question of the protocol", req)
			}
			h.Resolve(req.RequestID, answeredBy(`{"action":"accept","content":{"name":"Ada","age":36}}`))
			says(t, result(t, done), shape.prefix+"accept map[age:36 name:Ada]")
			if end := h.AwaitType("tool_end").(*contracts.ToolEnd); end.CallID != req.CallID || !end.Success {
				t.Errorf("got %+v, want the end of the question", end)
			}
			if got := statuses(h); got != "" {
				t.Errorf("got %q said, want nothing", got)
			}
		})
	}
}

func TestQuestionsAreNeverAnsweredForPeople(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes[:2] {
		h := newHost(t)
		s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, shape.revision))
		for _, tt := range []struct {
			out       contracts.Outcome
			want, why string
		}{
			{answeredBy(`{"action":"decline"}`), "decline map[]", ""},
			{answeredBy(`{"action":"cancel"}`), "cancel map[]", ""},
			{answeredBy(`yes`), "cancel map[]", "the answer is not understood"},
			{answeredBy(`{"action":"accept"}`), "cancel map[]", `the answer does not fit what was asked: "name" is missing`},
			{answeredBy(`{"action":"accept","content":{"name":"x","age":-1}}`), "cancel map[]", `"age" is not as it should be`},
			{contracts.Outcome{Verdict: contracts.VerdictFailed, By: contracts.ResolvedByClient, Reason: "MCP elicitation request reported an error", Content: text(`{"action":"accept","content":{"name":"x"}}`)},
				"cancel map[]", "reported an error"},
			{contracts.Outcome{Verdict: contracts.VerdictFailed, By: contracts.ResolvedByPolicy, Reason: "timed out"}, "cancel map[]", "timed out"},
			{contracts.Outcome{Verdict: contracts.VerdictCancelled, By: contracts.ResolvedByPolicy, Reason: "The controlling client cannot answer mcp_elicitation requests"},
				"cancel map[]", "cannot answer mcp_elicitation requests"},
			{contracts.Outcome{Verdict: contracts.VerdictCancelled, By: contracts.ResolvedByRuntime, Reason: "Interrupted before request completed"}, "cancel map[]", ""},
		} {
			before := statuses(h)
			asked, ended := len(h.Asked()), len(hosttest.As[*contracts.ToolEnd](h))
			h.Answer = func(*contracts.ServerRequest) contracts.Outcome { return tt.out }
			says(t, must(t, s, shape.tool, ""), shape.prefix+tt.want)
			times := 1
			if strings.HasPrefix(tt.why, "the answer ") || strings.HasPrefix(tt.why, `"`) { // and it is asked again
				times = 3
				if again := h.Asked()[asked+1]; !strings.HasPrefix(again.Reason, "Asked again: ") || !strings.Contains(again.Reason, tt.why) || again.RequestID == h.Asked()[asked].RequestID {
					t.Errorf("got %+v, want another question that says why", again)
				}
			}
			if len(h.Asked()) != asked+times {
				t.Errorf("%+v: got %d questions, want %d more", tt.out, len(h.Asked())-asked, times)
			}
			if ends := len(hosttest.As[*contracts.ToolEnd](h)) - ended; (ends == times) == (tt.out.By == contracts.ResolvedByRuntime) {
				t.Errorf("%+v: got %d ends of the call, want one of each question unless the hub ends it with the run", tt.out, ends)
			}
			said := strings.TrimPrefix(statuses(h), before)
			if tt.why == "" && said != "" || !strings.Contains(said, tt.why) || tt.why != "" && !strings.Contains(said, `MCP server "one" asked for input and was told that it is cancelled: `) {
				t.Errorf("%+v: got %q said, want %q", tt.out, said, tt.why)
			}
		}
	}
}

// An answer that does not fit may be corrected.
func TestQuestionsArePutAgainUntilTheAnswerFits(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		h := newHost(t)
		said := []string{`{"action":"accept","content":{}}`, `{"action":"accept","content":{"name":"Ada"}}`}
		h.Answer = func(*contracts.ServerRequest) contracts.Outcome { return answeredBy(said[min(len(h.Asked()), 2)-1]) }
		s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, shape.revision))
		says(t, must(t, s, shape.tool, ""), shape.prefix+"accept map[name:Ada]")
		if got := statuses(h); got != "" {
			t.Errorf("got %q said, want nothing", got)
		}
	}
}

func TestPeopleAreSentToAddressesOfTheWeb(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, "2025-11-25"))
	req, done := ask(t, s, h, "mcp__one__visit")
	var args map[string]any
	if err := json.Unmarshal(req.Args, &args); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"serverName": "one", "requestId": args["requestId"], "mode": "url", "message": "Sign in", "url": "https://sign.example/in", "elicitationId": "e1",
	}
	if !reflect.DeepEqual(args, want) {
		t.Errorf("got args %v, want %v", args, want)
	}
	h.Resolve(req.RequestID, answeredBy(`{"action":"accept","content":{"left":"out"}}`))
	says(t, result(t, done), "accept map[]")
}

func TestQuestionsThatAreWithdrawnAreClosed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, "2025-11-25"))
	req, done := ask(t, s, h, "mcp__one__ask-briefly")
	resolved := h.AwaitType("server_request_resolved").(*contracts.ServerRequestResolved)
	if resolved.RequestID != req.RequestID || resolved.Resolution != contracts.VerdictCancelled || resolved.ResolvedBy != contracts.ResolvedByRuntime || resolved.Reason != withdrawn {
		t.Errorf("got %+v, want that it was withdrawn", resolved)
	}
	if res := result(t, done); !strings.HasPrefix(res.Text, "stopped waiting: ") {
		t.Errorf("got %+v, want that the server went on", res)
	}
	if end := h.AwaitType("tool_end").(*contracts.ToolEnd); end.CallID != req.CallID || end.Success {
		t.Errorf("got %+v, want the end of the question", end)
	}
}

func TestQuestionsOfCancelledCallsAreClosed(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		h := newHost(t)
		s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, shape.revision))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			h.AwaitType("server_request")
			cancel()
		}()
		if _, err := s.Call(ctx, shape.tool, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: got %v, want %v", shape, err, context.Canceled)
		}
		h.AwaitType("server_request_resolved")
		h.AwaitType("tool_end")
	}
}

func TestQuestionsOfServersThatAreGoneAreClosed(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		h := newHost(t)
		s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, shape.revision))
		ended := make(chan error, 1)
		go func() {
			_, err := s.Call(t.Context(), shape.tool, nil, nil)
			ended <- err
		}()
		h.AwaitType("server_request")
		s.links[0].session.pipe.Kill(errors.New("killed by the test"))
		resolved := h.AwaitType("server_request_resolved").(*contracts.ServerRequestResolved)
		if resolved.Resolution != contracts.VerdictCancelled || resolved.Reason != withdrawn {
			t.Errorf("%v: got %+v, want that it was withdrawn", shape, resolved)
		}
		if err := <-ended; !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%v: got %v, want %v and why", shape, err, ErrUnavailable)
		}
		says(t, must(t, s, "mcp__one__echo", `{"text":"back"}`), `{"said":"back"}`)
	}
}

func TestQuestionsOfClosedSetsAreClosed(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		h := newHost(t)
		s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, shape.revision))
		ended := make(chan error, 1)
		go func() {
			_, err := s.Call(t.Context(), shape.tool, nil, nil)
			ended <- err
		}()
		h.AwaitType("server_request")
		s.Close()
		if err := <-ended; !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v: got %v, want %v", shape, err, ErrUnavailable)
		}
		h.AwaitType("tool_end")
	}
}

func TestQuestionsStandSideBySide(t *testing.T) {
	t.Parallel()
	for _, revision := range revisions {
		h := newHost(t)
		s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, revision))
		_, done := ask(t, s, h, "mcp__one__two-at-once")
		first := h.AwaitType("server_request").(*contracts.ServerRequest)
		h.Await(func(ev contracts.Event) bool {
			req, ok := ev.(*contracts.ServerRequest)
			return ok && req.RequestID != first.RequestID
		})
		for _, req := range h.Asked() {
			action := "accept"
			if strings.Contains(string(req.Args), "A?") {
				action = "decline"
			}
			h.Resolve(req.RequestID, answeredBy(`{"action":"`+action+`"}`))
		}
		says(t, result(t, done), "decline map[]accept map[]")
	}
}

func TestOpenQuestionsExtendACall(t *testing.T) {
	for _, shape := range shapes {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t)
			s := inMemory(t, newToolServer(), shape.revision, Options{Dir: t.TempDir(), Host: testHost{h}, callTimeout: 2 * time.Second, callLimit: 3 * time.Second})
			done := make(chan *sdk.CallToolResult, 1)
			go func() { // ends with the call
				res, err := s.call(t.Context(), strings.TrimPrefix(shape.tool, "mcp__one__"), nil, func(string) {})
				if err != nil {
					t.Errorf("%v: got %v, want a result", shape, err)
				}
				done <- res
			}()
			req := h.AwaitType("server_request").(*contracts.ServerRequest)
			select {
			case res := <-done:
				t.Fatalf("%v: got %+v, want a call that waits for people", shape, res)
			case <-time.After(7 * time.Second): // longer than a call may take without them
			}
			h.Resolve(req.RequestID, answeredBy(`{"action":"decline"}`))
			want := &sdk.TextContent{Text: shape.prefix + "decline map[]"}
			if res := <-done; res == nil || !reflect.DeepEqual(res.Content, []sdk.Content{want}) {
				t.Errorf("%v: got %+v, want %q", shape, res, want.Text)
			}
		})
	}
}

func TestCallsWaitForErrandsOfPeople(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, "2025-11-25"))
	req, done := ask(t, s, h, "mcp__one__errand")
	if !strings.Contains(string(req.Args), `"url":"https://pay.example/"`) || !strings.Contains(string(req.Args), `"elicitationId":"e2"`) {
		t.Errorf("got args %s, want the address", req.Args)
	}
	h.Resolve(req.RequestID, answeredBy(`{"action":"accept"}`))
	h.AwaitType("tool_end")
	select {
	case res := <-done:
		t.Fatalf("got %+v, want a call that waits until people are back", res)
	default:
	}
	s.links[0].completed("e2") // as if the server had said so
	says(t, result(t, done), "welcome back")

	h = newHost(t)
	s = open(t, h, Options{}, testProgram(t, "one", "tools", revisionVariable, "2025-11-25"))
	req, done = ask(t, s, h, "mcp__one__errand")
	h.Resolve(req.RequestID, answeredBy(`{"action":"decline"}`))
	if res := result(t, done); !res.IsError || res.Text != "Not done: what the server asked for first was not accepted." {
		t.Errorf("got %+v, want that it was not done", res)
	}
}

func TestServersLearnTheWorkspaceAndMayNotAskTheModel(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	dir := t.TempDir()
	s := open(t, h, Options{Dir: dir}, testProgram(t, "one", "tools", revisionVariable, "2025-11-25"))
	says(t, must(t, s, "mcp__one__roots", ""), "file://"+dir)
	if res := must(t, s, "mcp__one__sample", ""); !res.IsError {
		t.Errorf("got %+v, want a failure", res)
	}
}
