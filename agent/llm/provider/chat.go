package provider

import (
	"context"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// lingering is how long the end of a stream is waited for once the model has
// finished: all that is still to come is what it cost.
const lingering = 10 * time.Second

// A chat is a model behind OpenAI Chat Completions, or something compatible.
type chat struct {
	*service
	completions sdk.ChatCompletionService
}

func newChat(s *service) *chat {
	return &chat{service: s, completions: sdk.NewChatCompletionService(openaiOptions(s)...)}
}

// Stream implements [model.Model].
func (c *chat) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	w := c.newWatch(ctx, req)
	defer w.stop()
	r := &chatReply{service: c.service, say: say, taken: callIDs(req.Messages)}
	stream := c.completions.NewStreaming(w.ctx, c.params(req), perCall(w, req)...)
	for stream.Next() {
		if err := r.chunk(stream.Current()); err != nil {
			_ = stream.Close() // what is left is not wanted
			return cut(r.reply()), err
		}
		if r.stop != "" {
			w.hurry(lingering)
		}
	}
	err := stream.Err()
	_ = stream.Close()
	if r.stop == "" {
		return cut(r.reply()), w.failure(ctx, c.streamError(err, w.texts))
	}
	return r.finish()
}

func (c *chat) params(req *model.Request) sdk.ChatCompletionNewParams {
	p := sdk.ChatCompletionNewParams{
		Model:         c.model,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	if strings.TrimSpace(req.System) != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(req.System))
	}
	p.Messages = append(p.Messages, c.history(req.Messages)...)
	switch {
	case req.MaxTokens == 0:
	case c.official:
		p.MaxCompletionTokens = param.NewOpt(req.MaxTokens)
	default:
		p.MaxTokens = param.NewOpt(req.MaxTokens) // the name that all compatible services know
	}
	for _, t := range req.Tools {
		own := shared.FunctionDefinitionParam{Name: t.Name, Parameters: parameters(t)}
		if t.Description != "" {
			own.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(own))
	}
	if reasons(c.model) {
		p.ReasoningEffort = shared.ReasoningEffort(openaiEffort(c.model, req.Thinking))
	}
	return p
}

// history is the messages of a request. Reasoning is sent back only for the turn
// that is under way, where services that have it want it; they refuse or ignore
// that of earlier turns.
func (c *chat) history(messages []model.Message) []sdk.ChatCompletionMessageParamUnion {
	turn := 0 // index of the prompt under way
	for i, m := range messages {
		for _, p := range m.Parts {
			if m.Role == model.RoleUser && p.Text != nil {
				turn = i
			}
		}
	}
	var out []sdk.ChatCompletionMessageParamUnion
	for i, m := range messages {
		if m.Role == model.RoleUser {
			out = append(out, c.heard(m.Parts)...)
		} else if message := c.spoken(m.Parts, i > turn); message != nil {
			out = append(out, sdk.ChatCompletionMessageParamUnion{OfAssistant: message})
		}
	}
	return out
}

// spoken is a message of the model, or nil if there is nothing to send of it.
func (c *chat) spoken(parts []model.Part, withReasoning bool) *sdk.ChatCompletionAssistantMessageParam {
	message := &sdk.ChatCompletionAssistantMessageParam{}
	var text, reasoning strings.Builder
	for _, p := range parts {
		switch {
		case p.Text != nil:
			text.WriteString(*p.Text)
		case p.Thinking != nil && p.Thinking.Provider == c.name:
			reasoning.WriteString(p.Thinking.Text)
		case p.Call != nil:
			message.ToolCalls = append(message.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{ID: p.Call.ID,
					Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name: p.Call.Tool, Arguments: argsSent(p.Call.Args)}}})
		}
	}
	if text.Len() == 0 && len(message.ToolCalls) == 0 {
		return nil
	}
	if text.Len() > 0 {
		message.Content.OfString = param.NewOpt(text.String())
	}
	if withReasoning && reasoning.Len() > 0 {
		message.SetExtraFields(map[string]any{"reasoning_content": reasoning.String()})
	}
	return message
}

// heard is a message of the user: the results of tools, each a message, and then
// what was said. Results take only text here, so their pictures follow as if the
// user had sent them.
func (c *chat) heard(parts []model.Part) []sdk.ChatCompletionMessageParamUnion {
	var out []sdk.ChatCompletionMessageParamUnion
	var content []sdk.ChatCompletionContentPartUnionParam
	plain := true
	show := func(i model.Image) {
		plain = false
		content = append(content, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: dataURL(i)}))
	}
	var text []string
	for _, p := range parts {
		switch {
		case p.Result != nil:
			out = append(out, sdk.ToolMessage(resultText(p.Result), p.Result.ID))
			for _, i := range p.Result.Images {
				show(i)
			}
		case p.Image != nil:
			show(*p.Image)
		case p.Text != nil && *p.Text != "":
			text = append(text, *p.Text)
			content = append(content, sdk.TextContentPart(*p.Text))
		}
	}
	switch {
	case len(content) == 0:
	case plain: // not every compatible service takes a list
		out = append(out, sdk.UserMessage(strings.Join(text, "\n\n")))
	default:
		out = append(out, sdk.UserMessage(content))
	}
	return out
}
