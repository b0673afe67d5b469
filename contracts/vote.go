package contracts

// RequestShown comes before the server_request of a question. It names the digest that
// an answer may echo, and shows the question in a form without hidden characters.
type RequestShown struct {
	RequestID   string `json:"request_id"`
	Digest      string `json:"digest"`                 // of the whole request: sha256: and 64 hex digits
	Display     string `json:"display"`                // the tool, and the args as JSON, with escapes for hidden characters
	Escaped     bool   `json:"escaped,omitempty"`      // display has escapes of characters that do not show what they are
	Truncated   bool   `json:"truncated,omitempty"`    // display, or args in the server_request, is only the beginning
	VotesNeeded int64  `json:"votes_needed,omitempty"` // principals that must approve; absent if one answer decides
}

// RequestVoted says who approved or denied a question that needs several votes. A
// denial ends the question, and so does the last vote that it needs.
type RequestVoted struct {
	RequestID   string `json:"request_id"`
	Approved    bool   `json:"approved"`
	Author      Author `json:"author"`
	Votes       int64  `json:"votes"`        // principals that have approved
	VotesNeeded int64  `json:"votes_needed"` // principals that must approve
	Timestamp   string `json:"timestamp"`    // ISO-8601 UTC
}

// ShownRecord is a request_shown in the state, with the votes since. Its display is cut
// to MaxPromptRecord.
type ShownRecord struct {
	RequestID   string   `json:"request_id"`
	Digest      string   `json:"digest"`
	Display     string   `json:"display"`
	Escaped     bool     `json:"escaped,omitempty"`
	Truncated   bool     `json:"truncated,omitempty"`
	VotesNeeded int64    `json:"votes_needed,omitempty"`
	Votes       []Author `json:"votes,omitempty"` // who has approved, the first first
}

func (*RequestShown) EventType() string { return "request_shown" }
func (*RequestVoted) EventType() string { return "request_voted" }
