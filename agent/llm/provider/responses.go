package provider

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A responses is a model behind OpenAI Responses. Nothing is stored there:
// reasoning is kept in the history, sealed by the service.
type responses struct {
	*service
	plain bool // summaries of reasoning were refused, and are not asked for again
}

func newResponses(s *service) *responses { return &responses{service: s} }

// Stream implements [model.Model]. Organizations that OpenAI has not verified get
// no summaries of reasoning; theirs is asked once more, without.
func (o *responses) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	reply, err := o.stream(ctx, req, say)
	if e, ok := errors.AsType[*model.Error](err); ok && !o.plain && e.Kind == model.KindInvalid &&
		strings.Contains(e.Message, "reasoning summar") {
		o.plain = true
		return o.stream(ctx, req, say)
	}
	return reply, err
}

func (o *responses) stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	w := o.newWatch(ctx, req)
	defer w.stop()
	r := &responsesReply{service: o.service, say: say, texts: w.texts}
	s := w.send("responses", o.request(req))
	defer s.close()
	for !r.done {
		var e responsesEvent
		if !s.next(&e) {
			return cut(r.reply()), w.failure(ctx, s.err)
		}
		if err := r.event(&e); err != nil {
			return cut(r.reply()), err
		}
	}
	return r.finish()
}

func (o *responses) request(req *model.Request) *responsesRequest {
	p := &responsesRequest{Model: o.model, MaxOutputTokens: req.MaxTokens, Input: o.input(req.Messages),
		Metadata: labels(req.Metadata), Stream: true}
	if strings.TrimSpace(req.System) != "" {
		p.Instructions = req.System
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, responsesTool{Type: "function", Name: t.Name, Description: t.Description, Parameters: schemaOf(t)})
	}
	if !reasons(o.model) {
		return p
	}
	p.Include = []string{"reasoning.encrypted_content"}
	if effort := openaiEffort(o.model, req.Thinking); effort != "" {
		p.Reasoning = &responsesReasoning{Effort: effort}
		if req.Thinking != model.EffortOff && !o.plain {
			p.Reasoning.Summary = "auto"
		}
	}
	return p
}

// input is the messages of a request as items.
func (o *responses) input(messages []model.Message) []any {
	var items []any
	for _, m := range messages {
		if m.Role == model.RoleAssistant {
			items = append(items, o.spoken(m.Parts)...)
		} else {
			items = append(items, heard(m.Parts)...)
		}
	}
	return items
}

// spoken is a message of the model. Reasoning that nothing came of is left out: the
// service wants to see what follows it.
func (o *responses) spoken(parts []model.Part) []any {
	var items, thought []any
	for _, p := range parts {
		switch {
		case o.ours(p.Thinking):
			thought = append(thought, p.Thinking.Opaque)
		case p.Text != nil && *p.Text != "":
			items = append(append(items, thought...),
				responsesInput{Role: "assistant", Content: *p.Text})
			thought = nil
		case p.Call != nil:
			items = append(append(items, thought...),
				responsesInput{Type: "function_call", CallID: p.Call.ID, Name: p.Call.Tool, Arguments: argsSent(p.Call.Args)})
			thought = nil
		}
	}
	return items
}

// heard is a message of the user: the results of tools, and then what was said.
func heard(parts []model.Part) []any {
	var items []any
	var content []responsesContent
	for _, p := range parts {
		switch {
		case p.Result != nil:
			items = append(items, callOutput(p.Result))
		case p.Image != nil:
			content = append(content, responsesContent{Type: "input_image", Detail: "auto", ImageURL: dataURL(*p.Image)})
		case p.Text != nil && *p.Text != "":
			content = append(content, responsesContent{Type: "input_text", Text: *p.Text})
		}
	}
	if len(content) > 0 {
		items = append(items, responsesInput{Role: "user", Content: content})
	}
	return items
}

func callOutput(r *model.CallResult) responsesInput {
	out := responsesInput{Type: "function_call_output", CallID: r.ID, Output: resultText(r)}
	if len(r.Images) == 0 {
		return out
	}
	var list []responsesContent
	if text := resultText(r); text != "" {
		list = append(list, responsesContent{Type: "input_text", Text: text})
	}
	for _, i := range r.Images {
		list = append(list, responsesContent{Type: "input_image", ImageURL: dataURL(i)})
	}
	out.Output = list
	return out
}

// resultText is the text of a result where the form has no place for its failure.
func resultText(r *model.CallResult) string {
	if r.IsError {
		return "Error: " + r.Text
	}
	return r.Text
}

func dataURL(i model.Image) string {
	return "data:" + i.MimeType + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}
