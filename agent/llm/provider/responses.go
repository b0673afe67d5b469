package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	wire "github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A responses is a model behind OpenAI Responses. Nothing is stored there:
// reasoning is kept in the history, sealed by the service.
type responses struct {
	*service
	responses wire.ResponseService
	plain     bool // summaries of reasoning were refused, and are not asked for again
}

func newResponses(s *service) *responses {
	return &responses{service: s, responses: wire.NewResponseService(openaiOptions(s)...)}
}

// openaiOptions are those of either of OpenAI's forms. Services are made without
// a client, which would read the environment: a key found there would be sent to
// whatever base we were given.
func openaiOptions(s *service) []option.RequestOption {
	options := []option.RequestOption{
		option.WithBaseURL(s.base.String()),
		option.WithHTTPClient(s.client),
		option.WithMaxRetries(0),
	}
	if s.key != "" {
		options = append(options, option.WithAPIKey(s.key))
	}
	return options
}

// perCall are the options of one call.
func perCall(w *watch, req *model.Request) []option.RequestOption {
	options := []option.RequestOption{option.WithMiddleware(w.middleware)}
	for name, value := range w.service.headers(req) {
		options = append(options, option.WithHeader(name, value))
	}
	return options
}

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
	stream := o.responses.NewStreaming(w.ctx, o.params(req), perCall(w, req)...)
	for !r.done && stream.Next() {
		if err := r.event(stream.Current()); err != nil {
			_ = stream.Close() // what is left is not wanted
			return cut(r.reply()), err
		}
	}
	err := stream.Err()
	_ = stream.Close()
	if !r.done {
		return cut(r.reply()), w.failure(ctx, o.streamError(err, w.texts))
	}
	return r.finish()
}

// streamError is what the library says of a stream. An error that the service sent
// in it is read by us.
func (s *service) streamError(err error, texts []string) error {
	if said, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return s.broke(said.Event.Data, texts)
	}
	return err
}

func (o *responses) params(req *model.Request) wire.ResponseNewParams {
	p := wire.ResponseNewParams{
		Model: o.model,
		Store: param.NewOpt(false),
		Input: wire.ResponseNewParamsInputUnion{OfInputItemList: o.input(req.Messages)},
	}
	if strings.TrimSpace(req.System) != "" {
		p.Instructions = param.NewOpt(req.System)
	}
	if req.MaxTokens > 0 {
		p.MaxOutputTokens = param.NewOpt(req.MaxTokens)
	}
	for _, t := range req.Tools {
		own := &wire.FunctionToolParam{Name: t.Name, Parameters: parameters(t), Strict: param.NewOpt(false)}
		if t.Description != "" {
			own.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, wire.ToolUnionParam{OfFunction: own})
	}
	if labels := labels(req.Metadata); len(labels) > 0 {
		p.Metadata = labels
	}
	if !reasons(o.model) {
		return p
	}
	p.Include = []wire.ResponseIncludable{wire.ResponseIncludableReasoningEncryptedContent}
	if effort := openaiEffort(o.model, req.Thinking); effort != "" {
		p.Reasoning.Effort = shared.ReasoningEffort(effort)
		if req.Thinking != model.EffortOff && !o.plain {
			p.Reasoning.Summary = shared.ReasoningSummaryAuto
		}
	}
	return p
}

// parameters is a tool's schema for the library, which takes no raw JSON.
func parameters(t model.Tool) map[string]any {
	var schema map[string]any
	if json.Unmarshal(schemaOf(t), &schema) != nil || schema == nil {
		return map[string]any{"type": "object", "properties": map[string]any{}}
	}
	return schema
}

// input is the messages of a request as items.
func (o *responses) input(messages []model.Message) []wire.ResponseInputItemUnionParam {
	var items []wire.ResponseInputItemUnionParam
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
func (o *responses) spoken(parts []model.Part) []wire.ResponseInputItemUnionParam {
	var items, thought []wire.ResponseInputItemUnionParam
	for _, p := range parts {
		switch {
		case o.ours(p.Thinking):
			thought = append(thought, param.Override[wire.ResponseInputItemUnionParam](p.Thinking.Opaque))
		case p.Text != nil && *p.Text != "":
			items = append(append(items, thought...),
				wire.ResponseInputItemParamOfMessage(*p.Text, wire.EasyInputMessageRoleAssistant))
			thought = nil
		case p.Call != nil:
			items = append(append(items, thought...),
				wire.ResponseInputItemParamOfFunctionCall(argsSent(p.Call.Args), p.Call.ID, p.Call.Tool))
			thought = nil
		}
	}
	return items
}

// heard is a message of the user: the results of tools, and then what was said.
func heard(parts []model.Part) []wire.ResponseInputItemUnionParam {
	var items []wire.ResponseInputItemUnionParam
	var content wire.ResponseInputMessageContentListParam
	for _, p := range parts {
		switch {
		case p.Result != nil:
			items = append(items, callOutput(p.Result))
		case p.Image != nil:
			content = append(content, wire.ResponseInputContentUnionParam{OfInputImage: &wire.ResponseInputImageParam{
				Detail: wire.ResponseInputImageDetailAuto, ImageURL: param.NewOpt(dataURL(*p.Image))}})
		case p.Text != nil && *p.Text != "":
			content = append(content, wire.ResponseInputContentUnionParam{OfInputText: &wire.ResponseInputTextParam{Text: *p.Text}})
		}
	}
	if len(content) > 0 {
		items = append(items, wire.ResponseInputItemParamOfMessage(content, wire.EasyInputMessageRoleUser))
	}
	return items
}

func callOutput(r *model.CallResult) wire.ResponseInputItemUnionParam {
	out := &wire.ResponseInputItemFunctionCallOutputParam{CallID: param.NewOpt(r.ID)}
	if len(r.Images) == 0 {
		out.Output.OfString = param.NewOpt(resultText(r))
		return wire.ResponseInputItemUnionParam{OfFunctionCallOutput: out}
	}
	list := &out.Output.OfResponseFunctionCallOutputItemArray
	if text := resultText(r); text != "" {
		*list = append(*list, wire.ResponseFunctionCallOutputItemUnionParam{OfInputText: &wire.ResponseInputTextContentParam{Text: text}})
	}
	for _, i := range r.Images {
		*list = append(*list, wire.ResponseFunctionCallOutputItemUnionParam{
			OfInputImage: &wire.ResponseInputImageContentParam{ImageURL: param.NewOpt(dataURL(i))}})
	}
	return wire.ResponseInputItemUnionParam{OfFunctionCallOutput: out}
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
