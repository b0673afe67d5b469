package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

const spoken = "think Häufig 思考 👩‍🚀 denkt\nsay Grüße, 世界 👋🏽\ncall bash {\"command\":\"echo 'é'\"}\ncall other {}"

func TestReplyIsWhatWasSaid(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			m := open(t, provider, local(localmodel.Options{}))
			h := mustStream(t, m, prompt(spoken))
			const wantText, wantThinking = "Grüße, 世界 👋🏽", "Häufig 思考 👩‍🚀 denkt"
			if h.text != wantText || text(h.Message) != wantText || h.deltas < 4 {
				t.Errorf("got %q in %d pieces and %q at the end, want %q", h.text, h.deltas, text(h.Message), wantText)
			}
			if h.thinking != wantThinking || thinking(h.Message) != wantThinking {
				t.Errorf("got thinking %q and %q at the end, want %q", h.thinking, thinking(h.Message), wantThinking)
			}
			got := calls(h.Message)
			if len(got) != 2 || got[0].Tool != "bash" || string(got[0].Args) != `{"command":"echo 'é'"}` ||
				got[1].Tool != "other" || string(got[1].Args) != "{}" || got[0].ID == "" || got[0].ID == got[1].ID {
				t.Errorf("got calls %+v, want bash and other with ids of their own", got)
			}
			if h.Stop != model.StopCalls || h.Model != "local" || h.Message.Role != model.RoleAssistant {
				t.Errorf("got stop %q of model %q from %q, want calls of local from the assistant", h.Stop, h.Model, h.Message.Role)
			}
			if u := h.Usage; u.Input <= 0 || u.Output <= 0 {
				t.Errorf("got usage %+v, want tokens", u)
			}
		})
	}
}

func TestStopsAreTold(t *testing.T) {
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{}))
		for prompted, want := range map[string]model.Stop{
			"say a": model.StopDone, "call b": model.StopCalls, "say a\nstop length": model.StopLength,
			"say no\nstop refused": model.StopRefused, "say a\nfault empty": model.StopDone,
		} {
			h := mustStream(t, m, prompt(prompted))
			if h.Stop != want {
				t.Errorf("%s: got %q for %q, want %q", provider, h.Stop, prompted, want)
			}
			if empty := strings.Contains(prompted, "empty"); (len(h.Message.Parts) == 0) != empty {
				t.Errorf("%s: got %+v for %q, want it empty: %v", provider, h.Message.Parts, prompted, empty)
			}
		}
	}
}

// What a model says goes back to it in such a form that it takes it: thinking with
// its proof, calls with their results, pictures. The local model refuses histories
// that the services would.
func TestHistoryIsTakenBack(t *testing.T) {
	script := []localmodel.Case{{Turns: []localmodel.Turn{
		{Thinking: "first <thought> & \"more\"", Text: "I look.", Calls: []localmodel.Call{{Tool: "read", Args: json.RawMessage(`{"path":"a"}`)}, {Tool: "read"}}},
		{Thinking: "second", Calls: []localmodel.Call{{Tool: "read"}}},
		{Text: "It says {{result}}."},
	}}}
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			server := local(localmodel.Options{Script: script})
			m := open(t, provider, server)
			req := prompt("read it")
			req.System, req.Thinking = "You read.", model.EffortHigh
			req.Tools = []model.Tool{{Name: "read", Description: "reads", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}}
			req.Messages[0].Parts = append(req.Messages[0].Parts, model.Part{Image: &model.Image{MimeType: "image/png", Data: []byte("pixels")}})
			for i := range 3 {
				h := mustStream(t, m, req)
				if i == 2 {
					if h.text != "It says result 1 0." {
						t.Errorf("got %q, want the result said", h.text)
					}
					break
				}
				// As a journal would have it.
				kept, err := json.Marshal(h.Message)
				if err != nil {
					t.Fatal(err)
				}
				var message model.Message
				if err := json.Unmarshal(kept, &message); err != nil {
					t.Fatal(err)
				}
				results := model.Message{Role: model.RoleUser}
				for n, c := range calls(message) {
					results.Parts = append(results.Parts, model.Part{Result: &model.CallResult{ID: c.ID, Text: fmt.Sprintf("result %d %d", i, n),
						IsError: n == 1, Images: []model.Image{{MimeType: "image/png", Data: []byte("more")}}[:n]}})
				}
				req.Messages = append(req.Messages, message, results)
			}
			body := string(server.Requests()[2].Body)
			for _, want := range []string{"You read.", "cGl4ZWxz", "bW9yZQ==", "reads", "second"} {
				if !strings.Contains(body, want) {
					t.Errorf("got %s, want %s in it", body, want)
				}
			}
		})
	}
}

// Thinking of another provider, of a broken stream, or that nothing came of is
// not sent.
func TestForeignThinkingStaysHere(t *testing.T) {
	for _, provider := range providers {
		for _, foreign := range []model.Thinking{
			{Text: "theirs", Provider: "other", Opaque: json.RawMessage(`{"signature":"x","type":"reasoning"}`)},
			{Text: "theirs", Provider: Anthropic},
			{Text: "theirs", Provider: OpenAI},
		} {
			server := local(localmodel.Options{})
			m := open(t, provider, server)
			req := prompt("hello")
			reply := said(model.RoleAssistant, "hi")
			reply.Parts = append([]model.Part{{Thinking: &foreign}}, reply.Parts...)
			req.Messages = append(req.Messages, reply, said(model.RoleUser, "again"))
			mustStream(t, m, req)
			if body := string(server.Requests()[0].Body); strings.Contains(body, "theirs") || strings.Contains(body, `"x"`) {
				t.Errorf("%s: got %s, want none of the thinking of %q", provider, body, foreign.Provider)
			}
		}
	}
	server := local(localmodel.Options{})
	m := open(t, OpenAI, server)
	req := prompt("hello")
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Parts: []model.Part{
		{Thinking: &model.Thinking{Provider: OpenAI, Opaque: json.RawMessage(`{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"}`)}}}},
		said(model.RoleUser, "again"))
	mustStream(t, m, req) // the service refuses reasoning that nothing follows
}

func TestEmptyPiecesAreNotSent(t *testing.T) {
	for _, provider := range providers {
		server := local(localmodel.Options{})
		m := open(t, provider, server)
		req := &model.Request{Messages: []model.Message{
			said(model.RoleUser, "hello"), {Role: model.RoleAssistant}, said(model.RoleAssistant, ""), said(model.RoleUser, ""),
			{Role: model.RoleAssistant, Parts: []model.Part{{Call: &model.Call{ID: "a_b-c", Tool: "x", Args: json.RawMessage(`{}`)}}}},
			{Role: model.RoleUser, Parts: []model.Part{{Result: &model.CallResult{ID: "a_b-c"}}}},
		}}
		h := mustStream(t, m, req)
		if h.text != "The tool answered: " && h.text != "The tool answered:" {
			t.Errorf("%s: got %q, want a reply to the result", provider, h.text)
		}
	}
}

// Results that were interrupted by a prompt come before it.
func TestResultsComeBeforeWhatWasSaid(t *testing.T) {
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{}))
		req := prompt("call ls")
		h := mustStream(t, m, req)
		answer := said(model.RoleUser, "say instead")
		answer.Parts = append(answer.Parts, model.Part{Result: &model.CallResult{ID: calls(h.Message)[0].ID, Text: "interrupted"}})
		req.Messages = append(req.Messages, h.Message, answer)
		if h := mustStream(t, m, req); h.text != "instead" {
			t.Errorf("%s: got %q, want instead", provider, h.text)
		}
	}
}

func TestListenerEndsTheStream(t *testing.T) {
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{}))
		enough := errors.New("enough")
		var heard string
		reply, err := m.Stream(t.Context(), prompt("say one two three four five\ncall x"), func(d model.Delta) error {
			heard += d.Text
			return enough
		})
		if !errors.Is(err, enough) || text(reply.Message) != heard || heard == "" || len(calls(reply.Message)) > 0 {
			t.Errorf("%s: got %v with %+v after %q, want what was heard and the listener's error", provider, err, reply.Message, heard)
		}
	}
}

func TestContextEndsTheStream(t *testing.T) {
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{}))
		why := errors.New("interrupted by the controller")
		ctx, stop := context.WithCancelCause(t.Context())
		reply, err := m.Stream(ctx, prompt("say one two three four five\nfault hang"), func(model.Delta) error {
			stop(why)
			return nil
		})
		if !errors.Is(err, why) || text(reply.Message) == "" {
			t.Errorf("%s: got %v with %+v, want the cause and what was said before", provider, err, reply.Message)
		}
		if _, err := stream(ctx, m, prompt("say a")); !errors.Is(err, why) {
			t.Errorf("%s: got %v for a call that was over before it began, want the cause", provider, err)
		}
	}
}

func TestHistoryIsCached(t *testing.T) {
	for _, provider := range providers {
		m := open(t, provider, local(localmodel.Options{}))
		req := prompt("say hello")
		req.System = strings.Repeat("Be kind. ", 200)
		first := mustStream(t, m, req)
		req.Messages = append(req.Messages, first.Message, said(model.RoleUser, "say again"))
		second := mustStream(t, m, req)
		if first.Usage.CacheWrite == 0 || first.Usage.CacheRead != 0 || second.Usage.CacheRead == 0 {
			t.Errorf("%s: got usage %+v and then %+v, want a cache written and then read", provider, first.Usage, second.Usage)
		}
		if second.Usage.CacheRead < second.Usage.Input {
			t.Errorf("%s: got usage %+v, want most of it read from the cache and not counted twice", provider, second.Usage)
		}
	}
}

func TestAnthropicIsToldWhatToCache(t *testing.T) {
	server := local(localmodel.Options{})
	m := open(t, Anthropic, server)
	req := prompt("one")
	req.System = "system"
	req.Tools = []model.Tool{{Name: "a"}, {Name: "b"}}
	req.Messages = append(req.Messages, said(model.RoleAssistant, "two"), said(model.RoleUser, "three"),
		said(model.RoleAssistant, "four"), said(model.RoleUser, "five"))
	mustStream(t, m, req)
	var body struct {
		System, Tools []map[string]any
		Messages      []struct{ Content []map[string]any }
	}
	if err := json.Unmarshal(server.Requests()[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	marked := func(block map[string]any) bool { return block["cache_control"] != nil }
	var got []bool
	for _, m := range body.Messages {
		got = append(got, marked(m.Content[0]))
	}
	if want := "[false false true false true]"; fmt.Sprint(got) != want || !marked(body.System[0]) || marked(body.Tools[0]) || !marked(body.Tools[1]) {
		t.Errorf("got marks %v, %v and %v, want those of the system, the last tool and messages %s", got, body.System, body.Tools, want)
	}
}
