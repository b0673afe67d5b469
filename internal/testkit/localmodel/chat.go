package localmodel

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// A chatForm implements [wire] for OpenAI Chat Completions.
type chatForm struct{ runes int }

func (chatForm) form() Form { return FormChat }

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

// parse implements [wire].
func (chatForm) parse(body []byte) (*conversation, *failure) {
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
	for _, m := range req.Messages {
		text := plainText(m.Content)
		switch m.Role {
		case "user":
			for _, part := range texts(m.Content) {
				c.heard(part)
			}
		case "tool", "function":
			c.entries = append(c.entries, entry{by: tool, text: text, call: m.ToolCallID})
		case "assistant":
			c.entries = append(c.entries, entry{by: model, text: text})
			for _, call := range m.ToolCalls {
				c.entries = append(c.entries, entry{by: model, call: call.ID})
			}
		case "system", "developer":
		default:
			return c.look(), invalid("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", abridge.Bytes(m.Role, 40))
		}
	}
	if len(req.Messages) == 0 {
		return c.look(), invalid("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	return c.look(), checkChat(req.Messages)
}

// heard adds the prompts in a text of the user. Agents join unanswered prompts
// with blank lines, because some services do not accept a list of parts.
func (c *conversation) heard(text string) {
	prompts := []string{text}
	if !isTagged(text) {
		prompts = strings.Split(text, "\n\n")
	}
	for _, prompt := range prompts {
		c.entries = append(c.entries, entry{by: user, text: prompt})
	}
}

// checkChat checks that results follow their calls directly, and that every
// result has a call.
func checkChat(messages []chatMessage) *failure {
	open := map[string]bool{}
	for i, m := range messages {
		if m.Role == "tool" {
			if !open[m.ToolCallID] {
				return invalid("Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'. (messages[%d])", i)
			}
			delete(open, m.ToolCallID)
			continue
		}
		if len(open) > 0 {
			break
		}
		for _, call := range m.ToolCalls {
			open[call.ID] = true
		}
	}
	for id := range open {
		return invalid("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", id)
	}
	return nil
}

// frames implements [wire].
func (f chatForm) frames(c *conversation, r reply) []frame {
	w := chatWriter{c: c, created: unixNow()}
	runes := cmp.Or(f.runes, defaultRunes)
	w.delta(inStart, object{"role", "assistant", "content", "", "refusal", nil}, nil)
	for _, piece := range pieces(r.thinking, runes) {
		w.delta(inThinking, object{"reasoning_content", piece}, nil)
	}
	for _, piece := range pieces(r.text, runes) {
		if r.stop == stopRefused {
			w.delta(inText, object{"refusal", piece}, nil)
			continue
		}
		w.delta(inText, object{"content", piece}, nil)
	}
	for i, call := range r.calls {
		w.call(inStart, object{"index", i, "id", c.newID("call_", i), "type", "function",
			"function", object{"name", call.tool.name, "arguments", ""}})
		for _, piece := range pieces(call.args, runes) {
			w.call(inArgs, object{"index", i, "function", object{"arguments", piece}})
		}
	}
	w.delta(inEnd, object{}, chatStop(r))
	if c.withUsage {
		w.add(inEnd, []any{}, chatUsage(c, r))
	}
	return append(w.frames, frame{inEnd, "", []byte("[DONE]")})
}

// A chatWriter collects the chunks of a reply.
type chatWriter struct {
	c       *conversation
	created int64
	frames  []frame
}

func (w *chatWriter) add(in section, choices []any, usage any) {
	chunk := object{"id", w.c.newID("chatcmpl-", 0), "object", "chat.completion.chunk", "created", w.created,
		"model", w.c.model, "service_tier", "default", "system_fingerprint", nil, "choices", choices}
	if w.c.withUsage {
		chunk = append(chunk, "usage", usage)
	}
	w.frames = append(w.frames, frame{in, "", encode(chunk)})
}

func (w *chatWriter) delta(in section, delta object, stop any) {
	w.add(in, []any{object{"index", 0, "delta", delta, "logprobs", nil, "finish_reason", stop}}, nil)
}

func (w *chatWriter) call(in section, call object) {
	w.delta(in, object{"tool_calls", []any{call}}, nil)
}

func chatStop(r reply) string {
	switch {
	case r.stop == stopLength:
		return "length"
	case r.stop == stopRefused:
		return "content_filter"
	case len(r.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func chatUsage(c *conversation, r reply) object {
	input, output, read, written := c.usage(r)
	input += read + written // this form includes cached tokens in the input
	return object{"prompt_tokens", input, "completion_tokens", output, "total_tokens", input + output,
		"prompt_tokens_details", object{"cached_tokens", read, "cache_write_tokens", written, "audio_tokens", 0},
		"completion_tokens_details", object{"reasoning_tokens", len(r.thinking) / 4, "audio_tokens", 0,
			"accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0}}
}

// whole implements [wire].
func (chatForm) whole(c *conversation, r reply) any {
	message := object{"role", "assistant", "content", nil, "refusal", nil, "annotations", []any{}}
	switch {
	case r.stop == stopRefused:
		message[5] = r.text
	case r.text != "" || len(r.calls) == 0:
		message[3] = r.text
	}
	if r.thinking != "" {
		message = append(message, "reasoning_content", r.thinking)
	}
	var calls []any
	for i, call := range r.calls {
		calls = append(calls, object{"id", c.newID("call_", i), "type", "function",
			"function", object{"name", call.tool.name, "arguments", call.args}})
	}
	if calls != nil {
		message = append(message, "tool_calls", calls)
	}
	return object{"id", c.newID("chatcmpl-", 0), "object", "chat.completion", "created", unixNow(), "model", c.model,
		"choices", []any{object{"index", 0, "message", message, "logprobs", nil, "finish_reason", chatStop(r)}},
		"usage", chatUsage(c, r), "service_tier", "default", "system_fingerprint", nil}
}

// failed implements [wire].
func (chatForm) failed(f *failure) (int, any) { return f.status, openaiError(f) }

// openaiError returns the body of an error in OpenAI's forms.
func openaiError(f *failure) object {
	kind := "invalid_request_error"
	switch f.kind {
	case FaultRateLimited:
		kind = "requests"
	case FaultOverloaded, FaultServerError, FaultHTML:
		kind = "server_error"
	case FaultNoQuota:
		kind = "insufficient_quota"
	}
	return object{"error", object{"message", f.message, "type", kind, "param", orNull(f.param), "code", orNull(f.code)}}
}

func orNull(s string) any {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return s
}

// failedFrame implements [wire].
func (chatForm) failedFrame(FaultKind, int) frame {
	f := (&Fault{Kind: FaultServerError}).failure(FormChat)
	return frame{inEnd, "", encode(openaiError(f))}
}
