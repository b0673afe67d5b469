package contracts

import (
	"strings"
	"time"
)

// A Principal is an authenticated user or service. Its zero value is the anonymous
// local user.
type Principal struct {
	ID        string    // owns connections; stable, safe to log, never a credential
	Scope     string    // owner of the sessions, which are stored by scope and session id; empty for the owner of the server
	Role      Role      // viewer limits every connection to viewing; empty allows both
	SessionID string    // the only session it may reach; empty allows all of the scope
	Expires   time.Time // when the credential and its connections end, in UTC; zero: never
}

// Expired reports whether the principal's credential has expired at now.
func (p Principal) Expired(now time.Time) bool {
	return !p.Expires.IsZero() && !now.Before(p.Expires)
}

// Confined reports whether the credential is limited to one session or to viewing,
// as all shares are.
func (p Principal) Confined() bool { return p.SessionID != "" || p.Role == RoleViewer }

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
	ConnectionID string // an earlier connection to continue
	Principal    Principal
}
