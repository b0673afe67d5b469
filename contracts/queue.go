package contracts

// The queue of a session holds prompts that wait for the end of the active run. The
// commands of this file, and a prompt with the key when, need the capability people.

// QueueEdit replaces the content of a prompt in the queue. The author of the prompt is
// then the client that edited it.
type QueueEdit struct {
	PromptID string `json:"prompt_id" wire:"id"`
	Content  string `json:"content"`
}

// QueueMove moves a prompt in the queue.
type QueueMove struct {
	PromptID string  `json:"prompt_id" wire:"id"`
	Before   *string `json:"before"` // prompt_id of the prompt that then follows; null: the end of the queue
}

// QueueCancel removes a prompt from the queue.
type QueueCancel struct {
	PromptID string `json:"prompt_id" wire:"id"`
}

// QueueResume lets a held queue go on.
type QueueResume struct{}

// QueueChanged holds the whole queue after a change.
type QueueChanged struct {
	Prompts []QueuedPrompt `json:"prompts"`        // the first starts next; at most MaxQueued
	Held    bool           `json:"held,omitempty"` // no prompt starts until queue_resume
}

// A QueuedPrompt is a prompt in the queue as clients see it. Its content is cut to
// MaxPromptRecord.
type QueuedPrompt struct {
	PromptID    string     `json:"prompt_id"` // also that of its prompt_accepted
	Content     string     `json:"content"`
	Truncated   bool       `json:"truncated,omitempty"`   // content is only the beginning of the prompt
	Attachments []string   `json:"attachments,omitempty"` // names of the files, without their folders
	Author      Author     `json:"author"`
	Timestamp   string     `json:"timestamp"` // when it was queued or edited; ISO-8601 UTC
	When        PromptTime `json:"when"`      // next or steer
}

func (*QueueChanged) EventType() string { return "queue_changed" }

// A KeptQueue is a queue as it is stored across a restart.
type KeptQueue struct {
	Prompts []KeptPrompt `json:"prompts"`
	Held    bool         `json:"held,omitempty"`
}

// A KeptPrompt is a whole prompt that waits. Attachments are paths.
type KeptPrompt struct {
	PromptID    string     `json:"prompt_id"`
	Content     string     `json:"content"`
	Attachments []string   `json:"attachments,omitempty"`
	Author      Author     `json:"author"`
	Timestamp   string     `json:"timestamp"` // when it was queued or edited; ISO-8601 UTC
	When        PromptTime `json:"when"`
}
