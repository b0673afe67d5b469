package provider

import (
	"encoding/json"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// An anthropicReply is what has come of a reply.
type anthropicReply struct {
	*service
	say func(model.Delta) error

	blocks []*anthropicBlock
	usage  model.Usage
	stop   string
	named  string // the model, as the service says
	done   bool   // the service has said that this is all
}

// An anthropicBlock is one part of a reply.
type anthropicBlock struct {
	index    int64
	kind     string
	text     strings.Builder // text, thinking or the arguments of a call
	kept     keptThinking
	id, tool string
	ended    bool
}

// event takes in the next event and says what is new in it. Events and blocks of
// kinds that are not known are passed over, as the service asks of its clients.
func (r *anthropicReply) event(e *anthropicEvent) error {
	switch e.Type {
	case "message_start":
		r.named = e.Message.Model
		r.count(e.Message.Usage)
	case "content_block_start":
		return r.begin(e.Index, &e.ContentBlock)
	case "content_block_delta":
		if b := r.block(e.Index); b != nil {
			b.kept.Signature += e.Delta.Signature
			return r.more(b, e.Delta.Text+e.Delta.Thinking+e.Delta.PartialJSON)
		}
	case "content_block_stop":
		if b := r.block(e.Index); b != nil {
			b.ended = true
		}
	case "message_delta":
		r.stop = e.Delta.StopReason
		r.count(e.Usage)
	case "message_stop":
		r.done = true
	}
	return nil
}

// count notes what the service counted. It counts up, and leaves out what has not
// changed.
func (r *anthropicReply) count(u anthropicUsage) {
	r.usage.Input = max(r.usage.Input, u.Input)
	r.usage.Output = max(r.usage.Output, u.Output)
	r.usage.CacheRead = max(r.usage.CacheRead, u.CacheRead)
	r.usage.CacheWrite = max(r.usage.CacheWrite, u.CacheWrite)
}

func (r *anthropicReply) block(index int64) *anthropicBlock {
	for _, b := range r.blocks {
		if b.index == index {
			return b
		}
	}
	return nil
}

func (r *anthropicReply) begin(index int64, start *anthropicStart) error {
	b := &anthropicBlock{index: index, kind: start.Type, id: start.ID, tool: start.Name}
	b.kept = keptThinking{Signature: start.Signature, Data: start.Data}
	r.blocks = append(r.blocks, b)
	if input := string(start.Input); b.kind == "tool_use" && input != "{}" && input != "null" {
		b.text.WriteString(input) // some gateways send the arguments at once
	}
	return r.more(b, start.Text+start.Thinking)
}

// more adds to a block, and says what may be said at once.
func (r *anthropicReply) more(b *anthropicBlock, text string) error {
	if text == "" {
		return nil
	}
	b.text.WriteString(text)
	switch b.kind {
	case "text":
		return r.say(model.Delta{Text: text})
	case "thinking":
		return r.say(model.Delta{Text: text, Thinking: true})
	}
	return nil
}

// finish is a reply that the service has ended.
func (r *anthropicReply) finish() (model.Reply, error) {
	out := r.reply()
	if calls, said := callsIn(out), r.called(); calls < said && out.Stop != model.StopLength {
		return cut(out), badArgs(r.service)
	}
	return out, nil
}

// called is how many calls the model began.
func (r *anthropicReply) called() (n int) {
	for _, b := range r.blocks {
		if b.kind == "tool_use" {
			n++
		}
	}
	return n
}

// reply is what has come so far.
func (r *anthropicReply) reply() model.Reply {
	out := model.Reply{Message: model.Message{Role: model.RoleAssistant}, Usage: r.usage, Model: r.named}
	for _, b := range r.blocks {
		if part, ok := r.part(b); ok {
			out.Message.Parts = append(out.Message.Parts, part)
		}
	}
	switch r.stop {
	case "max_tokens", "model_context_window_exceeded":
		out.Stop = model.StopLength
	case "refusal":
		out.Stop = model.StopRefused
	default:
		out.Stop = stopOf(out)
	}
	return out
}

// part is what a block is in a history; ok is false if it is nothing, or not all
// of what it must be.
func (r *anthropicReply) part(b *anthropicBlock) (p model.Part, ok bool) {
	text := b.text.String()
	switch b.kind {
	case "text":
		return model.Part{Text: &text}, text != ""
	case "thinking", "redacted_thinking":
		t := &model.Thinking{Text: text, Provider: r.name}
		if b.ended && b.kept != (keptThinking{}) {
			t.Opaque, _ = json.Marshal(b.kept) // two strings always can be
		}
		return model.Part{Thinking: t}, text != "" || t.Opaque != nil
	case "tool_use":
		args, whole := argsOf(text)
		return model.Part{Call: &model.Call{ID: b.id, Tool: b.tool, Args: args}}, b.ended && whole
	}
	return model.Part{}, false
}

// callsIn is how many calls a reply makes.
func callsIn(r model.Reply) (n int) {
	for _, p := range r.Message.Parts {
		if p.Call != nil {
			n++
		}
	}
	return n
}

// stopOf is why a reply ended that the service gave no other reason for.
func stopOf(r model.Reply) model.Stop {
	if callsIn(r) > 0 {
		return model.StopCalls
	}
	return model.StopDone
}

// badArgs is the error for a finished reply with a call whose arguments are no
// JSON object.
func badArgs(s *service) *model.Error {
	return &model.Error{Kind: model.KindMalformed, Message: s.name + " ended a call whose arguments are no JSON object"}
}
