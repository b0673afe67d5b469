package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// maxUserID bounds the id of a user that Anthropic is told.
const maxUserID = 256

// An anthropic is a model behind Anthropic Messages.
type anthropic struct {
	*service
	messages sdk.MessageService
	takes    claude
}

func newAnthropic(s *service) *anthropic {
	// The service is made without a client, which would read the environment: a key
	// found there would be sent to whatever base we were given.
	options := []option.RequestOption{
		option.WithBaseURL(s.base.String()),
		option.WithHTTPClient(s.client),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(), // its spans can carry what was said
	}
	if s.key != "" {
		options = append(options, option.WithAPIKey(s.key))
	}
	return &anthropic{service: s, messages: sdk.NewMessageService(options...), takes: claudeOf(s.model)}
}

// Stream implements [model.Model].
func (a *anthropic) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	w := a.newWatch(ctx, req)
	defer w.stop()
	options := []option.RequestOption{option.WithMiddleware(w.middleware)}
	for name, value := range a.headers(req) {
		options = append(options, option.WithHeader(name, value))
	}
	r := &anthropicReply{service: a.service, say: say}
	stream := a.messages.NewStreaming(w.ctx, a.params(req), options...)
	for !r.done && stream.Next() {
		if err := r.event(stream.Current()); err != nil {
			_ = stream.Close() // what is left is not wanted
			return cut(r.reply()), err
		}
	}
	if !r.done {
		err := stream.Err()
		if said, ok := errors.AsType[*sdk.Error](err); ok {
			err = a.broke([]byte(said.RawJSON()), w.texts)
		}
		_ = stream.Close()
		return cut(r.reply()), w.failure(ctx, err)
	}
	_ = stream.Close()
	return r.finish()
}

// params is a request in the words of the service. The tools, the system prompt
// and the last two messages of the user end what is cached: those before were
// there in the call before, and are read from the cache.
func (a *anthropic) params(req *model.Request) sdk.MessageNewParams {
	p := sdk.MessageNewParams{Model: a.model, MaxTokens: req.MaxTokens}
	if p.MaxTokens == 0 {
		p.MaxTokens = a.takes.length
	}
	if strings.TrimSpace(req.System) != "" {
		p.System = []sdk.TextBlockParam{{Text: req.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	for i, t := range req.Tools {
		own := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schemaOf(t))}
		if t.Description != "" {
			own.Description = param.NewOpt(t.Description)
		}
		if i == len(req.Tools)-1 {
			own.CacheControl = sdk.NewCacheControlEphemeralParam()
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: own})
	}
	p.Messages = a.history(req.Messages)
	if id := req.Metadata["user_id"]; id != "" && len(id) <= maxUserID && !strings.ContainsAny(id, "@ ") {
		p.Metadata.UserID = param.NewOpt(id) // an opaque id, never a name or an address
	}
	a.think(&p, req)
	return p
}

// think sets how much the model thinks.
func (a *anthropic) think(p *sdk.MessageNewParams, req *model.Request) {
	if req.Thinking == "" || req.Thinking == model.EffortOff {
		return
	}
	switch {
	case a.takes.adaptive:
		p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{Display: sdk.ThinkingConfigAdaptiveDisplaySummarized}
		p.OutputConfig.Effort = sdk.OutputConfigEffort(a.takes.effort(req.Thinking))
	case a.takes.budget && !a.callsWithoutThinking(req.Messages):
		if budget := a.takes.tokens(req.Thinking, p.MaxTokens); budget > 0 {
			p.Thinking = sdk.ThinkingConfigParamOfEnabled(budget)
		}
	}
}

// callsWithoutThinking reports whether the last message of the model made calls
// without having thought here. Models with a budget refuse to think in the middle
// of such a turn.
func (a *anthropic) callsWithoutThinking(messages []model.Message) bool {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role != model.RoleAssistant {
			continue
		}
		calls := false
		for _, p := range messages[i].Parts {
			if a.ours(p.Thinking) {
				return false
			}
			calls = calls || p.Call != nil
		}
		return calls
	}
	return false
}

// history is the messages of a request. Messages without anything to send are
// left out, as the service takes none that are empty.
func (a *anthropic) history(messages []model.Message) []sdk.MessageParam {
	var out []sdk.MessageParam
	for _, m := range messages {
		if m.Role == model.RoleAssistant {
			if blocks := a.spoken(m.Parts); len(blocks) > 0 {
				out = append(out, sdk.NewAssistantMessage(blocks...))
			}
		} else if blocks := asked(m.Parts); len(blocks) > 0 {
			out = append(out, sdk.NewUserMessage(blocks...))
		}
	}
	marks := 2
	for i := len(out) - 1; i >= 0 && marks > 0; i-- {
		if out[i].Role != sdk.MessageParamRoleUser {
			continue
		}
		last := &out[i].Content[len(out[i].Content)-1]
		if mark := last.GetCacheControl(); mark != nil {
			*mark = sdk.NewCacheControlEphemeralParam()
			marks--
		}
	}
	return out
}

// spoken is a message of the model. The service takes none that ends in thinking,
// of which nothing came.
func (a *anthropic) spoken(parts []model.Part) []sdk.ContentBlockParamUnion {
	var blocks []sdk.ContentBlockParamUnion
	for _, p := range parts {
		switch {
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			blocks = append(blocks, sdk.NewTextBlock(*p.Text))
		case a.ours(p.Thinking):
			var kept keptThinking
			if json.Unmarshal(p.Thinking.Opaque, &kept) != nil {
				continue
			}
			if kept.Data != "" {
				blocks = append(blocks, sdk.NewRedactedThinkingBlock(kept.Data))
			} else if kept.Signature != "" {
				blocks = append(blocks, sdk.NewThinkingBlock(kept.Signature, p.Thinking.Text))
			}
		case p.Call != nil:
			blocks = append(blocks, sdk.NewToolUseBlock(callID(p.Call.ID), json.RawMessage(argsSent(p.Call.Args)), p.Call.Tool))
		}
	}
	for n := len(blocks); n > 0 && (blocks[n-1].OfThinking != nil || blocks[n-1].OfRedactedThinking != nil); n-- {
		blocks = blocks[:n-1]
	}
	return blocks
}

// keptThinking is what is kept of thinking beside its text.
type keptThinking struct {
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"` // of thinking that is not shown
}

// asked is a message of the user. The service wants the results of tools first.
func asked(parts []model.Part) []sdk.ContentBlockParamUnion {
	var results, rest []sdk.ContentBlockParamUnion
	for _, p := range parts {
		switch {
		case p.Result != nil:
			results = append(results, toolResult(p.Result))
		case p.Image != nil:
			rest = append(rest, sdk.ContentBlockParamUnion{OfImage: image(*p.Image)})
		case p.Text != nil && strings.TrimSpace(*p.Text) != "":
			rest = append(rest, sdk.NewTextBlock(*p.Text))
		}
	}
	return append(results, rest...)
}

// toolResult is the result of a call. One that is said to be an error may have
// nothing but text; with images the text says it.
func toolResult(r *model.CallResult) sdk.ContentBlockParamUnion {
	block := &sdk.ToolResultBlockParam{ToolUseID: callID(r.ID)}
	text := r.Text
	if r.IsError && len(r.Images) == 0 {
		block.IsError = param.NewOpt(true)
	} else {
		text = resultText(r)
	}
	if strings.TrimSpace(text) != "" {
		block.Content = append(block.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: text}})
	}
	for _, i := range r.Images {
		block.Content = append(block.Content, sdk.ToolResultBlockParamContentUnion{OfImage: image(i)})
	}
	return sdk.ContentBlockParamUnion{OfToolResult: block}
}

func image(i model.Image) *sdk.ImageBlockParam {
	return &sdk.ImageBlockParam{Source: sdk.ImageBlockParamSourceUnion{OfBase64: &sdk.Base64ImageSourceParam{
		MediaType: sdk.Base64ImageSourceMediaType(i.MimeType), Data: base64.StdEncoding.EncodeToString(i.Data),
	}}}
}

// callID is an id as this service takes it: other providers' may have more
// characters.
func callID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}
