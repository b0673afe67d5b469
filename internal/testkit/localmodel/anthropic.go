package localmodel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// An anthropicForm implements [wire] for Anthropic Messages.
type anthropicForm struct{ runes int }

func (anthropicForm) form() Form { return FormAnthropic }

type anthropicRequest struct {
	Model        string             `json:"model"`
	MaxTokens    *int64             `json:"max_tokens"`
	Stream       bool               `json:"stream"`
	Messages     []anthropicMessage `json:"messages"`
	CacheControl json.RawMessage    `json:"cache_control"`
	Tools        []struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	blocks  []anthropicBlock
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// parse implements [wire].
func (anthropicForm) parse(body []byte) (*conversation, *failure) {
	var req anthropicRequest
	if json.Unmarshal(body, &req) != nil {
		return nil, invalid("The request body is not valid JSON.")
	}
	c := newConversation(body)
	c.model, c.stream = cmp.Or(req.Model, defaultModel), req.Stream
	c.cached = strings.Contains(string(body), `"cache_control"`)
	for _, t := range req.Tools {
		c.tools = append(c.tools, offered{name: t.Name, schema: t.InputSchema})
	}
	if f := readAnthropic(req.Messages, c); f != nil {
		return c.look(), f
	}
	switch {
	case req.MaxTokens == nil:
		return c.look(), invalid("max_tokens: Field required")
	case len(req.Messages) == 0:
		return c.look(), invalid("messages: at least one message is required")
	}
	return c.look(), checkAnthropic(req.Messages)
}

// readAnthropic reads the content of the messages into entries of c.
func readAnthropic(messages []anthropicMessage, c *conversation) *failure {
	for i := range messages {
		m := &messages[i]
		var text string
		if json.Unmarshal(m.Content, &text) == nil {
			m.blocks = []anthropicBlock{{Type: "text", Text: &text}}
		} else if json.Unmarshal(m.Content, &m.blocks) != nil {
			return invalid("messages.%d.content: Input should be a valid list", i)
		}
		by := user
		switch m.Role {
		case "user":
		case "assistant":
			by = model
		case "system":
			continue
		default:
			return invalid("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		for _, b := range m.blocks {
			e := entry{by: by, call: b.ID}
			if b.Text != nil {
				e.text = *b.Text
			}
			if b.Type == "tool_result" {
				e.by, e.call, e.text = tool, b.ToolUseID, plainText(b.Content)
			}
			c.entries = append(c.entries, e)
		}
	}
	return nil
}

// plainText returns the text of a content that is a string or a list of parts.
func plainText(content json.RawMessage) string { return strings.Join(texts(content), "\n") }

// texts returns the texts of such a content.
func texts(content json.RawMessage) []string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []string{text}
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts) // other JSON has no text
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	return texts
}

// checkAnthropic checks a history against the rules of Anthropic Messages.
func checkAnthropic(messages []anthropicMessage) *failure {
	for i, m := range messages {
		if len(m.blocks) == 0 && i < len(messages)-1 {
			return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
		}
		for j, b := range m.blocks {
			switch {
			case b.Type == "text" && (b.Text == nil || *b.Text == ""):
				return invalid("messages: text content blocks must be non-empty")
			case b.Type == "text" && strings.TrimSpace(*b.Text) == "":
				return invalid("messages: text content blocks must contain non-whitespace text")
			case b.Type == "thinking" && b.Signature != seal(b.Thinking):
				return invalid("messages.%d.content.%d: Invalid `signature` in `thinking` block", i, j)
			}
		}
	}
	return checkAnthropicCalls(joined(messages))
}

// joined joins adjacent messages of the same role, as the service does.
func joined(messages []anthropicMessage) []anthropicMessage {
	var out []anthropicMessage
	for _, m := range messages {
		if n := len(out); n > 0 && out[n-1].Role == m.Role {
			out[n-1].blocks = append(slices.Clip(out[n-1].blocks), m.blocks...)
			continue
		}
		out = append(out, m)
	}
	return out
}

// checkAnthropicCalls checks that the message after a call begins with its
// result, and that every result has a call.
func checkAnthropicCalls(messages []anthropicMessage) *failure {
	var open []string // calls of the previous message
	for i, m := range messages {
		answered := map[string]bool{}
		leading := true
		for j, b := range m.blocks {
			if b.Type != "tool_result" {
				leading = false
				continue
			}
			if !slices.Contains(open, b.ToolUseID) {
				return invalid("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, b.ToolUseID)
			}
			answered[b.ToolUseID] = answered[b.ToolUseID] || leading
		}
		for _, id := range open {
			if !answered[id] {
				return unanswered(i-1, id)
			}
		}
		open = nil
		for _, b := range m.blocks {
			if b.Type == "tool_use" {
				open = append(open, b.ID)
			}
		}
	}
	if len(open) > 0 {
		return unanswered(len(messages)-1, open[0])
	}
	return nil
}

func unanswered(message int, id string) *failure {
	return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", message, id)
}

// frames implements [wire].
func (f anthropicForm) frames(c *conversation, r reply) []frame {
	w := anthropicWriter{runes: cmp.Or(f.runes, defaultRunes)}
	message := f.message(c, reply{}, nil)
	w.add(inStart, "message_start", "message", message)
	if r.thinking != "" {
		w.start(object{"type", "thinking", "thinking", "", "signature", ""})
		for _, piece := range pieces(r.thinking, w.runes) {
			w.delta(inThinking, object{"type", "thinking_delta", "thinking", piece})
		}
		w.delta(inStart, object{"type", "signature_delta", "signature", seal(r.thinking)})
		w.stop()
	}
	if r.text != "" {
		w.start(object{"type", "text", "text", ""})
		for _, piece := range pieces(r.text, w.runes) {
			w.delta(inText, object{"type", "text_delta", "text", piece})
		}
		w.stop()
	}
	for i, call := range r.calls {
		w.start(object{"type", "tool_use", "id", c.newID("toolu_", i), "name", call.tool.name, "input", object{}})
		w.delta(inStart, object{"type", "input_json_delta", "partial_json", ""})
		for _, piece := range pieces(call.args, w.runes) {
			w.delta(inArgs, object{"type", "input_json_delta", "partial_json", piece})
		}
		w.stop()
	}
	w.add(inEnd, "message_delta",
		"delta", object{"stop_reason", anthropicStop(r), "stop_sequence", nil}, "usage", anthropicUsage(c, r))
	w.add(inEnd, "message_stop")
	return w.frames
}

// An anthropicWriter collects the events of a reply.
type anthropicWriter struct {
	frames []frame
	runes  int
	index  int // of the current block
}

func (w *anthropicWriter) add(in section, event string, fields ...any) {
	data := encode(append(object{"type", event}, fields...))
	w.frames = append(w.frames, frame{in, event, data})
}

func (w *anthropicWriter) start(block object) {
	w.add(inStart, "content_block_start", "index", w.index, "content_block", block)
	if w.index == 0 {
		w.add(inStart, "ping")
	}
}

func (w *anthropicWriter) delta(in section, delta object) {
	w.add(in, "content_block_delta", "index", w.index, "delta", delta)
}

func (w *anthropicWriter) stop() {
	w.add(inStart, "content_block_stop", "index", w.index)
	w.index++
}

func anthropicStop(r reply) string {
	switch {
	case r.stop == stopLength:
		return "max_tokens"
	case r.stop == stopRefused:
		return "refusal"
	case len(r.calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

func anthropicUsage(c *conversation, r reply) object {
	input, output, read, written := c.usage(r)
	return object{"input_tokens", input, "cache_creation_input_tokens", written,
		"cache_read_input_tokens", read, "output_tokens", output}
}

// message returns the object at the beginning of a stream. Without streaming it
// is the whole answer.
func (anthropicForm) message(c *conversation, r reply, stop any) object {
	content := []any{}
	if r.thinking != "" {
		content = append(content, object{"type", "thinking", "thinking", r.thinking, "signature", seal(r.thinking)})
	}
	if r.text != "" {
		content = append(content, object{"type", "text", "text", r.text})
	}
	for i, call := range r.calls {
		content = append(content, object{"type", "tool_use", "id", c.newID("toolu_", i),
			"name", call.tool.name, "input", jsonOrEmpty(call.args)})
	}
	usage := append(anthropicUsage(c, r), "service_tier", "standard")
	return object{"id", c.newID("msg_", 0), "type", "message", "role", "assistant", "model", c.model,
		"content", content, "stop_reason", stop, "stop_sequence", nil, "usage", usage}
}

// jsonOrEmpty returns args as an object, or {} if args is not JSON: without
// streaming, only JSON can be sent.
func jsonOrEmpty(args string) json.RawMessage {
	if !json.Valid([]byte(args)) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(args)
}

// whole implements [wire].
func (f anthropicForm) whole(c *conversation, r reply) any {
	return f.message(c, r, anthropicStop(r))
}

// failed implements [wire].
func (anthropicForm) failed(f *failure) (int, any) {
	return f.status, anthropicError(f.kind, f.message)
}

func anthropicError(kind FaultKind, message string) object {
	name := "invalid_request_error"
	switch kind {
	case FaultRateLimited:
		name = "rate_limit_error"
	case FaultOverloaded:
		name = "overloaded_error"
	case FaultServerError, FaultHTML:
		name = "api_error"
	case FaultUnauthorized:
		name = "authentication_error"
	case "too_large":
		name = "request_too_large"
	}
	return object{"type", "error", "error", object{"type", name, "message", message},
		"request_id", "req_failed"}
}

// failedFrame implements [wire].
func (anthropicForm) failedFrame(FaultKind, int) frame {
	return frame{inEnd, "error", encode(anthropicError(FaultOverloaded, "Overloaded"))}
}
