package contracts

import "encoding/json"

// The bodies of the HTTP surface. Requests are in
// camelCase and responses in snake_case; both are closed objects.

// An AttachRequest is the body of connections, sessions and subscribe. Every field
// is optional; a route ignores fields that it does not use.
type AttachRequest struct {
	SessionID           string              `json:"sessionId,omitempty"`    // not in subscribe, whose path has it
	ConnectionID        string              `json:"connectionId,omitempty"` // an earlier connection to continue
	ProtocolVersion     string              `json:"protocolVersion,omitempty"`
	ClientInfo          *ClientInfo         `json:"clientInfo,omitempty"`
	WorkspaceRoot       string              `json:"workspaceRoot,omitempty"` // must be the server's own
	Model               string              `json:"model,omitempty"`         // ignored: the server chooses its agent
	EnableClientTools   bool                `json:"enableClientTools,omitempty"`
	Capabilities        *AttachCapabilities `json:"capabilities,omitempty"`
	OptOutNotifications []Notification      `json:"optOutNotifications,omitempty" wire:"unique"`
	Role                Role                `json:"role,omitempty"`                                                   // default: the role header, else controller
	TakeControl         bool                `json:"takeControl,omitempty"`                                            // take the lease from its holder
	Client              string              `json:"client,omitempty" wire:"oneof=generic|vscode|jetbrains|conductor"` // ignored: clientInfo names the client
	ThinkingLevel       ThinkingLevel       `json:"thinkingLevel,omitempty"`                                          // of a new runtime
	ApprovalMode        ApprovalMode        `json:"approvalMode,omitempty"`                                           // of a new runtime; default: the approval mode header
	DisplayName         string              `json:"displayName,omitempty"`                                            // name that the user gives themselves; see [Author]
}

// AttachCapabilities are [Capabilities] in the spelling of HTTP requests.
type AttachCapabilities struct {
	ServerRequests    []RequestType      `json:"serverRequests,omitempty" wire:"unique"`
	UtilityOperations []UtilityOperation `json:"utilityOperations,omitempty" wire:"unique"`
	RawAgentEvents    bool               `json:"rawAgentEvents,omitempty"`
	People            bool               `json:"people,omitempty"`
}

// Hello returns the equivalent hello.
func (r *AttachRequest) Hello() *Hello {
	h := &Hello{
		ProtocolVersion: r.ProtocolVersion, ClientInfo: r.ClientInfo,
		Role: r.Role, OptOutNotifications: r.OptOutNotifications, DisplayName: r.DisplayName,
	}
	if c := r.Capabilities; c != nil {
		caps := Capabilities(*c)
		h.Capabilities = &caps
	}
	return h
}

// A SubscriptionRequest is the body of unsubscribe, heartbeat and disconnect.
// Headers may have the same values.
type SubscriptionRequest struct {
	ConnectionID   string `json:"connectionId,omitempty"`
	SubscriptionID string `json:"subscriptionId,omitempty"`
}

// A ConnectionAnswer answers connections.
type ConnectionAnswer struct {
	SessionID              string          `json:"session_id"`
	ConnectionID           string          `json:"connection_id"`
	Role                   Role            `json:"role"`
	ControllerLeaseGranted bool            `json:"controller_lease_granted"` // to this connection
	ControllerConnectionID *string         `json:"controller_connection_id"`
	LeaseExpiresAt         *string         `json:"lease_expires_at"` // when this connection expires
	HeartbeatIntervalMS    int64           `json:"heartbeat_interval_ms"`
	OptOutNotifications    []Notification  `json:"opt_out_notifications,omitempty"`
	Snapshot               json.RawMessage `json:"snapshot" wire:"body=snapshot,ready"`
}

// A SubscriptionAnswer answers subscribe.
type SubscriptionAnswer struct {
	ConnectionID             string          `json:"connection_id"`
	SubscriptionID           string          `json:"subscription_id"`
	OptOutNotifications      []Notification  `json:"opt_out_notifications,omitempty"`
	Role                     Role            `json:"role"`
	ControllerLeaseGranted   bool            `json:"controller_lease_granted"`
	ControllerSubscriptionID *string         `json:"controller_subscription_id"`
	ControllerConnectionID   *string         `json:"controller_connection_id"`
	LeaseExpiresAt           *string         `json:"lease_expires_at"`
	HeartbeatIntervalMS      int64           `json:"heartbeat_interval_ms"`
	Snapshot                 json.RawMessage `json:"snapshot" wire:"body=snapshot,ready"`
}

// A HeartbeatAnswer answers heartbeat.
type HeartbeatAnswer struct {
	ConnectionID           string  `json:"connection_id"`
	ControllerLeaseGranted bool    `json:"controller_lease_granted"`
	ControllerConnectionID *string `json:"controller_connection_id"`
	LeaseExpiresAt         *string `json:"lease_expires_at"`
	HeartbeatIntervalMS    int64   `json:"heartbeat_interval_ms"`
}

// A DisconnectAnswer answers disconnect.
type DisconnectAnswer struct {
	Success                bool     `json:"success"`
	ConnectionID           string   `json:"connection_id"`
	ControllerConnectionID *string  `json:"controller_connection_id"`
	Subscriptions          []string `json:"disconnected_subscription_ids"` // in order of creation
}

// A MessageAnswer answers an accepted message. Its snapshot includes the message's
// immediate effects.
type MessageAnswer struct {
	OK                bool            `json:"ok"`
	Success           bool            `json:"success"`
	Accepted          bool            `json:"accepted"`
	Cursor            uint64          `json:"cursor"`
	Execution         string          `json:"execution" wire:"oneof=transport_only|runtime_handled"`
	PublishedMessages uint64          `json:"published_messages"` // events of the message before the answer
	Message           string          `json:"message"`
	Snapshot          json.RawMessage `json:"snapshot" wire:"body=snapshot,ready"`
}

// A SuccessAnswer answers unsubscribe, logout and the revocation of a share.
type SuccessAnswer struct {
	Success bool `json:"success"`
}

// A WhoAmI says whose credential a request has, and what it allows.
type WhoAmI struct {
	Principal string `json:"principal"`            // id, as in Author
	Name      string `json:"name"`                 // display name, as in Author
	Role      Role   `json:"role"`                 // the most that its connections may be
	SessionID string `json:"session_id,omitempty"` // the only session that it may reach
	ExpiresAt string `json:"expires_at,omitempty"` // of the credential; ISO-8601 UTC; absent: never
	Version   string `json:"version,omitempty"`    // of the server
	WebPush   bool   `json:"web_push,omitempty"`   // the server sends Web Push to browsers that register
}

// A TicketRequest is the body of ws-tickets.
type TicketRequest struct {
	SessionID string `json:"sessionId,omitempty"` // the only session that the ticket is for
	Role      Role   `json:"role,omitempty"`      // viewer or approver limits the ticket to that role
	Login     bool   `json:"login,omitempty"`     // the ticket is for GET /login only, and valid for 10 minutes
}

// A TicketAnswer answers ws-tickets.
type TicketAnswer struct {
	Ticket    string `json:"ticket"`     // secret
	ExpiresAt string `json:"expires_at"` // ISO-8601 UTC
}

// A ShareRequest asks for a share of a session.
type ShareRequest struct {
	Role             Role   `json:"role,omitempty"`             // default: viewer
	ExpiresInSeconds *int64 `json:"expiresInSeconds,omitempty"` // 1 to 2592000; default: 86400
	Label            string `json:"label,omitempty"`            // at most 64 bytes, for people
}

// A ShareAnswer describes a share.
type ShareAnswer struct {
	ShareID   string `json:"share_id"`
	Token     string `json:"token,omitempty"` // secret; only for a new share
	Role      Role   `json:"role"`
	SessionID string `json:"session_id,omitempty"` // only for a new share
	Label     string `json:"label,omitempty"`      // not for a new share
	CreatedAt string `json:"created_at,omitempty"` // ISO-8601 UTC; not for a new share
	ExpiresAt string `json:"expires_at"`           // ISO-8601 UTC

	// How the share was used. Absent in the answer that makes it, and if it was never used.
	Uses         int64  `json:"uses,omitempty"`           // requests that it admitted
	LastUsedAt   string `json:"last_used_at,omitempty"`   // ISO-8601 UTC
	LastUsedFrom string `json:"last_used_from,omitempty"` // IP address of the last request
}

// A ShareList lists the shares of a session, the oldest first.
type ShareList struct {
	Shares []ShareAnswer `json:"shares"`
}

// A SessionList lists the sessions that the caller may reach, the latest first.
type SessionList struct {
	Sessions []SessionEntry `json:"sessions"`
	// Truncated says that there are more sessions than listed.
	Truncated bool `json:"truncated,omitempty"`
}

// A SessionEntry describes one session. A session that is not open is on disk and
// opens when a client attaches.
type SessionEntry struct {
	SessionID    string  `json:"session_id"`
	Open         bool    `json:"open"`
	UpdatedAt    string  `json:"updated_at"` // ISO-8601 UTC
	Cursor       *uint64 `json:"cursor"`     // null unless open
	IsResponding bool    `json:"is_responding"`
	Connections  int64   `json:"connection_count"`
	Pending      int64   `json:"pending_request_count"`
}

// An AgentOffer has what the agent of a session offers to clients that prompt it. It is
// empty if the agent has offered nothing yet.
type AgentOffer struct {
	Commands []AgentCommand `json:"commands"` // at most MaxAgentCommands
	Mode     string         `json:"mode,omitempty"`
}

// An AgentCommand is a command of an agent. A prompt that begins with a slash and the name
// runs the command.
type AgentCommand struct {
	Name        string `json:"name"` // without the slash
	Description string `json:"description,omitempty"`
	Hint        string `json:"hint,omitempty"` // what may follow the name
}

// A ConnectionList says who is connected to a session, the earliest first. At most
// MaxListed connections are listed.
type ConnectionList struct {
	Connections []ConnectionEntry `json:"connections"`
	Count       int64             `json:"connection_count"`
}

// A ConnectionEntry describes one connection. A connection that is not attached has no
// socket and no stream at the moment; its client may come back.
type ConnectionEntry struct {
	Author     Author `json:"author"`
	Role       Role   `json:"role"`
	Since      string `json:"since"`      // when the connection was made; ISO-8601 UTC
	Attached   bool   `json:"attached"`   // it has a socket or a stream
	Controller bool   `json:"controller"` // it holds the lease
}
