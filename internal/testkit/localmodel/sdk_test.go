package localmodel_test

import (
	"context"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	openai "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// spoken is a prompt for a turn with everything in it, and what is to come of it.
const (
	spoken        = "think Häufig 思考 👩‍🚀 denkt\nsay Grüße, 世界 👋🏽\ncall bash {\"command\":\"echo 'é'\"}\ncall other {}"
	spokenThought = "Häufig 思考 👩‍🚀 denkt"
	spokenText    = "Grüße, 世界 👋🏽"
	spokenArgs    = `{"command":"echo 'é'"}`
)

func (p place) anthropic() anthropic.Client {
	return anthropic.NewClient(anthropicoption.WithoutEnvironmentDefaults(), anthropicoption.WithBaseURL(p.url),
		anthropicoption.WithAPIKey("any"), anthropicoption.WithHTTPClient(p.client), anthropicoption.WithMaxRetries(0))
}

func (p place) openaiOptions() []openaioption.RequestOption {
	return []openaioption.RequestOption{openaioption.WithBaseURL(p.url + "/v1"), openaioption.WithAPIKey("any"),
		openaioption.WithHTTPClient(p.client), openaioption.WithMaxRetries(0)}
}

func TestAnthropicsLibraryUnderstandsIt(t *testing.T) {
	p := serve(t, localmodel.Options{})
	client := p.anthropic()
	params := anthropic.MessageNewParams{Model: "m", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(spoken))}}

	var streamed anthropic.Message
	var deltas int
	stream := client.Messages.NewStreaming(context.Background(), params)
	for stream.Next() {
		event := stream.Current()
		if event.Delta.Type == "text_delta" {
			deltas++
		}
		if err := streamed.Accumulate(event); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if deltas < 2 {
		t.Errorf("got %d events of text, want several", deltas)
	}
	m := &streamed
	if len(m.Content) != 4 {
		t.Fatalf("got %d blocks, want 4: %s", len(m.Content), m.RawJSON())
	}
	if got := m.Content[0]; got.Thinking != spokenThought || got.Signature == "" {
		t.Errorf("got thinking %q signed %q, want %q signed", got.Thinking, got.Signature, spokenThought)
	}
	if got := m.Content[1].Text; got != spokenText {
		t.Errorf("got text %q, want %q", got, spokenText)
	}
	if got := m.Content[2]; got.Name != "bash" || string(got.Input) != spokenArgs || got.ID == "" {
		t.Errorf("got call %s of %s as %q, want %s of bash with an id", got.Input, got.Name, got.ID, spokenArgs)
	}
	if got := m.Content[3]; got.Name != "other" || string(got.Input) != "{}" || got.ID == m.Content[2].ID {
		t.Errorf("got call %s of %s as %q, want {} of other with an id of its own", got.Input, got.Name, got.ID)
	}
	if m.StopReason != anthropic.StopReasonToolUse || m.Usage.InputTokens == 0 || m.Usage.OutputTokens < 2 {
		t.Errorf("got stop %q and usage %+v, want tool_use and tokens", m.StopReason, m.Usage)
	}
}

func TestOpenAIsLibraryUnderstandsResponses(t *testing.T) {
	p := serve(t, localmodel.Options{})
	client := responses.NewResponseService(p.openaiOptions()...)
	params := responses.ResponseNewParams{Model: "m",
		Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent},
		Input:   responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(spoken)}}

	var text, thought, args strings.Builder
	var streamed responses.Response
	sequence := int64(0)
	stream := client.NewStreaming(context.Background(), params)
	for stream.Next() {
		event := stream.Current()
		if event.SequenceNumber != sequence {
			t.Fatalf("got event %d, want %d", event.SequenceNumber, sequence)
		}
		sequence++
		switch event.Type {
		case "response.output_text.delta":
			text.WriteString(event.Delta)
		case "response.reasoning_summary_text.delta":
			thought.WriteString(event.Delta)
		case "response.function_call_arguments.delta":
			args.WriteString(event.Delta)
		case "response.completed":
			streamed = event.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text.String() != spokenText || thought.String() != spokenThought || args.String() != spokenArgs+"{}" {
		t.Errorf("got %q, %q and %q in pieces, want %q, %q and %q", text.String(), thought.String(), args.String(),
			spokenText, spokenThought, spokenArgs+"{}")
	}
	r := &streamed
	if len(r.Output) != 4 || r.Status != "completed" || r.Usage.InputTokens == 0 {
		t.Fatalf("got %s, want four finished items with usage", r.RawJSON())
	}
	reasoning, call := r.Output[0].AsReasoning(), r.Output[2].AsFunctionCall()
	if reasoning.Summary[0].Text != spokenThought || reasoning.EncryptedContent == "" {
		t.Errorf("got reasoning %s, want %q, sealed", reasoning.RawJSON(), spokenThought)
	}
	if r.OutputText() != spokenText {
		t.Errorf("got text %q, want %q", r.OutputText(), spokenText)
	}
	if call.Name != "bash" || call.Arguments != spokenArgs || call.CallID == "" {
		t.Errorf("got call %s, want bash with %s", call.RawJSON(), spokenArgs)
	}
}

func TestOpenAIsLibraryUnderstandsCompletions(t *testing.T) {
	p := serve(t, localmodel.Options{})
	client := openai.NewChatCompletionService(p.openaiOptions()...)
	params := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(spoken)},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}}

	var streamed openai.ChatCompletionAccumulator
	stream := client.NewStreaming(context.Background(), params)
	for stream.Next() {
		if !streamed.AddChunk(stream.Current()) {
			t.Fatalf("the library does not take %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	c := &streamed.ChatCompletion
	choice := c.Choices[0]
	if choice.Message.Content != spokenText || choice.FinishReason != "tool_calls" || len(choice.Message.ToolCalls) != 2 {
		t.Fatalf("got %+v, want %q and two calls", choice, spokenText)
	}
	call := choice.Message.ToolCalls[0]
	if call.Function.Name != "bash" || call.Function.Arguments != spokenArgs || call.ID == "" {
		t.Errorf("got call %+v, want bash with %s", call, spokenArgs)
	}
	if c.Usage.PromptTokens == 0 || c.Usage.TotalTokens != c.Usage.PromptTokens+c.Usage.CompletionTokens {
		t.Errorf("got usage %+v, want tokens that add up", c.Usage)
	}
}
