package localmodel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// anthropicWire is Anthropic Messages.
var anthropicWire = wire{
	FormAnthropic, parseAnthropic, replyAnthropic, anthropicError,
	func(FaultKind, int) frame {
		overloaded := refusals[FaultOverloaded][0]
		return frame{inEnd, "error", encode(anthropicError(&overloaded))}
	},
}

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

func parseAnthropic(body []byte) (*conversation, *failure) {
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
	refusal := readAnthropic(req.Messages, c)
	switch {
	case refusal != nil:
	case req.MaxTokens == nil:
		refusal = invalid("max_tokens: Field required")
	case len(req.Messages) == 0:
		refusal = invalid("messages: at least one message is required")
	default:
		refusal = c.checkCalls(true, func(e entry) *failure {
			return invalid("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", e.message, e.part, e.call)
		}, func(e entry) *failure {
			return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", e.message, e.call)
		})
	}
	return c.look(), refusal
}

// readAnthropic reads the content of the messages into entries of c, and checks it
// against the rules of the service. Adjacent messages of the same role count as one,
// as in the service.
func readAnthropic(messages []anthropicMessage, c *conversation) *failure {
	message, part, last := -1, 0, ""
	for i, m := range messages {
		var text string
		var blocks []anthropicBlock
		if json.Unmarshal(m.Content, &text) == nil {
			blocks = []anthropicBlock{{Type: "text", Text: &text}}
		} else if json.Unmarshal(m.Content, &blocks) != nil {
			return invalid("messages.%d.content: Input should be a valid list", i)
		}
		by, known := map[string]speaker{"user": user, "assistant": model, "system": system}[m.Role]
		if !known {
			return invalid("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if m.Role != last {
			message, part, last = message+1, 0, m.Role
		}
		if len(blocks) == 0 && i < len(messages)-1 {
			return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
		}
		for j, b := range blocks {
			e := entry{by: by, call: b.ID, message: message, part: part}
			switch {
			case b.Type == "text" && (b.Text == nil || *b.Text == ""):
				return invalid("messages: text content blocks must be non-empty")
			case b.Type == "text" && strings.TrimSpace(*b.Text) == "":
				return invalid("messages: text content blocks must contain non-whitespace text")
			case b.Type == "thinking" && b.Signature != seal(b.Thinking):
				return invalid("messages.%d.content.%d: Invalid `signature` in `thinking` block", i, j)
			case b.Type == "tool_result":
				e.by, e.call, e.text = tool, b.ToolUseID, plainText(b.Content)
			case b.Text != nil:
				e.text = *b.Text
			}
			c.entries = append(c.entries, e)
			part++
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

func replyAnthropic(c *conversation, r reply) (frames []frame, whole object) {
	content := []any{}
	add := func(in section, event string, fields ...any) {
		frames = append(frames, frame{in, event, encode(append(object{"type", event}, fields...))})
	}
	delta := func(in section, delta object) {
		add(in, "content_block_delta", "index", len(content), "delta", delta)
	}
	// block adds a content block, whose text comes in pieces.
	block := func(in section, empty, whole object, text, kind, key string) {
		add(inStart, "content_block_start", "index", len(content), "content_block", empty)
		if len(content) == 0 {
			add(inStart, "ping")
		}
		if in == inArgs {
			delta(inStart, object{"type", kind, key, ""})
		}
		for _, piece := range c.pieces(text) {
			delta(in, object{"type", kind, key, piece})
		}
		if in == inThinking {
			delta(inStart, object{"type", "signature_delta", "signature", seal(text)})
		}
		add(inStart, "content_block_stop", "index", len(content))
		content = append(content, whole)
	}
	add(inStart, "message_start", "message", anthropicMessageOf(c, reply{}, content, nil))
	if r.thinking != "" {
		block(inThinking, object{"type", "thinking", "thinking", "", "signature", ""},
			object{"type", "thinking", "thinking", r.thinking, "signature", seal(r.thinking)}, r.thinking, "thinking_delta", "thinking")
	}
	if r.text != "" {
		block(inText, object{"type", "text", "text", ""}, object{"type", "text", "text", r.text}, r.text, "text_delta", "text")
	}
	for i, call := range r.calls {
		named := object{"type", "tool_use", "id", c.newID("toolu_", i), "name", call.tool.name, "input"}
		input := json.RawMessage(call.args)
		if !json.Valid(input) {
			input = json.RawMessage("{}") // without streaming, only JSON can be sent
		}
		block(inArgs, append(slices.Clone(named), object{}), append(slices.Clone(named), input), call.args, "input_json_delta", "partial_json")
	}
	stop := r.reason("max_tokens", "refusal", "tool_use", "end_turn")
	add(inEnd, "message_delta", "delta", object{"stop_reason", stop, "stop_sequence", nil}, "usage", anthropicUsage(c, r))
	add(inEnd, "message_stop")
	return frames, anthropicMessageOf(c, r, content, stop)
}

func anthropicUsage(c *conversation, r reply) object {
	input, output, read, written := c.usage(r)
	return object{"input_tokens", input, "cache_creation_input_tokens", written,
		"cache_read_input_tokens", read, "output_tokens", output}
}

// anthropicMessageOf returns the object at the beginning of a stream. Without
// streaming it is the whole answer.
func anthropicMessageOf(c *conversation, r reply, content []any, stop any) object {
	usage := append(anthropicUsage(c, r), "service_tier", "standard")
	return object{"id", c.newID("msg_", 0), "type", "message", "role", "assistant", "model", c.model,
		"content", content, "stop_reason", stop, "stop_sequence", nil, "usage", usage}
}

func anthropicError(f *failure) object {
	return object{"type", "error", "error", object{"type", cmp.Or(f.typ, "invalid_request_error"), "message", f.message},
		"request_id", "req_failed"}
}
