package acpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A stage is an attachment without a server.
type stage struct {
	*attachment
	t   *testing.T
	out *bytes.Buffer
}

func newStage(t *testing.T) *stage {
	out := &bytes.Buffer{}
	p := newPeer(context.Background(), func(line []byte) error { _, err := out.Write(line); return err }, Options{})
	a := newAttachment(p, &client.Client{}, "s")
	t.Cleanup(func() { a.stop(errDetached) })
	return &stage{a, t, out}
}

// plays passes on events.
func (s *stage) plays(events ...contracts.Event) {
	for _, e := range events {
		s.take(client.Update{Kind: client.KindEvent, Event: e})
	}
}

// shows checks what the editor was told since it was asked the last time.
func (s *stage) shows(want ...string) {
	s.t.Helper()
	var got []string
	for line := range bytes.Lines(s.out.Bytes()) {
		var m struct {
			Result *struct{ StopReason string }
			Error  *struct{ Message string }
			Params struct {
				Update struct {
					SessionUpdate, Title, Status, ToolCallID string
					Content                                  json.RawMessage
				}
			}
		}
		if err := json.Unmarshal(line, &m); err != nil {
			s.t.Fatal(err)
		}
		var block struct{ Text string }
		var list []struct{ Content struct{ Text string } }
		u := m.Params.Update
		_ = json.Unmarshal(u.Content, &block) // one of the two it is
		_ = json.Unmarshal(u.Content, &list)
		for _, c := range list {
			block.Text += c.Content.Text
		}
		switch {
		case m.Result != nil:
			got = append(got, "answer "+m.Result.StopReason)
		case m.Error != nil:
			got = append(got, "error "+m.Error.Message)
		case u.ToolCallID != "":
			got = append(got, u.SessionUpdate+" "+u.ToolCallID+" "+u.Status+" "+u.Title+block.Text)
		default:
			got = append(got, u.SessionUpdate+" "+block.Text)
		}
	}
	s.out.Reset()
	if !slices.Equal(got, want) {
		s.t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func begins(text string) []contracts.Event {
	return []contracts.Event{
		&contracts.RawAgentEvent{EventKind: "agent_start", Event: json.RawMessage(`{}`)},
		&contracts.RawAgentEvent{EventKind: "message_start", Event: json.RawMessage(`{"message":{"role":"user","content":"` + text + `"}}`)},
		&contracts.ResponseStart{ResponseID: "r"},
	}
}

var ends = &contracts.RawAgentEvent{EventKind: "agent_end", Event: json.RawMessage(`{}`)}

func call1(id string) *contracts.ToolCall {
	return &contracts.ToolCall{CallID: id, Tool: "bash", Args: json.RawMessage(`{"command":"ls"}`)}
}

// TestGapsAreMadeUpFor resets a session in the middle of a response, as when
// the journal has forgotten what was missed.
func TestGapsAreMadeUpFor(t *testing.T) {
	s := newStage(t)
	s.plays(begins("hi")...)
	s.plays(&contracts.ResponseChunk{ResponseID: "r", Content: "abc"}, call1("one"), &contracts.ToolStart{CallID: "one"},
		&contracts.ToolOutput{CallID: "one", Content: "x\n"})
	s.shows("user_message_chunk hi", "agent_message_chunk abc", "tool_call one pending ls", "tool_call_update one in_progress ")

	state := contracts.State{
		IsResponding: true, CurrentResponse: &contracts.CurrentResponse{ResponseID: "r", Text: "abcdef", Thinking: "hm"},
		TrackedTools: []contracts.PendingEntry{{CallID: "two", Tool: "bash", Args: json.RawMessage(`{"command":"pwd"}`)}},
		ActiveTools:  []contracts.ActiveTool{{CallID: "two", Tool: "bash", Output: "/w\n"}},
	}
	reset := client.Update{Kind: client.KindReset, Cursor: 90, Snapshot: &contracts.Snapshot{State: state}}
	s.take(reset)
	s.shows("tool_call_update one  ```\nx\n```\n", "tool_call_update one failed ```\nx\n[how this ended is not known any more]\n```\n",
		"agent_thought_chunk hm", "agent_message_chunk def", "tool_call two pending pwd", "tool_call_update two in_progress ```\n/w\n```\n")

	reset.Kind = client.KindSnapshot // it follows on: nothing in it is new
	s.take(reset)
	s.shows()
	s.plays(&contracts.ResponseChunk{ResponseID: "r", Content: "g"})
	s.shows("agent_message_chunk g")
}

func TestErrorsAreAnswersOrText(t *testing.T) {
	failed := &contracts.ErrorEvent{Message: "too hot", ErrorType: contracts.ErrorTransient}
	s := newStage(t)
	s.plays(begins("hi")...)
	s.plays(failed, &contracts.ResponseChunk{ResponseID: "r", Content: "again"}, ends)
	s.shows("user_message_chunk hi", "agent_message_chunk \n\nError: too hot\n\n", "agent_message_chunk again")
	s.plays(begins("hi")...)
	s.plays(failed, &contracts.ResponseEnd{ResponseID: "r"}, ends) // somebody else's
	s.shows("user_message_chunk hi", "agent_message_chunk \n\nError: too hot\n\n")

	for _, tt := range []struct {
		last contracts.Event
		want string
	}{
		{failed, "error too hot"},
		{&contracts.ErrorEvent{Message: "stopped", ErrorType: contracts.ErrorCancelled}, "answer cancelled"},
		{&contracts.Status{Message: "done"}, "answer end_turn"},
	} {
		if _, err := s.begin(json.RawMessage(`1`), "mine"); err != nil {
			t.Fatal(err)
		}
		accepted := uint64(7)
		s.turn.accepted = &accepted
		s.plays(begins("mine")...)
		s.plays(tt.last, ends)
		want := []string{tt.want}
		if tt.last.EventType() == "status" {
			want = []string{"agent_thought_chunk done\n", tt.want}
		}
		s.shows(want...)
	}
}

// TestPromptEndsWithARunThatNobodySaw accepts a prompt whose run begins and ends
// in a gap.
func TestPromptEndsWithARunThatNobodySaw(t *testing.T) {
	s := newStage(t)
	if _, err := s.begin(json.RawMessage(`1`), "mine"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.begin(json.RawMessage(`2`), "more"); err == nil {
		t.Error("got a second prompt accepted, want one at a time")
	}
	accepted := uint64(7)
	s.turn.accepted = &accepted
	idle := client.Update{Kind: client.KindReset, Cursor: 7, Snapshot: &contracts.Snapshot{}}
	s.take(idle)
	s.shows() // it may have yet to begin
	idle.Cursor = 20
	s.take(idle)
	s.shows("answer end_turn")
}

// TestLateAnswerIsNotForTheNextPrompt has the server answer a prompt after the
// editor's cancellation has ended it and the next prompt has begun.
func TestLateAnswerIsNotForTheNextPrompt(t *testing.T) {
	s := newStage(t)
	first, err := s.begin(json.RawMessage(`1`), "first")
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.finish(acp.StopReasonCancelled, nil)
	s.mu.Unlock()
	next, err := s.begin(json.RawMessage(`2`), "next")
	if err != nil {
		t.Fatal(err)
	}
	s.sent(first, contracts.Result{}, errors.New("too late"))
	s.shows("answer cancelled")
	s.sent(next, contracts.Result{Cursor: 7}, nil)
	s.plays(begins("next")...)
	s.plays(ends)
	s.shows("answer end_turn")
}
