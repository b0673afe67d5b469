package contracts

// An InboxQuestion is an open question in an inbox, with what a person needs to answer
// it.
type InboxQuestion struct {
	SessionID    string      `json:"session_id"`
	SessionTitle string      `json:"session_title"`
	RequestID    string      `json:"request_id"`
	RequestType  RequestType `json:"request_type"`
	CallID       string      `json:"call_id"`
	Tool         string      `json:"tool"`
	Description  string      `json:"description"`            // what the agent wants to do; may be empty
	Reason       string      `json:"reason"`                 // why the agent asks
	Display      string      `json:"display"`                // the tool and its args; see RequestShown
	Escaped      bool        `json:"escaped,omitempty"`      // display has escapes of characters that do not show what they are
	Truncated    bool        `json:"truncated,omitempty"`    // the texts are only the beginning of the request
	Digest       string      `json:"digest,omitempty"`       // of the whole request; an answer may echo it
	Votes        int64       `json:"votes,omitempty"`        // principals that have approved
	VotesNeeded  int64       `json:"votes_needed,omitempty"` // principals that must approve; absent if one answer decides
	AskedAt      string      `json:"asked_at"`               // ISO-8601 UTC
	ExpiresAt    string      `json:"expires_at,omitempty"`   // ISO-8601 UTC; absent: never
}

// An Inbox lists the open questions of all sessions that the caller may answer, the
// oldest first.
type Inbox struct {
	Questions []InboxQuestion `json:"questions"`
	// Truncated says that there are more questions than listed.
	Truncated bool `json:"truncated,omitempty"`
}

// An InboxEnding says how a question ended. Resolution is absent if the session is not
// listed any more, such as after its deletion. Author is absent if nobody answered.
type InboxEnding struct {
	SessionID  string   `json:"session_id"`
	RequestID  string   `json:"request_id"`
	Resolution Verdict  `json:"resolution,omitempty"`
	ResolvedBy Resolver `json:"resolved_by,omitempty"`
	Author     *Author  `json:"author,omitempty"`
}

// An InboxEvent is one event of the stream of an inbox.
type InboxEvent struct {
	Type string `json:"type" wire:"oneof=questions|question|ended"`
	// Inbox is the list. The client forgets what it knew.
	Inbox *Inbox `json:"inbox,omitempty"`
	// Question is a new question, or one with a new vote.
	Question *InboxQuestion `json:"question,omitempty"`
	// Ended is a question that is not open any more.
	Ended *InboxEnding `json:"ended,omitempty"`
}

// An InboxAnswer is the body of an answer to a question of an inbox.
type InboxAnswer struct {
	Approved       *bool          `json:"approved,omitempty"`       // approvals; required for them
	Note           string         `json:"note,omitempty"`           // the reason of an approval or a retry
	Digest         string         `json:"digest,omitempty"`         // of the request that the client showed
	DecisionAction RetryAction    `json:"decisionAction,omitempty"` // tool retries
	Content        []ContentBlock `json:"content,omitempty"`        // user input and elicitations
	IsError        bool           `json:"isError,omitempty"`        // user input and elicitations: the request ends as failed
}

// An InboxReceipt answers an answer that counts.
type InboxReceipt struct {
	SessionID string `json:"session_id"`
	RequestID string `json:"request_id"`
	Ended     bool   `json:"ended"`  // false: the question needs more votes
	Cursor    uint64 `json:"cursor"` // of the answer in the history of the session
}
