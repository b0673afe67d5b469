package provider

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

// An event is one event of a stream, decoded from JSON.
type event interface {
	// apply adds the event to a reply. Unknown events change nothing.
	apply(r *reply) error
}

// A reply is what has come of a model's answer.
type reply struct {
	*call
	say    func(model.Delta) error
	blocks []*block
	usage  model.Usage
	named  string     // the model, as the service says
	id     string     // of the reply, as the service says
	stop   model.Stop // "" if the model just ended its turn

	complete bool // the service has said that the message is complete
	done     bool // nothing more is read
}

// The kinds of blocks. Blocks of other kinds are not kept.
const (
	textBlock     = "text"
	thinkingBlock = "thinking"
	callBlock     = "call"
)

// A block is one part of a reply.
type block struct {
	index    int64
	kind     string
	text     strings.Builder // text, thinking or the arguments of a call
	id, tool string          // of a call
	sealed   sealedThinking
	opaque   json.RawMessage // of thinking
	ended    bool            // a call has all of its arguments
}

// find returns the last block at an index, or nil.
func (r *reply) find(index int64) *block {
	for _, b := range slices.Backward(r.blocks) {
		if b.index == index {
			return b
		}
	}
	return nil
}

// at returns the block at an index. It adds a block of a kind if there is none.
func (r *reply) at(index int64, kind string) *block {
	if b := r.find(index); b != nil {
		return b
	}
	b := &block{index: index, kind: kind}
	r.blocks = append(r.blocks, b)
	return b
}

// add extends a block, and passes on text and thinking.
func (r *reply) add(b *block, text string) error {
	if text == "" {
		return nil
	}
	b.text.WriteString(text)
	switch b.kind {
	case textBlock, thinkingBlock:
		return r.say(model.Delta{Text: text, Thinking: b.kind == thinkingBlock})
	}
	return nil
}

// soFar returns the reply without a reason to stop.
func (r *reply) soFar() model.Reply {
	out := model.Reply{Message: model.Message{Role: model.RoleAssistant}, Usage: r.usage, Model: r.named, ID: r.id}
	for _, b := range r.blocks {
		text := b.text.String()
		switch {
		case b.kind == textBlock && text != "":
			out.Message.Parts = append(out.Message.Parts, model.Part{Text: &text})
		case b.kind == thinkingBlock && (text != "" || b.opaque != nil):
			out.Message.Parts = append(out.Message.Parts, model.Part{Thinking: &model.Thinking{Text: text, Provider: r.Provider, Opaque: b.opaque}})
		case b.call() != nil:
			out.Message.Parts = append(out.Message.Parts, model.Part{Call: b.call()})
		}
	}
	return out
}

// call returns the call of a block, nil if it is none or has no object of arguments.
func (b *block) call() *model.Call {
	args := strings.TrimSpace(b.text.String())
	if args == "" || args == "null" {
		args = "{}"
	}
	if b.kind != callBlock || !b.ended || !strings.HasPrefix(args, "{") || !json.Valid([]byte(args)) {
		return nil
	}
	return &model.Call{ID: b.id, Tool: b.tool, Args: json.RawMessage(args)}
}

// finish returns a reply that the service has ended. Calls that are not whole are
// an error unless the reply hit the output limit.
func (r *reply) finish() (model.Reply, error) {
	out := r.soFar()
	out.Stop = cmp.Or(r.stop, model.StopDone)
	for _, b := range r.blocks {
		switch {
		case b.kind != callBlock || r.stop == model.StopLength:
		case b.call() == nil:
			return r.soFar(), &model.Error{Kind: model.KindMalformed, Message: r.Provider + " ended a call whose arguments are no JSON object"}
		case r.stop == "":
			out.Stop = model.StopCalls
		}
	}
	return out, nil
}

// resultText is the text of a result where the form has no member for a failure.
func resultText(r *model.CallResult) string {
	if r.IsError {
		return "Error: " + r.Text
	}
	return r.Text
}
