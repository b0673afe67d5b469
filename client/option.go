package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// defaultBuffer is how many bytes of received frames may be unread by [Client.Next].
const defaultBuffer = 4 << 20

// An Option changes how [Dial] attaches. A nil Option has no effect.
type Option func(*config)

// config holds the options.
type config struct {
	token     string // with tokenFile: the last token that was read
	tokenFile string
	header    func(http.Header) // nil: no headers of the caller

	hello    contracts.Hello
	takeover contracts.Takeover
	session  string
	create   bool
	cursor   *uint64 // nil asks for a snapshot
	epoch    string
	tail     uint64 // number of latest entries to start with; 0: not used
	turns    int    // number of latest turns to start with; 0: none

	reconnect Reconnect
	dialer    func(context.Context) (net.Conn, error)
	log       *slog.Logger
	buffer    int
}

// A Reconnect says how a client reconnects after its connection was lost: after delays
// that double, each shortened by up to half at random, so that the clients of a
// restarted server do not all return at once. The client waits longer if the server
// says so (retry_after_ms). The zero value is the default.
type Reconnect struct {
	First    time.Duration // the first delay; zero means 250 ms
	Max      time.Duration // the longest delay; zero means 10 s
	Attempts int           // consecutive failures before giving up; zero: no limit; negative: give up at the first
}

// WithToken sends token as the bearer credential.
func WithToken(token string) Option {
	return func(c *config) { c.token, c.tokenFile = token, "" }
}

// WithTokenFile sends the content of the file at path, without surrounding space,
// as the bearer credential. The file is read for each connection, because a server may
// restart with a new token. If it cannot be read, the client sends the last token.
func WithTokenFile(path string) Option {
	return func(c *config) { c.token, c.tokenFile = "", path }
}

// WithHeader calls set before each request, and set adds headers to it, such as the cookie
// of a user of the server. The first connection, each reconnect and each request of a
// [Server] are requests. The header already has the token of WithToken. A client calls set
// from one goroutine at a time.
func WithHeader(set func(http.Header)) Option {
	return func(c *config) { c.header = set }
}

// WithRole sets the role of the connection. The default is viewer.
func WithRole(role contracts.Role) Option {
	return func(c *config) { c.hello.Role = role }
}

// WithTakeover says what attaching as controller does to a lease held by another
// connection. It applies to the first connection. A reconnect never takes a lease
// that another connection got meanwhile.
func WithTakeover(t contracts.Takeover) Option {
	return func(c *config) { c.takeover = t }
}

// WithSession names the session to attach to. With create, an unknown session is
// created.
func WithSession(id string, create bool) Option {
	return func(c *config) { c.session, c.create = id, create }
}

// WithHello sets client info, capabilities and opt-outs. Its role replaces that of
// WithRole unless it is empty.
func WithHello(hello contracts.Hello) Option {
	return func(c *config) {
		hello.Role = cmp.Or(hello.Role, c.hello.Role)
		c.hello = hello
	}
}

// WithPeople asks who did what: for the events about people, and for people in
// [Client.State]. name is the name that the user gives themselves, or empty. A later
// [WithHello] replaces both.
func WithPeople(name string) Option {
	return func(c *config) {
		var caps contracts.Capabilities
		if c.hello.Capabilities != nil {
			caps = *c.hello.Capabilities
		}
		caps.People = true
		c.hello.Capabilities, c.hello.DisplayName = &caps, name
	}
}

// WithCursor continues after the entry at cursor in epoch, both from an earlier
// [Update]. [Client.State] then lacks the effects of earlier entries, unless the
// server sends a snapshot. Of WithCursor, [WithHistory] and [WithTail] the last one
// given is used.
func WithCursor(epoch string, cursor uint64) Option {
	return func(c *config) { c.epoch, c.cursor, c.tail = epoch, &cursor, 0 }
}

// WithHistory starts at the beginning of the session instead of with a snapshot, if
// the server still has it.
func WithHistory() Option { return WithCursor("", 0) }

// WithTail starts with the last n entries of the session, as far as the server
// still has them; with a ticket, which is valid for one connection, with a snapshot.
// Until Next has returned these entries, [Client.State] is the state at the time of
// attaching. [Client.Skipped] returns how many entries were left out.
func WithTail(n uint64) Option {
	return func(c *config) { c.epoch, c.cursor, c.tail = "", nil, n }
}

// WithTurns starts with the current state and the history of the last n turns, 1 to 100,
// as one update. It is shorter if the turns are long, and then says so.
func WithTurns(n int) Option {
	return func(c *config) { c.turns = n }
}

// WithReconnect sets how the client reconnects.
func WithReconnect(r Reconnect) Option {
	return func(c *config) { c.reconnect = r }
}

// WithoutReconnect ends the client with its first connection.
func WithoutReconnect() Option { return WithReconnect(Reconnect{Attempts: -1}) }

// WithDialer makes connections with dial instead of the network. Only the path and
// host of the URL are then used, for the request and its Host header.
func WithDialer(dial func(context.Context) (net.Conn, error)) Option {
	return func(c *config) { c.dialer = dial }
}

// WithBuffer sets how many bytes of received frames may be unread by [Client.Next]; see
// [Client]. The default is 4 MiB.
func WithBuffer(bytes int) Option {
	return func(c *config) { c.buffer = bytes }
}

// WithLogger logs lost connections and retries. The default logs nothing.
// Credentials and the content of the session are never logged.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) { c.log = log }
}

// newConfig applies opts to the defaults.
func newConfig(opts []Option) config {
	c := config{log: slog.New(slog.DiscardHandler), buffer: defaultBuffer}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	c.hello.Role = cmp.Or(c.hello.Role, contracts.RoleViewer)
	c.hello.ProtocolVersion = cmp.Or(c.hello.ProtocolVersion, contracts.ProtocolVersion)
	if c.hello.ClientInfo == nil {
		c.hello.ClientInfo = &contracts.ClientInfo{Name: "maestro-go-client"}
	}
	c.reconnect.First = cmp.Or(c.reconnect.First, 250*time.Millisecond)
	c.reconnect.Max = max(cmp.Or(c.reconnect.Max, 10*time.Second), c.reconnect.First)
	return c
}

// credential returns the bearer token for the next connection, empty if none.
func (c *config) credential() (string, error) {
	if c.tokenFile == "" {
		return c.token, nil
	}
	text, err := os.ReadFile(c.tokenFile)
	if token := strings.TrimSpace(string(text)); err == nil && token != "" { // empty while it is being rewritten
		c.token = token
	}
	if c.token == "" {
		return "", fmt.Errorf("read token: %w", cmp.Or(err, errors.New(c.tokenFile+" is empty")))
	}
	return c.token, nil
}
