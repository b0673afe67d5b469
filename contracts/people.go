package contracts

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Who did what. A client that negotiated the capability people gets the events of this
// file, the author of server_request_resolved, and the key people in the state of its
// snapshots. Other clients get none of them.

// An Author is the person or program that did something. Principal and Name come from
// the credential. ClaimedName and ClientInfo are what the client says about itself, and
// nobody has checked them.
type Author struct {
	Principal    string      `json:"principal"`               // id of the principal; empty for the local user
	Name         string      `json:"name"`                    // display name of the principal
	ClaimedName  string      `json:"claimed_name,omitempty"`  // display_name of the hello
	ClientInfo   *ClientInfo `json:"client_info,omitempty"`   // of the hello
	ConnectionID string      `json:"connection_id,omitempty"` // absent if it acted without a connection
}

// PromptAccepted says who started a run with what. It comes before every other event
// of the run. It comes during a run if the agent took the prompt to steer the run.
type PromptAccepted struct {
	PromptID    string   `json:"prompt_id"`
	Content     string   `json:"content"`               // at most MaxPromptBytes
	Truncated   bool     `json:"truncated,omitempty"`   // content is only the beginning of the prompt
	Attachments []string `json:"attachments,omitempty"` // names of the files, without their folders
	Author      Author   `json:"author"`
	Timestamp   string   `json:"timestamp"` // ISO-8601 UTC
}

// ControlChanged says that the controller lease moved. From and To are null where
// the lease was or is free.
type ControlChanged struct {
	From      *Author     `json:"from"`
	To        *Author     `json:"to"`
	Reason    LeaseReason `json:"reason"`
	Timestamp string      `json:"timestamp"` // ISO-8601 UTC
}

// People is the part of the state that says who did what last. A snapshot without it
// does not change the people that a client knows.
type People struct {
	Prompts    []PromptRecord `json:"prompts"`              // the last MaxPeople, the oldest first
	Answers    []AnswerRecord `json:"answers"`              // the last MaxPeople, the oldest first
	Requests   []ShownRecord  `json:"requests"`             // the pending ones, the oldest first
	Controller *Author        `json:"controller"`           // holder of the lease, or null
	Queue      []QueuedPrompt `json:"queue,omitempty"`      // as in the last queue_changed
	QueueHeld  bool           `json:"queue_held,omitempty"` // as in the last queue_changed
}

// PromptRecord is a prompt_accepted in the state. Its content is cut to
// MaxPromptRecord, and truncated says so.
type PromptRecord PromptAccepted

// AnswerRecord is an answer to a request in the state. A request that ended without an
// answer, such as by a timeout, has none.
type AnswerRecord struct {
	RequestID  string  `json:"request_id"`
	CallID     string  `json:"call_id"`
	Resolution Verdict `json:"resolution"`
	Author     Author  `json:"author"`
	Timestamp  string  `json:"timestamp"`
}

func (*PromptAccepted) EventType() string { return "prompt_accepted" }
func (*ControlChanged) EventType() string { return "control_changed" }

// AboutPeople reports whether only clients with the capability people get an event.
func AboutPeople(ev Event) bool {
	switch ev.(type) {
	case *PromptAccepted, *ControlChanged, *QueueChanged, *RequestShown, *RequestVoted:
		return true
	}
	return false
}

// AddPeople returns a copy of an encoded snapshot with people in its state. The
// snapshot must have been encoded without people.
func AddPeople(snapshot []byte, people *People) ([]byte, error) {
	encoded, err := encode(nil, people, CodeInternal, "Failed to emit headless snapshot: ")
	if err != nil {
		return nil, err
	}
	end := len(snapshot) - len("}}") // people is the last key of the state, and the state that of the snapshot
	return slices.Concat(snapshot[:end], []byte(`,"people":`), encoded.Body, []byte("}}")), nil
}

var peopleType = nestedType(reflect.TypeFor[People]())

// CleanLabel returns a name in the form in which others may see it: at most limit
// bytes of UTF-8 on one line, without control characters and without characters that
// reorder text.
func CleanLabel(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	if s = strings.TrimSpace(s); len(s) > limit {
		s = strings.TrimSpace(SplitText(s, limit)[0])
	}
	return s
}

// CleanTitle returns a text as the title of a session: a label without line breaks.
func CleanTitle(text string) string {
	return CleanLabel(strings.Join(strings.Fields(text), " "), MaxTitleBytes)
}
