package contracts

import "time"

// A Principal is who authenticated. Its zero value is the anonymous local user.
type Principal struct {
	ID        string    // stable, and safe to log; never a credential; owns connections
	Scope     string    // whose sessions: they are kept by scope and session id; empty is the server owner's own
	Role      Role      // viewer caps every connection to viewing; empty allows both
	SessionID string    // the only session it may reach; empty allows all of the scope
	Expires   time.Time // when the credential ends, and with it every connection; in UTC; zero is never
}

// Expired reports whether the principal's credential has ended by now.
func (p Principal) Expired(now time.Time) bool {
	return !p.Expires.IsZero() && !now.Before(p.Expires)
}

// Confined reports whether the credential is for one session or for viewing, as
// all shares are.
func (p Principal) Confined() bool { return p.SessionID != "" || p.Role == RoleViewer }

// Owner reports whether p is the owner of the server.
func (p Principal) Owner() bool { return p.Scope == "" && !p.Confined() }

// HeaderConnectionToken is the HTTP header that carries a connection's secret: in
// the answer that makes the connection, and in every request about it.
const HeaderConnectionToken = "X-Maestro-Headless-Connection-Token"

// A Takeover says what attaching as controller does to a lease held elsewhere.
type Takeover string

const (
	TakeoverRefuse Takeover = ""      // refuse the attachment (4409)
	TakeoverForce  Takeover = "1"     // take the lease
	TakeoverLater  Takeover = "later" // attach without the lease; ask for it afterwards
)

// An Attach is what a client said before its first frame: on WebSocket the
// query, elsewhere the equivalent.
type Attach struct {
	SessionID    string
	Create       bool     // an unknown session may be created
	Role         Role     // empty where only hello chooses it
	Takeover     Takeover //
	Cursor       *int64   // the last entry applied; nil asks for a snapshot
	Epoch        string   // the journal the cursor counts in; empty if the client does not know
	ConnectionID string   // an earlier connection to continue
	Principal    Principal
}
