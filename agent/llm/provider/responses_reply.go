package provider

import (
	"encoding/json"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A responsesReply is what has come of a response.
type responsesReply struct {
	*service
	say   func(model.Delta) error
	texts []string // that errors must not repeat

	items   []*responsesItem
	usage   model.Usage
	named   string // the model, as the service says
	cut     string // why the response is incomplete; empty if it is not
	refused bool
	done    bool // the service has said that this is all
}

// A responsesItem is one part of a response.
type responsesItem struct {
	index    int64
	kind     string
	text     strings.Builder // said, or reasoned
	id, tool string          // of a call
	args     string
	opaque   json.RawMessage // of reasoning
	ended    bool
}

// event takes in the next event and says what is new in it. What is not known is
// passed over.
func (r *responsesReply) event(e *responsesEvent) error {
	switch e.Type {
	case "response.created", "response.in_progress":
		r.named = e.Response.Model
	case "response.output_item.added":
		var begun responsesOutput
		if err := decode(e.Item, &begun); err == nil {
			r.item(e.OutputIndex, begun.Type)
		}
	case "response.output_text.delta":
		return r.more(e.OutputIndex, "message", e.Delta)
	case "response.refusal.delta":
		r.refused = true
		return r.more(e.OutputIndex, "message", e.Delta)
	case "response.reasoning_summary_part.added":
		if i := r.item(e.OutputIndex, "reasoning"); i.text.Len() > 0 {
			return r.more(e.OutputIndex, "reasoning", "\n\n")
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return r.more(e.OutputIndex, "reasoning", e.Delta)
	case "response.output_item.done":
		return r.end(e.OutputIndex, e.Item)
	case "response.completed", "response.incomplete":
		return r.close(&e.Response)
	case "response.failed":
		return r.broke(e.Response.Error, r.texts)
	}
	return nil
}

// item returns the item at an index, made if it is new.
func (r *responsesReply) item(index int64, kind string) *responsesItem {
	for _, i := range r.items {
		if i.index == index {
			return i
		}
	}
	i := &responsesItem{index: index, kind: kind}
	r.items = append(r.items, i)
	return i
}

func (r *responsesReply) more(index int64, kind, text string) error {
	if text == "" {
		return nil
	}
	r.item(index, kind).text.WriteString(text)
	return r.say(model.Delta{Text: text, Thinking: kind == "reasoning"})
}

// end takes in an item that is complete. What did not come in pieces is taken from
// it.
func (r *responsesReply) end(index int64, raw json.RawMessage) error {
	var done responsesOutput
	if decode(raw, &done) != nil {
		return nil // an item that is missing
	}
	i := r.item(index, done.Type)
	i.kind, i.ended = done.Type, true
	switch i.kind {
	case "message":
		if i.text.Len() > 0 {
			return nil
		}
		var whole strings.Builder
		for _, c := range done.Content {
			r.refused = r.refused || c.Refusal != ""
			whole.WriteString(c.Text + c.Refusal)
		}
		return r.more(index, "message", whole.String())
	case "function_call":
		i.id, i.tool, i.args = done.CallID, done.Name, done.Arguments
	case "reasoning":
		// Without the sealed content the service would look for the item in its store.
		if done.EncryptedContent != "" {
			i.opaque = reasoningItem(raw)
		}
	}
	return nil
}

// reasoningItem is an item of reasoning as the service takes it back.
func reasoningItem(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	kept := map[string]json.RawMessage{}
	for _, name := range []string{"type", "id", "summary", "content", "encrypted_content"} {
		if value, ok := fields[name]; ok && string(value) != "null" {
			kept[name] = value
		}
	}
	if kept["summary"] == nil {
		kept["summary"] = json.RawMessage("[]")
	}
	opaque, _ := json.Marshal(kept) // what was decoded can be encoded
	return opaque
}

// close takes in the end of the response. Items that were not streamed, or not to
// their end, are taken from it.
func (r *responsesReply) close(done *responsesResponse) error {
	r.done = true
	if done.Model != "" {
		r.named = done.Model
	}
	r.cut = done.IncompleteDetails.Reason
	if done.Status == "incomplete" && r.cut == "" {
		r.cut = "unknown"
	}
	u := done.Usage
	read, write := u.InputDetails.CacheRead, u.InputDetails.CacheWrite
	r.usage = model.Usage{Input: max(0, u.Input-read-write), Output: u.Output, CacheRead: read, CacheWrite: write}
	if r.cut != "" {
		return nil
	}
	for n, item := range done.Output {
		if i := r.item(int64(n), ""); !i.ended {
			if err := r.end(int64(n), item); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish is a reply that the service has ended.
func (r *responsesReply) finish() (model.Reply, error) {
	out := r.reply()
	called := 0
	for _, i := range r.items {
		if i.kind == "function_call" {
			called++
		}
	}
	if callsIn(out) < called && out.Stop != model.StopLength {
		return cut(out), badArgs(r.service)
	}
	return out, nil
}

// reply is what has come so far.
func (r *responsesReply) reply() model.Reply {
	out := model.Reply{Message: model.Message{Role: model.RoleAssistant}, Usage: r.usage, Model: r.named}
	for _, i := range r.items {
		if part, ok := r.part(i); ok {
			out.Message.Parts = append(out.Message.Parts, part)
		}
	}
	switch {
	case r.refused || r.cut == "content_filter":
		out.Stop = model.StopRefused
	case r.cut != "":
		out.Stop = model.StopLength
	default:
		out.Stop = stopOf(out)
	}
	return out
}

// part is what an item is in a history; ok is false if it is nothing, or not all
// of what it must be.
func (r *responsesReply) part(i *responsesItem) (p model.Part, ok bool) {
	text := i.text.String()
	switch i.kind {
	case "message":
		return model.Part{Text: &text}, text != ""
	case "reasoning":
		t := &model.Thinking{Text: text, Provider: r.name, Opaque: i.opaque}
		return model.Part{Thinking: t}, text != "" || t.Opaque != nil
	case "function_call":
		args, whole := argsOf(i.args)
		return model.Part{Call: &model.Call{ID: i.id, Tool: i.tool, Args: args}}, i.ended && whole
	}
	return model.Part{}, false
}
