package provider

import "encoding/json"

// The members of Anthropic Messages that we send and read.
type (
	anthropicRequest struct {
		MaxTokens    int64              `json:"max_tokens"`
		Messages     []anthropicMessage `json:"messages"`
		Model        string             `json:"model"`
		Metadata     *anthropicMetadata `json:"metadata,omitempty"`
		OutputConfig *anthropicOutput   `json:"output_config,omitempty"`
		System       []anthropicContent `json:"system,omitempty"`
		Thinking     *anthropicThinking `json:"thinking,omitempty"`
		Tools        []anthropicTool    `json:"tools,omitempty"`
		Stream       bool               `json:"stream"`
	}

	anthropicMetadata struct {
		UserID string `json:"user_id"`
	}

	anthropicOutput struct {
		Effort string `json:"effort"`
	}

	anthropicThinking struct {
		Display      string `json:"display,omitempty"`
		BudgetTokens int64  `json:"budget_tokens,omitempty"`
		Type         string `json:"type"`
	}

	anthropicTool struct {
		InputSchema  json.RawMessage `json:"input_schema"`
		Name         string          `json:"name"`
		CacheControl *anthropicCache `json:"cache_control,omitempty"`
		Description  string          `json:"description,omitempty"`
	}

	anthropicMessage struct {
		Content []anthropicContent `json:"content"`
		Role    string             `json:"role"`
	}

	// anthropicContent is a block of any type.
	anthropicContent struct {
		ID           string             `json:"id,omitempty"` // of tool_use
		Input        json.RawMessage    `json:"input,omitempty"`
		Name         string             `json:"name,omitempty"`
		Signature    string             `json:"signature,omitempty"` // of thinking
		Thinking     *string            `json:"thinking,omitempty"`
		Data         string             `json:"data,omitempty"`        // of redacted_thinking
		ToolUseID    string             `json:"tool_use_id,omitempty"` // of tool_result
		IsError      bool               `json:"is_error,omitempty"`
		Text         string             `json:"text,omitempty"`
		Source       *anthropicSource   `json:"source,omitempty"` // of image
		CacheControl *anthropicCache    `json:"cache_control,omitempty"`
		Content      []anthropicContent `json:"content,omitempty"` // of tool_result
		Type         string             `json:"type"`
	}

	anthropicSource struct {
		Data      string `json:"data"`
		MediaType string `json:"media_type"`
		Type      string `json:"type"`
	}

	anthropicCache struct {
		Type string `json:"type"`
	}
)

// anthropicEvent is an event of any type.
type anthropicEvent struct {
	Type    string `json:"type"`
	Index   int64  `json:"index"`
	Message struct {
		Model string         `json:"model"`
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	ContentBlock anthropicStart `json:"content_block"`
	Delta        struct {
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage anthropicUsage `json:"usage"`
}

// anthropicStart is a block as it begins.
type anthropicStart struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
}

type anthropicUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}
