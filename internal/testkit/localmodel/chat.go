package localmodel

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// chatWire is OpenAI Chat Completions.
var chatWire = wire{
	FormChat, parseChat, replyChat, openaiError,
	func(FaultKind, int) frame {
		failed := refusals[FaultServerError][1]
		return frame{inEnd, "", encode(openaiError(&failed))}
	},
}

type chatRequest struct {
	Model         string        `json:"model"`
	Stream        bool          `json:"stream"`
	Messages      []chatMessage `json:"messages"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
}

func parseChat(body []byte) (*conversation, *failure) {
	var req chatRequest
	if json.Unmarshal(body, &req) != nil {
		return nil, invalid("We could not parse the JSON body of your request.")
	}
	c := newConversation(body)
	c.model, c.stream = cmp.Or(req.Model, defaultModel), req.Stream
	c.withUsage, c.cached = req.StreamOptions.IncludeUsage, true
	for _, t := range req.Tools {
		c.tools = append(c.tools, offered{name: t.Function.Name, schema: t.Function.Parameters})
	}
	for i, m := range req.Messages {
		e := entry{text: plainText(m.Content), message: i}
		switch m.Role {
		case "user":
			for _, part := range texts(m.Content) {
				c.heard(part, i)
			}
			continue
		case "tool", "function":
			e.by, e.call = tool, m.ToolCallID
		case "assistant":
			e.by = model
		case "system", "developer":
			e.by = system
		default:
			return c.look(), invalid("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", abridge.Bytes(m.Role, 40))
		}
		c.entries = append(c.entries, e)
		for _, call := range m.ToolCalls {
			c.entries = append(c.entries, entry{by: model, call: call.ID, message: i})
		}
	}
	if len(req.Messages) == 0 {
		return c.look(), invalid("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	return c.look(), c.checkCalls(true, func(e entry) *failure {
		return invalid("Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'. (messages[%d])", e.message)
	}, func(e entry) *failure {
		return invalid("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", e.call)
	})
}

// heard adds the prompts in a text of the user. Agents join unanswered prompts
// with blank lines, because some services do not accept a list of parts.
func (c *conversation) heard(text string, message int) {
	prompts := []string{text}
	if !isTagged(text) {
		prompts = strings.Split(text, "\n\n")
	}
	for _, prompt := range prompts {
		c.entries = append(c.entries, entry{by: user, text: prompt, message: message})
	}
}

func replyChat(c *conversation, r reply) (frames []frame, whole object) {
	id, created := c.newID("chatcmpl-", 0), unixNow()
	add := func(in section, choices []any, usage any) {
		chunk := object{"id", id, "object", "chat.completion.chunk", "created", created,
			"model", c.model, "service_tier", "default", "system_fingerprint", nil, "choices", choices}
		if c.withUsage {
			chunk = append(chunk, "usage", usage)
		}
		frames = append(frames, frame{in, "", encode(chunk)})
	}
	delta := func(in section, delta object, stop any) {
		add(in, []any{object{"index", 0, "delta", delta, "logprobs", nil, "finish_reason", stop}}, nil)
	}
	message := object{"role", "assistant", "content", nil, "refusal", nil, "annotations", []any{}}
	said := "content"
	switch {
	case r.stop == stopRefused:
		said, message[5] = "refusal", r.text
	case r.text != "" || len(r.calls) == 0:
		message[3] = r.text
	}
	delta(inStart, object{"role", "assistant", "content", "", "refusal", nil}, nil)
	if r.thinking != "" {
		message = append(message, "reasoning_content", r.thinking)
	}
	for _, piece := range c.pieces(r.thinking) {
		delta(inThinking, object{"reasoning_content", piece}, nil)
	}
	for _, piece := range c.pieces(r.text) {
		delta(inText, object{said, piece}, nil)
	}
	var calls []any
	for i, call := range r.calls {
		made := func(args string) object {
			return object{"id", c.newID("call_", i), "type", "function", "function", object{"name", call.tool.name, "arguments", args}}
		}
		calls = append(calls, made(call.args))
		delta(inStart, object{"tool_calls", []any{append(object{"index", i}, made("")...)}}, nil)
		for _, piece := range c.pieces(call.args) {
			delta(inArgs, object{"tool_calls", []any{object{"index", i, "function", object{"arguments", piece}}}}, nil)
		}
	}
	if calls != nil {
		message = append(message, "tool_calls", calls)
	}
	stop := r.reason("length", "content_filter", "tool_calls", "stop")
	delta(inEnd, object{}, stop)
	if c.withUsage {
		add(inEnd, []any{}, chatUsage(c, r))
	}
	return append(frames, frame{inEnd, "", []byte("[DONE]")}),
		object{"id", id, "object", "chat.completion", "created", created, "model", c.model,
			"choices", []any{object{"index", 0, "message", message, "logprobs", nil, "finish_reason", stop}},
			"usage", chatUsage(c, r), "service_tier", "default", "system_fingerprint", nil}
}

func chatUsage(c *conversation, r reply) object {
	input, output, read, written := c.usage(r)
	input += read + written // this form includes cached tokens in the input
	return object{"prompt_tokens", input, "completion_tokens", output, "total_tokens", input + output,
		"prompt_tokens_details", object{"cached_tokens", read, "cache_write_tokens", written, "audio_tokens", 0},
		"completion_tokens_details", object{"reasoning_tokens", len(r.thinking) / 4, "audio_tokens", 0,
			"accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0}}
}

// openaiError returns the body of an error in OpenAI's forms.
func openaiError(f *failure) object {
	return object{"error", object{"message", f.message, "type", cmp.Or(f.typ, "invalid_request_error"), "param", orNull(f.param), "code", orNull(f.code)}}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
