package provider

import (
	"cmp"
	"crypto/rand"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A chatReply is what has come of a completion.
type chatReply struct {
	*service
	say   func(model.Delta) error
	taken map[string]bool // ids of the calls in the history

	text, reasoning strings.Builder
	calls           []*chatCall
	usage           model.Usage
	named           string // the model, as the service says
	refused         bool
	stop            string // the reason to finish; empty until it has
}

// A chatCall is a call that comes in pieces.
type chatCall struct {
	index    int64
	id, tool string
	args     strings.Builder
}

// chunk takes in the next piece and says what is new in it.
func (r *chatReply) chunk(c *chatChunk) error {
	if c.Model != "" {
		r.named = c.Model
	}
	if u := c.Usage; u != nil {
		read, write := u.PromptDetails.CacheRead, u.PromptDetails.CacheWrite
		r.usage = model.Usage{Input: max(0, u.Prompt-read-write), Output: u.Completion, CacheRead: read, CacheWrite: write}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one was asked for
		}
		if err := r.delta(&choice.Delta); err != nil {
			return err
		}
		if choice.FinishReason != "" {
			r.stop = choice.FinishReason
		}
	}
	return nil
}

func (r *chatReply) delta(d *chatDelta) error {
	if thought := cmp.Or(d.ReasoningContent, d.Reasoning); thought != "" {
		r.reasoning.WriteString(thought)
		if err := r.say(model.Delta{Text: thought, Thinking: true}); err != nil {
			return err
		}
	}
	r.refused = r.refused || d.Refusal != ""
	for _, call := range d.ToolCalls {
		own := r.call(call.Index, call.ID)
		own.tool += call.Function.Name
		own.args.WriteString(call.Function.Arguments)
	}
	if text := d.Content + d.Refusal; text != "" {
		r.text.WriteString(text)
		return r.say(model.Delta{Text: text})
	}
	return nil
}

// call returns the call that a piece belongs to. Some services number all their
// calls 0; there an id that is new begins another.
func (r *chatReply) call(index int64, id string) *chatCall {
	for i := len(r.calls) - 1; i >= 0; i-- {
		if c := r.calls[i]; c.index == index {
			if id != "" && c.id != "" && c.id != id {
				break
			}
			if c.id == "" {
				c.id = id
			}
			return c
		}
	}
	c := &chatCall{index: index, id: id}
	r.calls = append(r.calls, c)
	return c
}

// finish is a reply that the service has ended.
func (r *chatReply) finish() (model.Reply, error) {
	out := r.reply()
	if callsIn(out) < len(r.calls) && out.Stop != model.StopLength {
		return cut(out), badArgs(r.service)
	}
	return out, nil
}

// reply is what has come so far.
func (r *chatReply) reply() model.Reply {
	out := model.Reply{Message: model.Message{Role: model.RoleAssistant}, Usage: r.usage, Model: r.named}
	add := func(p model.Part) { out.Message.Parts = append(out.Message.Parts, p) }
	if r.reasoning.Len() > 0 {
		add(model.Part{Thinking: &model.Thinking{Text: r.reasoning.String(), Provider: r.name}})
	}
	if text := r.text.String(); text != "" {
		add(model.Part{Text: &text})
	}
	seen := map[string]bool{}
	for i, c := range r.calls {
		args, whole := argsOf(c.args.String())
		// A call without a word of arguments may still be waiting for them.
		ended := r.stop != "" || i < len(r.calls)-1 || c.args.Len() > 0
		if !whole || !ended || c.tool == "" {
			continue
		}
		// What answers a call names it; some services give no id, or the same again.
		if c.id == "" || r.taken[c.id] || seen[c.id] {
			c.id = "call_" + rand.Text()
		}
		seen[c.id] = true
		add(model.Part{Call: &model.Call{ID: c.id, Tool: c.tool, Args: args}})
	}
	switch {
	case r.refused || r.stop == "content_filter":
		out.Stop = model.StopRefused
	case r.stop == "length":
		out.Stop = model.StopLength
	default:
		out.Stop = stopOf(out)
	}
	return out
}

// callIDs are the ids of the calls in a history.
func callIDs(messages []model.Message) map[string]bool {
	ids := map[string]bool{}
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Call != nil {
				ids[p.Call.ID] = true
			}
		}
	}
	return ids
}
