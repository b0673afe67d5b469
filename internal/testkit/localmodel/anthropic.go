package localmodel

import (
	"cmp"
	"encoding/json"
	"strings"
)

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// readAnthropic reads a request in the form of Anthropic Messages. Adjacent messages
// of the same role count as one, as in the service.
func readAnthropic(c *conversation) *failure {
	message, last := -1, ""
	for i, m := range c.Messages {
		if m.Role == "system" { // Claude Code sends such messages between the others
			continue
		}
		var text string
		var blocks []anthropicBlock
		if json.Unmarshal(m.Content, &text) == nil {
			blocks = []anthropicBlock{{Type: "text", Text: &text}}
		} else if json.Unmarshal(m.Content, &blocks) != nil {
			return invalid("messages.%d.content: Input should be a valid list", i)
		}
		by, known := map[string]speaker{"user": user, "assistant": model}[m.Role]
		if !known {
			return invalid("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if m.Role != last {
			message, last = message+1, m.Role
		}
		if len(blocks) == 0 && i < len(c.Messages)-1 {
			return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
		}
		for j, b := range blocks {
			e := entry{by: by, call: b.ID, message: message}
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
		}
	}
	switch {
	case c.MaxTokens == nil:
		return invalid("max_tokens: Field required")
	case len(c.Messages) == 0:
		return invalid("messages: at least one message is required")
	}
	return c.checkCalls(true, "messages: unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
		"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
		"messages: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
			"Each `tool_use` block must have a corresponding `tool_result` block in the next message.")
}

func replyAnthropic(c *conversation, r reply) (frames []frame) {
	add := func(in section, event string, fields object) {
		fields["type"] = event
		frames = append(frames, frame{in, event, encode(fields)})
	}
	index := 0
	// block adds a content block, whose text comes in pieces.
	block := func(in section, empty object, text, kind, key string) {
		delta := func(in section, delta object) {
			add(in, "content_block_delta", object{"index": index, "delta": delta})
		}
		add(inStart, "content_block_start", object{"index": index, "content_block": empty})
		if index == 0 {
			add(inStart, "ping", object{})
		}
		for _, piece := range c.pieces(text) {
			delta(in, object{"type": kind, key: piece})
		}
		if in == inThinking {
			delta(inStart, object{"type": "signature_delta", "signature": seal(text)})
		}
		add(inStart, "content_block_stop", object{"index": index})
		index++
	}
	add(inStart, "message_start", object{"message": object{
		"id": c.newID("msg_", 0), "type": "message", "role": "assistant", "model": c.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": anthropicUsage(c, reply{}),
	}})
	if r.thinking != "" {
		block(inThinking, object{"type": "thinking", "thinking": "", "signature": ""}, r.thinking, "thinking_delta", "thinking")
	}
	if r.text != "" {
		block(inText, object{"type": "text", "text": ""}, r.text, "text_delta", "text")
	}
	for i, call := range r.calls {
		block(inArgs, object{"type": "tool_use", "id": c.newID("toolu_", i), "name": call.tool, "input": object{}},
			call.args, "input_json_delta", "partial_json")
	}
	stop := r.reason("max_tokens", "refusal", "tool_use", "end_turn")
	add(inEnd, "message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": anthropicUsage(c, r)})
	add(inEnd, "message_stop", object{})
	return frames
}

func anthropicUsage(c *conversation, r reply) object {
	input, output, read, written := c.usage(r)
	return object{"input_tokens": input, "cache_creation_input_tokens": written,
		"cache_read_input_tokens": read, "output_tokens": output}
}

func anthropicError(f failure) object {
	return object{"type": "error", "error": object{"type": cmp.Or(f.typ, "invalid_request_error"), "message": f.message}}
}

func anthropicFrame(FaultKind, int) frame {
	return frame{inEnd, "error", encode(anthropicError(refusals[FaultOverloaded][0]))}
}
