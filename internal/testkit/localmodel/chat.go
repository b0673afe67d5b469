package localmodel

import (
	"cmp"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// readChat reads a request in the form of Chat Completions. Agents join unanswered
// prompts with blank lines, because some services do not accept a list of parts.
func readChat(c *conversation) *failure {
	for i, m := range c.Messages {
		e := entry{text: plainText(m.Content), message: i}
		switch m.Role {
		case "user":
			for _, text := range texts(m.Content) {
				prompts := []string{text}
				if !isTagged(text) {
					prompts = strings.Split(text, "\n\n")
				}
				for _, prompt := range prompts {
					c.entries = append(c.entries, entry{by: user, text: prompt, message: i})
				}
			}
			continue
		case "tool", "function":
			e.by, e.call = tool, m.ToolCallID
		case "assistant":
			e.by = model
		case "system", "developer":
			continue
		default:
			return invalid("Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", abridge.Bytes(m.Role, 40))
		}
		c.entries = append(c.entries, e)
		for _, call := range m.ToolCalls {
			c.entries = append(c.entries, entry{by: model, call: call.ID, message: i})
		}
	}
	if len(c.Messages) == 0 {
		return invalid("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	return c.checkCalls(true, "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'. (%s)",
		"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
			"The following tool_call_ids did not have response messages: %s")
}

func replyChat(c *conversation, r reply) (frames []frame) {
	created := time.Now().Unix()
	add := func(in section, choices []any, usage any) {
		chunk := object{"id": c.newID("chatcmpl-", 0), "object": "chat.completion.chunk", "created": created,
			"model": c.Model, "choices": choices}
		if c.StreamOptions.IncludeUsage {
			chunk["usage"] = usage
		}
		frames = append(frames, frame{in, "", encode(chunk)})
	}
	delta := func(in section, delta object, stop any) {
		add(in, []any{object{"index": 0, "delta": delta, "finish_reason": stop}}, nil)
	}
	said := "content"
	if r.stop == stopRefused {
		said = "refusal"
	}
	delta(inStart, object{"role": "assistant", "content": ""}, nil)
	for _, piece := range c.pieces(r.thinking) {
		delta(inThinking, object{"reasoning_content": piece}, nil)
	}
	for _, piece := range c.pieces(r.text) {
		delta(inText, object{said: piece}, nil)
	}
	for i, call := range r.calls {
		delta(inStart, object{"tool_calls": []any{object{"index": i, "id": c.newID("call_", i), "type": "function",
			"function": object{"name": call.tool, "arguments": ""}}}}, nil)
		for _, piece := range c.pieces(call.args) {
			delta(inArgs, object{"tool_calls": []any{object{"index": i, "function": object{"arguments": piece}}}}, nil)
		}
	}
	delta(inEnd, object{}, r.reason("length", "content_filter", "tool_calls", "stop"))
	if c.StreamOptions.IncludeUsage {
		add(inEnd, []any{}, openaiUsage(c, r, "prompt", "completion"))
	}
	return append(frames, frame{inEnd, "", []byte("[DONE]")})
}

// openaiUsage returns the usage in OpenAI's forms, which have their own words for the
// input and the output. They include cached tokens in the input.
func openaiUsage(c *conversation, r reply, in, out string) object {
	input, output, read, written := c.usage(r)
	input += read + written
	return object{in + "_tokens": input, in + "_tokens_details": object{"cached_tokens": read, "cache_write_tokens": written},
		out + "_tokens": output, out + "_tokens_details": object{"reasoning_tokens": len(r.thinking) / 4},
		"total_tokens": input + output}
}

// openaiError returns the body of an error in OpenAI's forms.
func openaiError(f failure) object {
	return object{"error": object{"message": f.message, "type": cmp.Or(f.typ, "invalid_request_error"), "param": nil, "code": f.code}}
}

func chatFrame(FaultKind, int) frame {
	return frame{inEnd, "", encode(openaiError(refusals[FaultServerError][1]))}
}
