package provider

import "encoding/json"

// The members of OpenAI Responses that we send and read.
type (
	responsesRequest struct {
		Instructions    string              `json:"instructions,omitempty"`
		MaxOutputTokens int64               `json:"max_output_tokens,omitempty"`
		Store           bool                `json:"store"`
		Include         []string            `json:"include,omitempty"`
		Metadata        map[string]string   `json:"metadata,omitempty"`
		Input           []any               `json:"input"` // responsesInput, or reasoning as it came
		Model           string              `json:"model"`
		Reasoning       *responsesReasoning `json:"reasoning,omitempty"`
		Tools           []responsesTool     `json:"tools,omitempty"`
		Stream          bool                `json:"stream"`
	}

	responsesReasoning struct {
		Effort  string `json:"effort"`
		Summary string `json:"summary,omitempty"`
	}

	responsesTool struct {
		Strict      bool            `json:"strict"`
		Parameters  json.RawMessage `json:"parameters"`
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Type        string          `json:"type"`
	}

	// responsesInput is an item of any type; a message has none.
	responsesInput struct {
		Content   any    `json:"content,omitempty"` // text or []responsesContent
		Role      string `json:"role,omitempty"`
		Output    any    `json:"output,omitempty"` // text or []responsesContent
		Arguments string `json:"arguments,omitempty"`
		CallID    string `json:"call_id,omitempty"`
		Name      string `json:"name,omitempty"`
		Type      string `json:"type,omitempty"`
	}

	responsesContent struct {
		Text     string `json:"text,omitempty"`
		Detail   string `json:"detail,omitempty"`
		ImageURL string `json:"image_url,omitempty"`
		Type     string `json:"type"`
	}
)

// responsesEvent is an event of any type.
type responsesEvent struct {
	Type        string            `json:"type"`
	OutputIndex int64             `json:"output_index"`
	Delta       string            `json:"delta"`
	Item        json.RawMessage   `json:"item"`
	Response    responsesResponse `json:"response"`
}

type responsesResponse struct {
	Model             string          `json:"model"`
	Status            string          `json:"status"`
	Error             json.RawMessage `json:"error"`
	IncompleteDetails struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Output []json.RawMessage `json:"output"`
	Usage  struct {
		Input        int64 `json:"input_tokens"`
		InputDetails struct {
			CacheRead  int64 `json:"cached_tokens"`
			CacheWrite int64 `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
}

// responsesOutput is an item of any type.
type responsesOutput struct {
	Type    string `json:"type"`
	Content []struct {
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
	CallID           string `json:"call_id"`
	Name             string `json:"name"`
	Arguments        string `json:"arguments"`
	EncryptedContent string `json:"encrypted_content"`
}
