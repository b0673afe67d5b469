package client

import (
	"net/url"
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// A place is how far a client has come in a session, and what it needs to
// continue from there. It holds the cursor rules: no entry is shown twice, and
// none is skipped.
type place struct {
	session    string // empty until known
	connection string // the connection to continue; empty if none
	token      string // proves that the connection is ours

	epoch  string
	cursor uint64
	known  bool // cursor counts; if not, the next snapshot does

	// replaying is set between the handshake and the hello_ok that the server
	// puts behind what was missed.
	replaying bool
}

// attached takes over what the server said in its handshake. Unless the server
// continues where the client was, the next snapshot is a new beginning, however
// small its cursor.
func (p *place) attached(a *contracts.Attached) {
	p.session, p.connection, p.token = a.SessionID, a.ConnectionID, a.ConnectionToken
	p.epoch = a.Epoch
	p.replaying = a.Resume == "replay"
	if !p.replaying {
		p.known = false
	}
}

// message reports whether the message at cursor is to be applied, and advances.
func (p *place) message(cursor uint64) bool {
	if p.known && cursor <= p.cursor {
		return false
	}
	p.advance(cursor)
	return true
}

// advance moves to cursor, forwards or, for a reset, anywhere.
func (p *place) advance(cursor uint64) { p.cursor, p.known = cursor, true }

// heartbeat reports whether a heartbeat at cursor is plausible. It does not
// advance: what it repeats may still be on its way.
func (p *place) heartbeat(cursor uint64) bool { return !p.known || cursor >= p.cursor }

// leave forgets the connection and keeps the place in the journal: the server
// no longer knows the one but may have the other.
func (p *place) leave() { p.connection, p.token = "", "" }

// forget starts over: the session as it was is gone.
func (p *place) forget() { *p = place{} }

// fresh reports whether there is nothing to forget.
func (p *place) fresh() bool { return p.connection == "" && !p.known && p.epoch == "" }

// query returns what a client at p says when it attaches.
func (p *place) query(c *config, takeover contracts.Takeover) url.Values {
	q := url.Values{"role": {string(c.hello.Role)}}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	session := p.session
	if session == "" {
		session = c.session
		if c.create {
			q.Set("create", "1")
		}
	}
	set("sessionId", session)
	set("takeControl", string(takeover))
	set("connectionId", p.connection)
	if p.known {
		set("epoch", p.epoch)
		q.Set("cursor", strconv.FormatUint(p.cursor, 10))
	}
	return q
}
