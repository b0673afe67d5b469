package contracts

import (
	"strings"
	"time"
)

// A Principal is an authenticated user or service. Its zero value is the anonymous
// local user.
type Principal struct {
	ID   string // owns connections; stable, safe to log, never a credential
	Name string // display name, for people; at most MaxLabelBytes, from [CleanLabel]
	// Credential is the id of the credential, safe to log; empty if a principal has
	// only one, so that ID names it.
	Credential string

	Scope     string    // owner of the sessions, which are stored by scope and session id; empty for the owner of the server
	Role      Role      // viewer and approver limit every connection; empty allows every role
	SessionID string    // the only session it may reach; empty allows all of the scope
	Expires   time.Time // when the credential and its connections end, in UTC; zero: never
}

// Expired reports whether the principal's credential has expired at now.
func (p Principal) Expired(now time.Time) bool {
	return !p.Expires.IsZero() && !now.Before(p.Expires)
}

// Allows reports whether the principal's connections may have the role.
func (p Principal) Allows(role Role) bool {
	return p.Role == "" || role == p.Role || role == RoleViewer
}

// CheckRole refuses a role that the credential does not allow.
func (p Principal) CheckRole(role Role) error {
	switch {
	case p.Allows(role):
		return nil
	case p.Role == RoleApprover:
		return &Error{Code: CodeAccessDenied, Message: "this credential only allows viewing and answering questions"}
	}
	return &Error{Code: CodeAccessDenied, Message: "this credential only allows viewing"}
}

// Confined reports whether the credential is limited to one session or one role, as
// all shares are.
func (p Principal) Confined() bool { return p.SessionID != "" || p.Role != "" }

// Owner reports whether p is the owner of the server.
func (p Principal) Owner() bool { return p.Scope == "" && !p.Confined() }

// ValidID reports whether id is a legal id of a session or connection: 1 to 128 of
// [A-Za-z0-9._:-], except . and .., which would change a path.
func ValidID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= MaxIDBytes && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-", r)
	})
}

// HeaderConnectionToken is the HTTP header that carries a connection's secret: in
// the answer that makes the connection, and in every request about it.
const HeaderConnectionToken = "X-Maestro-Headless-Connection-Token"

// A Takeover says what attaching as controller does if another connection holds the
// lease.
type Takeover string

const (
	TakeoverRefuse Takeover = ""      // refuse the attachment (4409)
	TakeoverForce  Takeover = "1"     // take the lease
	TakeoverLater  Takeover = "later" // attach without the lease; ask for it afterwards
)

// An Attach holds the parameters of an attachment from before its first frame: on
// WebSocket those of the query.
type Attach struct {
	SessionID    string
	Create       bool // an unknown session may be created
	Role         Role // empty if hello chooses it
	Takeover     Takeover
	Cursor       *int64 // the last entry applied; nil asks for a snapshot
	Epoch        string // epoch of the cursor; empty if the client does not know it
	Turns        int    // without a valid cursor: the page of history that follows the snapshot, in turns; 0: none
	ConnectionID string // an earlier connection to continue
	Principal    Principal
}

// A Caller is the sender of one HTTP request: its credential and its headers.
type Caller struct {
	Principal      Principal
	Role           Role   // if a header asks for it, otherwise empty
	Token          string // the connection's secret, or empty
	ConnectionID   string // the connection it acts for, or empty
	SubscriptionID string // the subscription, or empty
	Trace          string // W3C traceparent, or empty
}

// A StreamRequest holds the parameters of a request for the event stream.
type StreamRequest struct {
	SubscriptionID string         // subscription to continue; empty makes one for this stream
	Cursor         *int64         // the last entry applied; nil asks for a snapshot
	Epoch          string         // epoch of the cursor; empty if the client does not know it
	Turns          int            // as in Attach
	OptOuts        []Notification // used only without SubscriptionID
}

// A Conn is a connected client. The transports implement it.
//
// Close must unblock ReadFrame and Write, because its user has no other way to
// interrupt a peer that stopped reading. ReadFrame is called from one goroutine,
// Write from one goroutine at a time, Close and LastSeen from any.
type Conn interface {
	Form() Form

	// ReadFrame returns the next JSON text, which is valid until the next call. A
	// *Error means that this frame could not be read, such as an
	// over-long line, but the next one can. io.EOF is a regular end. Any other
	// error ends the connection.
	ReadFrame() ([]byte, error)

	// Write sends whole frames that the form encoded. It fails with
	// os.ErrDeadlineExceeded if the peer has not read them within the write
	// timeout.
	Write(frames []byte) error

	// LastSeen returns when the peer last sent anything, control frames included.
	// It returns the zero time if the peer cannot send on this connection.
	LastSeen() time.Time

	// Close ends the connection with a reason; nil is a normal end. Only the first
	// call has an effect. It does not wait for the peer.
	Close(why *Error)
}

// A Form encodes the frames of one kind of wire. Forms are compared with ==: all
// connections with equal forms share the frames, which are made once and lie
// contiguously in memory (D2).
//
// It is in this package because the transports implement it and the hub uses it,
// and neither imports the other.
type Form interface {
	// AppendMessage appends the frame of an event whose JSON is body.
	AppendMessage(dst []byte, cursor uint64, body []byte) []byte
	// AppendSnapshot appends the frame of a snapshot whose JSON is body. A wire
	// without snapshots appends nothing.
	AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte
	// AppendReset appends the frame that makes a client replace its state by body.
	AppendReset(dst []byte, cursor uint64, reason ResetReason, body []byte) []byte
	// AppendHeartbeat appends the heartbeat of an idle connection: on WebSocket a
	// ping frame, and unless quiet the heartbeat envelope.
	AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte
	// AppendOpening appends the first bytes of a new connection; none on most
	// wires.
	AppendOpening(dst []byte) []byte
	// AppendHistory appends an envelope with a page of the history, which is one JSON
	// text. A wire without envelopes appends nothing.
	AppendHistory(dst []byte, text []byte) []byte
	// AppendControl appends a control frame: one JSON text.
	AppendControl(dst []byte, text []byte) []byte
}
