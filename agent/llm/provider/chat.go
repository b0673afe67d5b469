package provider

import (
	"context"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// lingering is how long the end of a stream is waited for once the model has
// finished: all that is still to come is what it cost.
const lingering = 10 * time.Second

// A chat is a model behind OpenAI Chat Completions, or something compatible.
type chat struct{ *service }

func newChat(s *service) *chat { return &chat{s} }

// Stream implements [model.Model].
func (c *chat) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	w := c.newWatch(ctx, req)
	defer w.stop()
	r := &chatReply{service: c.service, say: say, taken: callIDs(req.Messages)}
	s := w.send("chat/completions", c.request(req))
	defer s.close()
	for {
		var chunk chatChunk
		if !s.next(&chunk) {
			break
		}
		if err := r.chunk(&chunk); err != nil {
			return cut(r.reply()), err
		}
		if r.stop != "" {
			w.hurry(lingering)
		}
	}
	if r.stop == "" {
		return cut(r.reply()), w.failure(ctx, s.err)
	}
	return r.finish()
}

func (c *chat) request(req *model.Request) *chatRequest {
	p := &chatRequest{Model: c.model, StreamOptions: chatStreamOptions{IncludeUsage: true}, Stream: true}
	if strings.TrimSpace(req.System) != "" {
		p.Messages = append(p.Messages, chatMessage{Role: "system", Content: req.System})
	}
	p.Messages = append(p.Messages, c.history(req.Messages)...)
	if c.official {
		p.MaxCompletionTokens = req.MaxTokens
	} else {
		p.MaxTokens = req.MaxTokens // the name that all compatible services know
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, chatTool{Type: "function",
			Function: chatFunction{Name: t.Name, Description: t.Description, Parameters: schemaOf(t)}})
	}
	if reasons(c.model) {
		p.ReasoningEffort = openaiEffort(c.model, req.Thinking)
	}
	return p
}

// history is the messages of a request. Reasoning is sent back only for the turn
// that is under way, where services that have it want it; they refuse or ignore
// that of earlier turns.
func (c *chat) history(messages []model.Message) []chatMessage {
	turn := 0 // index of the prompt under way
	for i, m := range messages {
		for _, p := range m.Parts {
			if m.Role == model.RoleUser && p.Text != nil {
				turn = i
			}
		}
	}
	var out []chatMessage
	for i, m := range messages {
		if m.Role == model.RoleUser {
			out = append(out, c.heard(m.Parts)...)
		} else if message := c.spoken(m.Parts, i > turn); message != nil {
			out = append(out, *message)
		}
	}
	return out
}

// spoken is a message of the model, or nil if there is nothing to send of it.
func (c *chat) spoken(parts []model.Part, withReasoning bool) *chatMessage {
	message := &chatMessage{Role: "assistant"}
	var text, reasoning strings.Builder
	for _, p := range parts {
		switch {
		case p.Text != nil:
			text.WriteString(*p.Text)
		case p.Thinking != nil && p.Thinking.Provider == c.name:
			reasoning.WriteString(p.Thinking.Text)
		case p.Call != nil:
			message.ToolCalls = append(message.ToolCalls, chatToolCall{Type: "function", ID: p.Call.ID,
				Function: chatCallFunction{Name: p.Call.Tool, Arguments: argsSent(p.Call.Args)}})
		}
	}
	if text.Len() == 0 && len(message.ToolCalls) == 0 {
		return nil
	}
	if text.Len() > 0 {
		message.Content = text.String()
	}
	if withReasoning {
		message.ReasoningContent = reasoning.String()
	}
	return message
}

// heard is a message of the user: the results of tools, each a message, and then
// what was said. Results take only text here, so their pictures follow as if the
// user had sent them.
func (c *chat) heard(parts []model.Part) []chatMessage {
	var out []chatMessage
	var content []chatContent
	plain := true
	show := func(i model.Image) {
		plain = false
		content = append(content, chatContent{Type: "image_url", ImageURL: &chatImage{URL: dataURL(i)}})
	}
	var text []string
	for _, p := range parts {
		switch {
		case p.Result != nil:
			out = append(out, chatMessage{Role: "tool", ToolCallID: p.Result.ID, Content: resultText(p.Result)})
			for _, i := range p.Result.Images {
				show(i)
			}
		case p.Image != nil:
			show(*p.Image)
		case p.Text != nil && *p.Text != "":
			text = append(text, *p.Text)
			content = append(content, chatContent{Type: "text", Text: *p.Text})
		}
	}
	switch {
	case len(content) == 0:
	case plain: // not every compatible service takes a list
		out = append(out, chatMessage{Role: "user", Content: strings.Join(text, "\n\n")})
	default:
		out = append(out, chatMessage{Role: "user", Content: content})
	}
	return out
}
