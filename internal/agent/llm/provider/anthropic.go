package provider

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

const maxUserID = 256

// ephemeral marks the end of a part that the service caches.
var ephemeral = object{"type": "ephemeral"}

// anthropicRequest returns a request for Anthropic Messages. The cached parts end
// with the tools, the system prompt and the last two messages of the user: the
// service reads everything before the last prompt from the cache of the call before.
func (s *service) anthropicRequest(req *model.Request) object {
	takes := claudeOf(s.Model)
	length := cmp.Or(req.MaxTokens, takes.length)
	tools := functions(req.Tools, "input_schema")
	if len(tools) > 0 {
		tools[len(tools)-1]["cache_control"] = ephemeral
	}
	p := given(object{
		"model": s.Model, "max_tokens": length, "stream": true, "tools": tools, "messages": s.anthropicMessages(req.Messages),
	})
	if strings.TrimSpace(req.System) != "" {
		p["system"] = []object{{"type": "text", "text": req.System, "cache_control": ephemeral}}
	}
	if id := req.Metadata["user_id"]; id != "" && len(id) <= maxUserID && !strings.ContainsAny(id, "@ ") {
		p["metadata"] = object{"user_id": id} // an opaque id, never a name or an address
	}
	switch {
	case req.Thinking == "" || req.Thinking == model.EffortOff:
	case takes.adaptive:
		p["thinking"] = object{"type": "adaptive", "display": "summarized"}
		p["output_config"] = object{"effort": takes.effort(req.Thinking)}
	case takes.budget && !s.callsWithoutThinking(req.Messages):
		if budget := min(thinkingBudgets[req.Thinking], length-minBudget); budget >= minBudget {
			p["thinking"] = object{"type": "enabled", "budget_tokens": budget}
		}
	}
	return p
}

var numbers = lazyregexp.New(`[0-9]+`)

// versionOf returns the version in a model's name, such as 406 of
// claude-opus-4-6-20260101, 307 of claude-3-7-sonnet or 502 of gpt-5.2-codex; zero if
// there is none. Numbers of more than two digits are dates.
func versionOf(name string) int {
	version := 0
	for i, digits := range numbers().FindAllString(name, 2) {
		n, err := strconv.Atoi(digits)
		if err != nil || len(digits) > 2 {
			break
		}
		version += n * []int{100, 1}[i]
	}
	return version
}

// claude is what a model of Anthropic takes, by its name. A name without a version
// is an alias of a gateway and taken for a current model.
type claude struct {
	adaptive bool   // it decides how much to think, given an effort
	budget   bool   // it thinks within a budget of tokens
	most     string // the highest effort
	length   int64  // of a reply, if the request does not say
}

func claudeOf(name string) claude {
	switch v := versionOf(name); {
	case v == 0 || v >= 407 || v == 406 && strings.Contains(name, "opus"):
		return claude{adaptive: true, most: "max", length: 32_000}
	case v == 406:
		return claude{adaptive: true, most: "high", length: 32_000}
	case v >= 307:
		return claude{budget: true, length: 32_000}
	}
	return claude{length: 4096}
}

func (c claude) effort(e model.Effort) string {
	switch e {
	case model.EffortMinimal:
		return "low"
	case model.EffortUltra:
		return c.most
	}
	return string(e)
}

// minBudget is the least budget for thinking, and the least room for an answer.
const minBudget = 1024

var thinkingBudgets = map[model.Effort]int64{
	model.EffortMinimal: minBudget, model.EffortLow: 2048, model.EffortMedium: 8192,
	model.EffortHigh: 16_384, model.EffortUltra: 24_000,
}

// callsWithoutThinking reports whether the last message of the model made calls
// without thinking of this provider. Models with a budget refuse to start thinking
// in the middle of such a turn.
func (s *service) callsWithoutThinking(messages []model.Message) bool {
	for _, m := range slices.Backward(messages) {
		if m.Role == model.RoleAssistant {
			return slices.ContainsFunc(m.Parts, func(p model.Part) bool { return p.Call != nil }) &&
				!slices.ContainsFunc(m.Parts, s.thought)
		}
	}
	return false
}

// anthropicMessages returns the messages. The service refuses empty ones.
func (s *service) anthropicMessages(messages []model.Message) []object {
	var out []object
	marks := 2
	for _, m := range slices.Backward(messages) {
		role, blocks := "assistant", s.anthropicAssistant(m.Parts)
		if m.Role == model.RoleUser {
			results, rest := anthropicForm.user(m.Parts, anthropicResult)
			role, blocks = "user", append(results, rest...)
		}
		if len(blocks) == 0 {
			continue
		}
		if role == "user" && marks > 0 {
			marks--
			blocks[len(blocks)-1]["cache_control"] = ephemeral
		}
		out = append(out, object{"role": role, "content": blocks})
	}
	slices.Reverse(out)
	return out
}

// anthropicAssistant returns the content of a message of the model. The service
// refuses a message that ends in thinking.
func (s *service) anthropicAssistant(parts []model.Part) []object {
	var blocks []object
	ended := 0 // up to the last block that is no thinking
	for _, p := range parts {
		switch {
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			blocks = append(blocks, object{"type": "text", "text": *p.Text})
			ended = len(blocks)
		case p.Call != nil:
			blocks = append(blocks, object{"type": "tool_use", "id": p.Call.ID, "name": p.Call.Tool, "input": p.Call.Args})
			ended = len(blocks)
		case s.thought(p):
			var sealed sealedThinking
			if json.Unmarshal(p.Thinking.Opaque, &sealed) != nil {
				continue
			}
			if sealed.Data != "" {
				blocks = append(blocks, object{"type": "redacted_thinking", "data": sealed.Data})
			} else if sealed.Signature != "" {
				blocks = append(blocks, object{"type": "thinking", "signature": sealed.Signature, "thinking": p.Thinking.Text})
			}
		}
	}
	return blocks[:ended]
}

// sealedThinking is what Anthropic wants back with the text of thinking.
type sealedThinking struct {
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"` // of redacted thinking
}

var anthropicForm = form{"text", func(i model.Image) object {
	return object{"type": "image", "source": object{
		"type": "base64", "media_type": i.MimeType, "data": base64.StdEncoding.EncodeToString(i.Data)}}
}}

// anthropicResult returns the result of a call. An error must not have images; with
// images the text says that it is an error.
func anthropicResult(r *model.CallResult) object {
	text, plain := resultText(r), r.IsError && len(r.Images) == 0
	if plain {
		text = r.Text
	}
	result := given(object{"type": "tool_result", "tool_use_id": r.ID, "content": anthropicForm.content(text, r.Images...)})
	if plain {
		result["is_error"] = true
	}
	return result
}

// An anthropicEvent is an event of any type.
type anthropicEvent struct {
	Type    string `json:"type"`
	Index   int64  `json:"index"`
	Message struct {
		ID    string         `json:"id"`
		Model string         `json:"model"`
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type     string          `json:"type"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		sealedThinking
	} `json:"content_block"`
	Delta struct {
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage anthropicUsage `json:"usage"`
}

type anthropicUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

var anthropicKinds = map[string]string{
	"text": textBlock, "thinking": thinkingBlock, "redacted_thinking": thinkingBlock, "tool_use": callBlock,
}

var anthropicStops = map[string]model.Stop{
	"max_tokens": model.StopLength, "model_context_window_exceeded": model.StopLength, "refusal": model.StopRefused,
}

func (e *anthropicEvent) apply(r *reply) error {
	b := r.find(e.Index)
	switch {
	case e.Type == "message_start":
		r.named, r.id = e.Message.Model, e.Message.ID
		e.Message.Usage.count(r)
	case e.Type == "content_block_start":
		start := &e.ContentBlock
		b = &block{index: e.Index, kind: anthropicKinds[start.Type], id: start.ID, tool: start.Name, sealed: start.sealedThinking}
		r.blocks = append(r.blocks, b)
		if input := string(start.Input); input != "{}" && input != "null" && b.kind == callBlock {
			b.text.WriteString(input) // some gateways send the arguments at once
		}
		return r.add(b, start.Text+start.Thinking)
	case e.Type == "content_block_delta" && b != nil:
		b.sealed.Signature += e.Delta.Signature
		return r.add(b, e.Delta.Text+e.Delta.Thinking+e.Delta.PartialJSON)
	case e.Type == "content_block_stop" && b != nil:
		b.ended = true
		if b.sealed != (sealedThinking{}) {
			b.opaque, _ = json.Marshal(b.sealed) // two strings can be encoded
		}
	case e.Type == "message_delta":
		r.stop = anthropicStops[e.Delta.StopReason]
		e.Usage.count(r)
	case e.Type == "message_stop":
		r.complete, r.done = true, true
	}
	return nil
}

// count notes the usage. The service counts up, and leaves out what has not changed.
func (u anthropicUsage) count(r *reply) {
	r.usage.Input = max(r.usage.Input, u.Input)
	r.usage.Output = max(r.usage.Output, u.Output)
	r.usage.CacheRead = max(r.usage.CacheRead, u.CacheRead)
	r.usage.CacheWrite = max(r.usage.CacheWrite, u.CacheWrite)
}
