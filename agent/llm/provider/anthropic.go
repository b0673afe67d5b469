package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// maxUserID bounds the id of a user that Anthropic is told.
const maxUserID = 256

// ephemeral marks the end of what the service caches.
var ephemeral = &anthropicCache{Type: "ephemeral"}

// An anthropic is a model behind Anthropic Messages.
type anthropic struct {
	*service
	takes claude
}

func newAnthropic(s *service) *anthropic { return &anthropic{service: s, takes: claudeOf(s.model)} }

// Stream implements [model.Model].
func (a *anthropic) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	w := a.newWatch(ctx, req)
	defer w.stop()
	r := &anthropicReply{service: a.service, say: say}
	s := w.send("v1/messages", a.request(req))
	defer s.close()
	for !r.done {
		var e anthropicEvent
		if !s.next(&e) {
			return cut(r.reply()), w.failure(ctx, s.err)
		}
		if err := r.event(&e); err != nil {
			return cut(r.reply()), err
		}
	}
	return r.finish()
}

// request is a request in the form of the service. The tools, the system prompt
// and the last two messages of the user end what is cached: those before were
// there in the call before, and are read from the cache.
func (a *anthropic) request(req *model.Request) *anthropicRequest {
	p := &anthropicRequest{Model: a.model, MaxTokens: req.MaxTokens, Stream: true}
	if p.MaxTokens == 0 {
		p.MaxTokens = a.takes.length
	}
	if strings.TrimSpace(req.System) != "" {
		p.System = []anthropicContent{{Type: "text", Text: req.System, CacheControl: ephemeral}}
	}
	for i, t := range req.Tools {
		own := anthropicTool{Name: t.Name, Description: t.Description, InputSchema: schemaOf(t)}
		if i == len(req.Tools)-1 {
			own.CacheControl = ephemeral
		}
		p.Tools = append(p.Tools, own)
	}
	p.Messages = a.history(req.Messages)
	if id := req.Metadata["user_id"]; id != "" && len(id) <= maxUserID && !strings.ContainsAny(id, "@ ") {
		p.Metadata = &anthropicMetadata{UserID: id} // an opaque id, never a name or an address
	}
	a.think(p, req)
	return p
}

// think sets how much the model thinks.
func (a *anthropic) think(p *anthropicRequest, req *model.Request) {
	if req.Thinking == "" || req.Thinking == model.EffortOff {
		return
	}
	switch {
	case a.takes.adaptive:
		p.Thinking = &anthropicThinking{Type: "adaptive", Display: "summarized"}
		p.OutputConfig = &anthropicOutput{Effort: a.takes.effort(req.Thinking)}
	case a.takes.budget && !a.callsWithoutThinking(req.Messages):
		if budget := a.takes.tokens(req.Thinking, p.MaxTokens); budget > 0 {
			p.Thinking = &anthropicThinking{Type: "enabled", BudgetTokens: budget}
		}
	}
}

// callsWithoutThinking reports whether the last message of the model made calls
// without having thought here. Models with a budget refuse to think in the middle
// of such a turn.
func (a *anthropic) callsWithoutThinking(messages []model.Message) bool {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role != model.RoleAssistant {
			continue
		}
		calls := false
		for _, p := range messages[i].Parts {
			if a.ours(p.Thinking) {
				return false
			}
			calls = calls || p.Call != nil
		}
		return calls
	}
	return false
}

// history is the messages of a request. Messages without anything to send are
// left out, as the service takes none that are empty.
func (a *anthropic) history(messages []model.Message) []anthropicMessage {
	var out []anthropicMessage
	for _, m := range messages {
		if m.Role == model.RoleAssistant {
			if blocks := a.spoken(m.Parts); len(blocks) > 0 {
				out = append(out, anthropicMessage{Role: "assistant", Content: blocks})
			}
		} else if blocks := asked(m.Parts); len(blocks) > 0 {
			out = append(out, anthropicMessage{Role: "user", Content: blocks})
		}
	}
	marks := 2
	for i := len(out) - 1; i >= 0 && marks > 0; i-- {
		if out[i].Role == "user" {
			out[i].Content[len(out[i].Content)-1].CacheControl = ephemeral
			marks--
		}
	}
	return out
}

// spoken is a message of the model. The service takes none that ends in thinking,
// of which nothing came.
func (a *anthropic) spoken(parts []model.Part) []anthropicContent {
	var blocks []anthropicContent
	for _, p := range parts {
		switch {
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			blocks = append(blocks, anthropicContent{Type: "text", Text: *p.Text})
		case a.ours(p.Thinking):
			var kept keptThinking
			if json.Unmarshal(p.Thinking.Opaque, &kept) != nil {
				continue
			}
			if kept.Data != "" {
				blocks = append(blocks, anthropicContent{Type: "redacted_thinking", Data: kept.Data})
			} else if kept.Signature != "" {
				blocks = append(blocks, anthropicContent{Type: "thinking", Signature: kept.Signature, Thinking: &p.Thinking.Text})
			}
		case p.Call != nil:
			blocks = append(blocks, anthropicContent{Type: "tool_use", ID: callID(p.Call.ID),
				Name: p.Call.Tool, Input: json.RawMessage(argsSent(p.Call.Args))})
		}
	}
	for n := len(blocks); n > 0 && (blocks[n-1].Type == "thinking" || blocks[n-1].Type == "redacted_thinking"); n-- {
		blocks = blocks[:n-1]
	}
	return blocks
}

// keptThinking is what is kept of thinking beside its text.
type keptThinking struct {
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"` // of thinking that is not shown
}

// asked is a message of the user. The service wants the results of tools first.
func asked(parts []model.Part) []anthropicContent {
	var results, rest []anthropicContent
	for _, p := range parts {
		switch {
		case p.Result != nil:
			results = append(results, toolResult(p.Result))
		case p.Image != nil:
			rest = append(rest, imageBlock(*p.Image))
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			rest = append(rest, anthropicContent{Type: "text", Text: *p.Text})
		}
	}
	return append(results, rest...)
}

// toolResult is the result of a call. One that is said to be an error may have
// nothing but text; with images the text says it.
func toolResult(r *model.CallResult) anthropicContent {
	block := anthropicContent{Type: "tool_result", ToolUseID: callID(r.ID)}
	text := r.Text
	if r.IsError && len(r.Images) == 0 {
		block.IsError = true
	} else {
		text = resultText(r)
	}
	if strings.TrimSpace(text) != "" {
		block.Content = append(block.Content, anthropicContent{Type: "text", Text: text})
	}
	for _, i := range r.Images {
		block.Content = append(block.Content, imageBlock(i))
	}
	return block
}

func imageBlock(i model.Image) anthropicContent {
	return anthropicContent{Type: "image", Source: &anthropicSource{
		Type: "base64", MediaType: i.MimeType, Data: base64.StdEncoding.EncodeToString(i.Data)}}
}

// callID is an id as this service takes it: other providers' may have more
// characters.
func callID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}
