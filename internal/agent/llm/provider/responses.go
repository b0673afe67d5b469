package provider

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

// responsesRequest returns a request for OpenAI Responses. The service stores
// nothing: reasoning is kept in the history, encrypted by the service.
func (s *service) responsesRequest(req *model.Request) object {
	tools := functions(req.Tools, "parameters")
	for _, t := range tools {
		t["type"], t["strict"] = "function", false
	}
	p := given(object{
		"model": s.Model, "input": s.responsesInput(req.Messages), "max_output_tokens": req.MaxTokens,
		"metadata": labels(req.Metadata), "tools": tools, "store": false, "stream": true,
	})
	if strings.TrimSpace(req.System) != "" {
		p["instructions"] = req.System
	}
	if !reasons(s.Model) {
		return p
	}
	p["include"] = []string{"reasoning.encrypted_content"}
	if effort := openaiEffort(s.Model, req.Thinking); effort != "" {
		reasoning := object{"effort": effort}
		if req.Thinking != model.EffortOff && !s.noSummaries {
			reasoning["summary"] = "auto"
		}
		p["reasoning"] = reasoning
	}
	return p
}

// withoutOwner returns a model's name without the owner that gateways put before it.
func withoutOwner(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// reasons reports whether a model behind a form of OpenAI reasons, by its name. An
// unknown model is taken to reason, as current models do.
func reasons(name string) bool {
	name = withoutOwner(name)
	return !strings.HasPrefix(name, "gpt-3") && !strings.HasPrefix(name, "gpt-4") && !strings.HasPrefix(name, "chatgpt-")
}

// openaiEffort returns the word for an effort, "" for the model's own choice. The
// lowest and the highest effort depend on the model.
func openaiEffort(name string, e model.Effort) string {
	v := 0
	if name = withoutOwner(name); strings.HasPrefix(name, "gpt-") {
		v = versionOf(name)
	}
	switch {
	case e == model.EffortOff && v >= 501:
		return "none"
	case e == model.EffortOff && v == 500, e == model.EffortMinimal && v == 500:
		return "minimal"
	case e == model.EffortOff:
		return ""
	case e == model.EffortMinimal:
		return "low"
	case e == model.EffortUltra && v >= 502:
		return "xhigh"
	case e == model.EffortUltra:
		return "high"
	}
	return string(e)
}

// functions returns tools with their schemas as a member.
func functions(tools []model.Tool, schema string) []object {
	all := make([]object, len(tools))
	for i, t := range tools {
		all[i] = given(object{"name": t.Name, "description": t.Description, schema: schemaOf(t)})
	}
	return all
}

// responsesInput returns the messages of a request as items. Reasoning is left out
// unless a text or a call follows it, as the service demands.
func (s *service) responsesInput(messages []model.Message) []any {
	var items []any
	for _, m := range messages {
		if m.Role == model.RoleUser {
			results, content := responsesForm.user(m.Parts, responsesResult)
			for _, result := range results {
				items = append(items, result)
			}
			if len(content) > 0 {
				items = append(items, object{"role": "user", "content": content})
			}
			continue
		}
		var reasoning []any
		for _, p := range m.Parts {
			var item object
			switch {
			case s.thought(p):
				reasoning = append(reasoning, p.Thinking.Opaque)
				continue
			case p.Text != nil && *p.Text != "":
				item = object{"role": "assistant", "content": *p.Text}
			case p.Call != nil:
				item = object{"type": "function_call", "call_id": p.Call.ID, "name": p.Call.Tool, "arguments": string(p.Call.Args)}
			default:
				continue
			}
			items = append(append(items, reasoning...), item)
			reasoning = nil
		}
	}
	return items
}

var (
	responsesForm = form{"input_text", func(i model.Image) object {
		return object{"type": "input_image", "detail": "auto", "image_url": dataURL(i)}
	}}
	responsesResultForm = form{"input_text", func(i model.Image) object {
		return object{"type": "input_image", "image_url": dataURL(i)}
	}}
)

func responsesResult(r *model.CallResult) object {
	result := object{"type": "function_call_output", "call_id": r.ID, "output": resultText(r)}
	if len(r.Images) > 0 {
		result["output"] = responsesResultForm.content(resultText(r), r.Images...)
	}
	return result
}

func dataURL(i model.Image) string {
	return "data:" + i.MimeType + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}

// A responsesEvent is an event of any type.
type responsesEvent struct {
	Type        string          `json:"type"`
	OutputIndex int64           `json:"output_index"`
	Delta       string          `json:"delta"`
	Item        json.RawMessage `json:"item"`
	Response    struct {
		ID                string          `json:"id"`
		Model             string          `json:"model"`
		Status            string          `json:"status"`
		Error             json.RawMessage `json:"error"`
		IncompleteDetails struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
		Output []json.RawMessage `json:"output"`
		Usage  struct {
			Input        int64        `json:"input_tokens"`
			InputDetails cacheDetails `json:"input_tokens_details"`
			Output       int64        `json:"output_tokens"`
		} `json:"usage"`
	} `json:"response"`
}

// cacheDetails are the tokens of a prompt that a cache served or stored.
type cacheDetails struct {
	Read  int64 `json:"cached_tokens"`
	Write int64 `json:"cache_write_tokens"`
}

func (c cacheDetails) usage(prompt, reply int64) model.Usage {
	return model.Usage{Input: max(0, prompt-c.Read-c.Write), Output: reply, CacheRead: c.Read, CacheWrite: c.Write}
}

// A responsesItem is an item of any type.
type responsesItem struct {
	Type    string `json:"type"`
	Content []struct {
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
	CallID           string `json:"call_id"`
	Name             string `json:"name"`
	Arguments        string `json:"arguments"`
	EncryptedContent string `json:"encrypted_content"`
}

var responsesKinds = map[string]string{"message": textBlock, "reasoning": thinkingBlock, "function_call": callBlock}

func (e *responsesEvent) apply(r *reply) error {
	switch e.Type {
	case "response.created", "response.in_progress":
		r.named, r.id = e.Response.Model, e.Response.ID
	case "response.output_item.added":
		var item responsesItem
		if decode(e.Item, &item) == nil {
			r.at(e.OutputIndex, responsesKinds[item.Type])
		}
	case "response.output_text.delta":
		return r.add(r.at(e.OutputIndex, textBlock), e.Delta)
	case "response.refusal.delta":
		r.stop = model.StopRefused
		return r.add(r.at(e.OutputIndex, textBlock), e.Delta)
	case "response.reasoning_summary_part.added":
		if b := r.at(e.OutputIndex, thinkingBlock); b.text.Len() > 0 {
			return r.add(b, "\n\n")
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return r.add(r.at(e.OutputIndex, thinkingBlock), e.Delta)
	case "response.output_item.done":
		return r.endItem(e.OutputIndex, e.Item)
	case "response.completed", "response.incomplete":
		return e.end(r)
	case "response.failed":
		return r.broke(e.Response.Error)
	}
	return nil
}

// endItem takes in a complete item. A text that was not streamed is taken from it.
func (r *reply) endItem(index int64, raw json.RawMessage) error {
	var item responsesItem
	if decode(raw, &item) != nil {
		return nil // there is no item
	}
	b := r.at(index, "")
	b.kind, b.ended = responsesKinds[item.Type], true
	switch {
	case b.kind == textBlock && b.text.Len() == 0:
		var whole strings.Builder
		for _, c := range item.Content {
			if c.Refusal != "" {
				r.stop = model.StopRefused
			}
			whole.WriteString(c.Text + c.Refusal)
		}
		return r.add(b, whole.String())
	case b.kind == callBlock:
		b.id, b.tool = item.CallID, item.Name
		b.text.Reset()
		b.text.WriteString(item.Arguments)
	case b.kind == thinkingBlock && item.EncryptedContent != "": // else the service would look for it in its store
		b.opaque = reasoningItem(raw)
	}
	return nil
}

// reasoningItem returns an item of reasoning as the service takes it back.
func reasoningItem(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	kept := map[string]json.RawMessage{"summary": json.RawMessage("[]")}
	for _, name := range []string{"type", "id", "summary", "content", "encrypted_content"} {
		if value, ok := fields[name]; ok && string(value) != "null" {
			kept[name] = value
		}
	}
	opaque, _ := json.Marshal(kept) // decoded JSON can be encoded
	return opaque
}

// end takes in the end of the response, with items that were not streamed whole.
func (e *responsesEvent) end(r *reply) error {
	last := &e.Response
	r.complete, r.done = true, true
	if last.Model != "" {
		r.named = last.Model
	}
	r.usage = last.Usage.InputDetails.usage(last.Usage.Input, last.Usage.Output)
	switch reason := last.IncompleteDetails.Reason; {
	case reason == "content_filter":
		r.stop = model.StopRefused
	case reason == "" && last.Status != "incomplete":
		for i, item := range last.Output {
			if b := r.at(int64(i), ""); !b.ended {
				if err := r.endItem(int64(i), item); err != nil {
					return err
				}
			}
		}
	case r.stop != model.StopRefused:
		r.stop = model.StopLength
	}
	return nil
}
