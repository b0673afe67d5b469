package contracts

import "encoding/json"

// A Frame is one JSON text on a networked transport. From a client it is a
// bare [Command] or one of the ws.* control frames; from the server it is an
// envelope or one of the ws.* control frames.
type Frame interface {
	// FrameType returns the value of the frame's type key.
	FrameType() string
}

// Envelopes. Message and snapshot bodies are encoded once and
// shared by every client.

// MessageEnvelope carries one event with its cursor.
type MessageEnvelope struct {
	Cursor  uint64          `json:"cursor"`
	Message json.RawMessage `json:"message" wire:"body=event"`
}

// SnapshotEnvelope carries the whole state.
type SnapshotEnvelope struct {
	Snapshot json.RawMessage `json:"snapshot" wire:"body=snapshot"`
}

// HeartbeatEnvelope repeats the latest cursor.
type HeartbeatEnvelope struct {
	Cursor uint64 `json:"cursor"`
}

// ResetEnvelope means: discard everything and start from this snapshot.
type ResetEnvelope struct {
	Reason   ResetReason     `json:"reason"`
	Snapshot json.RawMessage `json:"snapshot" wire:"body=snapshot"`
}

// Control frames from a client. A usual exchange:
//
//	-> ws.resume {connection_token}          only when reconnecting
//	-> hello {...}
//	<- ws.attached {...}
//	<- snapshot | message... | reset
//	<- message {cursor, message: hello_ok}
//	-> ws.send {id, message: prompt}
//	<- ws.result {id, seq, cursor}
//	<- message...
//	-> ws.ask_control {id, reason}           the holder sees ws.control_request
//	<- ws.result {id, seq, cursor}
//	<- ws.lease {granted: true, reason: granted}
//	-> ws.bye {keep: false}

// Resume proves that this socket continues an earlier connection.
type Resume struct {
	ConnectionToken string `json:"connection_token"` // from ws.attached
}

// Send wraps a command for correlation. ID is at most 64 bytes and is also the
// idempotency key: a repeat gets the stored answer. Retryable refusals are not
// stored.
type Send struct {
	ID      string          `json:"id" wire:"sendid"`
	Message json.RawMessage `json:"message" wire:"body=command"`
}

// TakeControl takes the lease from its holder.
type TakeControl struct {
	ID string `json:"id,omitempty" wire:"id"`
}

// ReleaseControl releases the lease; the connection stays attached. If the lease is
// free, it changes nothing.
type ReleaseControl struct {
	ID string `json:"id,omitempty" wire:"id"`
}

// AskControl asks the holder for the lease. A free lease is granted at once.
type AskControl struct {
	ID     string `json:"id,omitempty" wire:"id"`
	Reason string `json:"reason,omitempty"`
}

// GrantControl hands the lease to a connection that asked.
type GrantControl struct {
	ID           string `json:"id,omitempty" wire:"id"`
	ConnectionID string `json:"connection_id"`
}

// DenyControl refuses a connection that asked.
type DenyControl struct {
	ID           string `json:"id,omitempty" wire:"id"`
	ConnectionID string `json:"connection_id"`
	Reason       string `json:"reason,omitempty"`
}

// Ping is an application heartbeat; browsers cannot send ping frames.
type Ping struct {
	ID string `json:"id,omitempty" wire:"id"`
}

// HistoryRequest asks for a part of the stored history before a cursor, also on stdio.
// The answer is a history envelope with the same id. Over HTTP, the path says the kind and the
// query has the other members.
type HistoryRequest struct {
	ID     string      `json:"id" wire:"id"`
	Kind   HistoryKind `json:"kind,omitempty"`   // default: entries
	Before uint64      `json:"before,omitempty"` // the part ends before this cursor; 0 or absent: with the newest entry
	Limit  int64       `json:"limit,omitempty"`  // most entries, turns or hits of the page, 1 to 1000; default: 100
	Bytes  int64       `json:"bytes,omitempty"`  // most bytes of messages, 1 to 524288; default: 262144. A page has at least one entry
	Turns  int64       `json:"turns,omitempty"`  // entries: the page begins with the prompt of so many turns ago, 1 to 100, unless it is cut
	Full   bool        `json:"full,omitempty"`   // entries: outputs are whole
	Query  string      `json:"query,omitempty"`  // search: the text to find, 1 to 256 bytes; case does not matter
}

// FollowLists says which lists a socket of lists carries from now on. The answer is
// ws.result; then each list that is new on the socket begins. A list that the frame does
// not name ends before the answer.
type FollowLists struct {
	ID    string     `json:"id,omitempty" wire:"id"`
	Lists []ListName `json:"lists" wire:"unique"`
	Limit int64      `json:"limit,omitempty"` // most sessions of a list, 1 to 500; default: 100
}

// AnswerQuestion answers a question of the inbox on a socket of lists. Message is a
// server_request_response. Ended in the ws.result says whether the question ended.
type AnswerQuestion struct {
	ID        string          `json:"id" wire:"id"`
	SessionID string          `json:"session_id" wire:"id"`
	Message   json.RawMessage `json:"message" wire:"body=command"`
}

// Ack tells the server which entry the client has applied.
type Ack struct {
	Cursor uint64 `json:"cursor"` // the last entry applied
}

// Bye ends the connection. With Keep it is only detached, and can be resumed within
// the usual time.
type Bye struct {
	Keep bool `json:"keep,omitempty"`
}

// Control frames from the server.

// HistoryEnvelope carries a page of the history: the answer to ws.history, or without
// an ID the page that an attaching client asked for. It does not move the cursor.
type HistoryEnvelope struct {
	ID   string      `json:"id,omitempty"`
	Page HistoryPage `json:"page"`
}

// ListEnvelope carries one event of a list to a socket that follows it. Exactly one of
// its members is present.
type ListEnvelope struct {
	Sessions *OverviewEvent `json:"sessions,omitempty"`
	Inbox    *InboxEvent    `json:"inbox,omitempty"`
}

// AttachLimits are the bounds a client must respect.
type AttachLimits struct {
	MaxFrameBytes int64 `json:"max_frame_bytes"`
	Mailbox       int64 `json:"mailbox"` // bytes of unread private frames
}

// Attached answers the handshake.
type Attached struct {
	SessionID              string       `json:"session_id"`
	ConnectionID           string       `json:"connection_id"`
	ConnectionToken        string       `json:"connection_token"` // secret; for ws.resume
	SubscriptionID         string       `json:"subscription_id"`
	Role                   Role         `json:"role"`
	ControllerLeaseGranted bool         `json:"controller_lease_granted"`
	ControllerConnectionID *string      `json:"controller_connection_id"`
	LeaseExpiresAt         *string      `json:"lease_expires_at"` // ISO-8601 UTC
	HeartbeatIntervalMS    int64        `json:"heartbeat_interval_ms"`
	Epoch                  string       `json:"epoch"`                                     // epoch of the cursors
	Resume                 string       `json:"resume" wire:"oneof=snapshot|replay|reset"` // what the stream starts with
	Limits                 AttachLimits `json:"limits"`
}

// Result answers an accepted client frame. ID is null for a bare message; Seq is
// the frame's ordinal number on this socket, from 1. Cursor is the journal's head
// after the frame's effects; 0 for ws.follow.
type Result struct {
	ID     *string `json:"id"`
	Seq    uint64  `json:"seq"`
	Cursor uint64  `json:"cursor"`
	Ended  *bool   `json:"ended,omitempty"` // of ws.answer only; false: the question needs more votes
}

// Refusal answers a refused client frame.
type Refusal struct {
	ID        *string       `json:"id"`
	Seq       uint64        `json:"seq"`
	Message   string        `json:"error"`
	Code      Code          `json:"code"`
	ErrorType Code          `json:"error_type"` // always equal to Code (A73)
	Retryable bool          `json:"retryable"`
	Details   []ErrorDetail `json:"details,omitempty"`
}

// LeaseChange tells the connections involved in a change of the lease how it ended.
type LeaseChange struct {
	Granted                bool        `json:"granted"`
	ControllerConnectionID *string     `json:"controller_connection_id"`
	Generation             uint64      `json:"generation"` // grows with each grant
	Reason                 LeaseReason `json:"reason"`
	Message                string      `json:"message,omitempty"`
}

// ControlRequest tells the holder that another connection asks for the lease.
type ControlRequest struct {
	ConnectionID string      `json:"connection_id"`
	ClientInfo   *ClientInfo `json:"client_info,omitempty"`
	Reason       string      `json:"reason,omitempty"`
	Author       *Author     `json:"author,omitempty"` // who asks; only for holders with the capability people
}

// Pong answers ws.ping.
type Pong struct {
	ID             *string `json:"id"`
	LeaseExpiresAt *string `json:"lease_expires_at"`
}

// Goodbye precedes a close by the server. Code is the close code.
type Goodbye struct {
	Code         int64  `json:"code"`
	Reason       string `json:"reason"` // the code
	Resume       bool   `json:"resume"` // reconnecting with the cursor makes sense
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

func (*MessageEnvelope) FrameType() string   { return "message" }
func (*SnapshotEnvelope) FrameType() string  { return "snapshot" }
func (*HeartbeatEnvelope) FrameType() string { return "heartbeat" }
func (*ResetEnvelope) FrameType() string     { return "reset" }
func (*Resume) FrameType() string            { return "ws.resume" }
func (*Send) FrameType() string              { return "ws.send" }
func (*TakeControl) FrameType() string       { return "ws.take_control" }
func (*ReleaseControl) FrameType() string    { return "ws.release_control" }
func (*AskControl) FrameType() string        { return "ws.ask_control" }
func (*GrantControl) FrameType() string      { return "ws.grant_control" }
func (*DenyControl) FrameType() string       { return "ws.deny_control" }
func (*Ping) FrameType() string              { return "ws.ping" }
func (*HistoryRequest) FrameType() string    { return "ws.history" }
func (*FollowLists) FrameType() string       { return "ws.follow" }
func (*AnswerQuestion) FrameType() string    { return "ws.answer" }
func (*Ack) FrameType() string               { return "ws.ack" }
func (*Bye) FrameType() string               { return "ws.bye" }
func (*HistoryEnvelope) FrameType() string   { return "history" }
func (*ListEnvelope) FrameType() string      { return "list" }
func (*Attached) FrameType() string          { return "ws.attached" }
func (*Result) FrameType() string            { return "ws.result" }
func (*Refusal) FrameType() string           { return "ws.error" }
func (*LeaseChange) FrameType() string       { return "ws.lease" }
func (*ControlRequest) FrameType() string    { return "ws.control_request" }
func (*Pong) FrameType() string              { return "ws.pong" }
func (*Goodbye) FrameType() string           { return "ws.goodbye" }

// A Message is a bare command as a client frame.
type Message struct{ Command Command }

// FrameType returns the command's type.
func (m *Message) FrameType() string { return m.Command.CommandType() }

// allClientControls and allServerFrames have a nil frame of each type, in wire order.
var (
	allClientControls = []Frame{
		(*Resume)(nil), (*Send)(nil), (*TakeControl)(nil), (*ReleaseControl)(nil), (*AskControl)(nil), (*GrantControl)(nil),
		(*DenyControl)(nil), (*Ping)(nil), (*HistoryRequest)(nil), (*FollowLists)(nil), (*AnswerQuestion)(nil),
		(*Ack)(nil), (*Bye)(nil),
	}
	allServerFrames = []Frame{
		(*MessageEnvelope)(nil), (*SnapshotEnvelope)(nil), (*HeartbeatEnvelope)(nil), (*ResetEnvelope)(nil), (*HistoryEnvelope)(nil),
		(*ListEnvelope)(nil), (*Attached)(nil), (*Result)(nil), (*Refusal)(nil), (*LeaseChange)(nil), (*ControlRequest)(nil), (*Pong)(nil), (*Goodbye)(nil),
	}
)

// NewRefusal returns the answer to a refused frame, the seq-th of its socket.
func NewRefusal(id *string, seq uint64, why *Error) *Refusal {
	return &Refusal{
		ID: id, Seq: seq, Message: why.Message, Code: why.Code, ErrorType: why.Code,
		Retryable: why.Code.Retryable(), Details: why.Details(),
	}
}

// NewGoodbye returns the last frame of a socket that is closed for a reason. Nil is a
// normal end.
func NewGoodbye(why *Error) *Goodbye {
	if why == nil {
		return &Goodbye{Code: 1000, Reason: "normal"}
	}
	bye := &Goodbye{Code: int64(why.Code.CloseCode()), Reason: string(why.Code), Resume: why.Code.Retryable()}
	if bye.Resume {
		bye.RetryAfterMS = 1000
	}
	return bye
}
