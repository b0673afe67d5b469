package provider

import "encoding/json"

// The members of Chat Completions that we send and read.
type (
	chatRequest struct {
		Messages            []chatMessage     `json:"messages"`
		Model               string            `json:"model"`
		MaxCompletionTokens int64             `json:"max_completion_tokens,omitempty"`
		MaxTokens           int64             `json:"max_tokens,omitempty"`
		ReasoningEffort     string            `json:"reasoning_effort,omitempty"`
		StreamOptions       chatStreamOptions `json:"stream_options"`
		Tools               []chatTool        `json:"tools,omitempty"`
		Stream              bool              `json:"stream"`
	}

	chatStreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}

	chatTool struct {
		Function chatFunction `json:"function"`
		Type     string       `json:"type"`
	}

	chatFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}

	// chatMessage is a message of any role.
	chatMessage struct {
		Content          any            `json:"content,omitempty"` // text or []chatContent
		ToolCalls        []chatToolCall `json:"tool_calls,omitempty"`
		ToolCallID       string         `json:"tool_call_id,omitempty"`
		Role             string         `json:"role"`
		ReasoningContent string         `json:"reasoning_content,omitempty"`
	}

	chatContent struct {
		Text     string     `json:"text,omitempty"`
		ImageURL *chatImage `json:"image_url,omitempty"`
		Type     string     `json:"type"`
	}

	chatImage struct {
		URL string `json:"url"`
	}

	// chatToolCall is a call in a request, and a piece of one in an answer.
	chatToolCall struct {
		Index    int64            `json:"index,omitempty"` // only in an answer
		ID       string           `json:"id"`
		Function chatCallFunction `json:"function"`
		Type     string           `json:"type"`
	}

	chatCallFunction struct {
		Arguments string `json:"arguments"`
		Name      string `json:"name"`
	}
)

// A chatChunk is an event.
type chatChunk struct {
	Model   string     `json:"model"`
	Usage   *chatUsage `json:"usage"`
	Choices []struct {
		Index        int64     `json:"index"`
		Delta        chatDelta `json:"delta"`
		FinishReason string    `json:"finish_reason"`
	} `json:"choices"`
}

// A chatDelta is a piece of a message. Compatible services have thinking under
// either name.
type chatDelta struct {
	Content          string         `json:"content"`
	Refusal          string         `json:"refusal"`
	ReasoningContent string         `json:"reasoning_content"`
	Reasoning        string         `json:"reasoning"`
	ToolCalls        []chatToolCall `json:"tool_calls"`
}

type chatUsage struct {
	Prompt        int64 `json:"prompt_tokens"`
	PromptDetails struct {
		CacheRead  int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	Completion int64 `json:"completion_tokens"`
}
