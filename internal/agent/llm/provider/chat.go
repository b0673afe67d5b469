package provider

import (
	"cmp"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

func (s *service) chatRequest(req *model.Request) object {
	var messages []object
	if strings.TrimSpace(req.System) != "" {
		messages = append(messages, object{"role": "system", "content": req.System})
	}
	var tools []object
	for _, f := range functions(req.Tools, "parameters") {
		tools = append(tools, object{"type": "function", "function": f})
	}
	limit, effort := "max_tokens", "" // every compatible service knows this name
	if s.official {
		limit = "max_completion_tokens"
	}
	if reasons(s.Model) {
		effort = openaiEffort(s.Model, req.Thinking)
	}
	return given(object{
		"model": s.Model, "messages": append(messages, s.chatMessages(req.Messages)...), limit: req.MaxTokens,
		"tools": tools, "reasoning_effort": effort, "stream": true, "stream_options": object{"include_usage": true},
	})
}

// chatMessages returns the messages of a request. Reasoning goes back only within
// the current turn, where services that have it want it. They refuse or ignore
// reasoning of earlier turns.
func (s *service) chatMessages(messages []model.Message) []object {
	prompt := 0 // index of the current prompt
	for i, m := range messages {
		for _, p := range m.Parts {
			if m.Role == model.RoleUser && p.Text != nil {
				prompt = i
			}
		}
	}
	var out []object
	for i, m := range messages {
		if m.Role == model.RoleUser {
			out = append(out, chatUser(m.Parts)...)
		} else if message := s.chatAssistant(m.Parts, i > prompt); len(message) > 0 {
			out = append(out, message)
		}
	}
	return out
}

// chatAssistant returns a message of the model, nil if there is nothing to send.
func (s *service) chatAssistant(parts []model.Part, withReasoning bool) object {
	var text, reasoning strings.Builder
	var calls []object
	for _, p := range parts {
		switch {
		case p.Text != nil:
			text.WriteString(*p.Text)
		case p.Thinking != nil && p.Thinking.Provider == s.Provider:
			reasoning.WriteString(p.Thinking.Text)
		case p.Call != nil:
			calls = append(calls, object{"type": "function", "id": p.Call.ID,
				"function": object{"name": p.Call.Tool, "arguments": string(p.Call.Args)}})
		}
	}
	if text.Len() == 0 && len(calls) == 0 {
		return nil
	}
	if !withReasoning {
		reasoning.Reset()
	}
	return given(object{"role": "assistant", "content": text.String(), "tool_calls": calls, "reasoning_content": reasoning.String()})
}

// chatUser returns a message of the user: one message for the result of each call,
// then the rest. A result takes only text, so its images follow as the user's.
func chatUser(parts []model.Part) []object {
	var images []object
	out, rest := chatForm.user(parts, func(r *model.CallResult) object {
		images = append(images, chatForm.content("", r.Images...)...)
		return object{"role": "tool", "tool_call_id": r.ID, "content": resultText(r)}
	})
	content := append(images, rest...)
	var texts []string
	for _, c := range content {
		if text, ok := c["text"].(string); ok {
			texts = append(texts, text)
		}
	}
	switch {
	case len(content) == 0:
	case len(content) == len(texts): // not every compatible service takes a list
		out = append(out, object{"role": "user", "content": strings.Join(texts, "\n\n")})
	default:
		out = append(out, object{"role": "user", "content": content})
	}
	return out
}

var chatForm = form{"text", func(i model.Image) object {
	return object{"type": "image_url", "image_url": object{"url": dataURL(i)}}
}}

// A chatEvent is a piece of a completion. Reasoning has one of two names.
type chatEvent struct {
	ID    string `json:"id"`
	Model string `json:"model"`
	Usage *struct {
		Prompt     int64        `json:"prompt_tokens"`
		Details    cacheDetails `json:"prompt_tokens_details"`
		Completion int64        `json:"completion_tokens"`
	} `json:"usage"`
	Choices []struct {
		Index int64 `json:"index"`
		Delta struct {
			Content          string `json:"content"`
			Refusal          string `json:"refusal"`
			ReasoningContent string `json:"reasoning_content"`
			Reasoning        string `json:"reasoning"`
			ToolCalls        []struct {
				Index    int64  `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

// Chat Completions number only calls. Reasoning and text have indexes below theirs.
const (
	chatReasoning = -2
	chatText      = -1
)

func (e *chatEvent) apply(r *reply) error {
	r.named, r.id = cmp.Or(e.Model, r.named), cmp.Or(e.ID, r.id)
	if u := e.Usage; u != nil {
		r.usage = u.Details.usage(u.Prompt, u.Completion)
	}
	reasoning, text := r.at(chatReasoning, thinkingBlock), r.at(chatText, textBlock)
	for _, choice := range e.Choices {
		if choice.Index != 0 {
			continue // the request asks for one
		}
		d := &choice.Delta
		if err := r.add(reasoning, cmp.Or(d.ReasoningContent, d.Reasoning)); err != nil {
			return err
		}
		if d.Refusal != "" {
			r.stop = model.StopRefused
		}
		for _, c := range d.ToolCalls {
			b := r.chatCall(c.Index, c.ID)
			b.tool += c.Function.Name
			b.text.WriteString(c.Function.Arguments)
			b.ended = b.text.Len() > 0 && b.tool != "" // arguments may follow a name alone
		}
		if err := r.add(text, d.Content+d.Refusal); err != nil {
			return err
		}
		if choice.FinishReason != "" {
			r.complete = true
			r.endCalls()
		}
		switch {
		case choice.FinishReason == "content_filter":
			r.stop = model.StopRefused
		case choice.FinishReason == "length" && r.stop == "":
			r.stop = model.StopLength
		}
	}
	return nil
}

// chatCall returns the call that a piece belongs to. Some services number all their
// calls 0; there a new id begins another call.
func (r *reply) chatCall(index int64, id string) *block {
	b := r.find(index)
	if b == nil || id != "" && b.id != "" && b.id != id {
		r.endCalls()
		b = &block{index: index, kind: callBlock}
		r.blocks = append(r.blocks, b)
	}
	b.id = cmp.Or(b.id, id)
	return b
}

func (r *reply) endCalls() {
	for _, b := range r.blocks {
		b.ended = b.tool != ""
	}
}
