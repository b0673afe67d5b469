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

// DefaultBuffer is how many bytes of updates wait for a caller that is busy
// elsewhere, unless [WithBuffer] says otherwise.
const DefaultBuffer = 4 << 20

// An Option changes how [Dial] and [DialRaw] attach.
type Option func(*config)

// config is what the options say.
type config struct {
	token     string // with a tokenFile, what was read of it last
	tokenFile string

	hello    contracts.Hello
	takeover contracts.Takeover
	session  string
	create   bool
	cursor   *uint64 // nil asks for a snapshot
	epoch    string
	tail     uint64 // how many of the latest entries to start with; 0 is another way to start

	header    http.Header
	reconnect Reconnect
	dialer    func(context.Context) (net.Conn, error)
	log       *slog.Logger
	buffer    int
}

// A Reconnect says how a client comes back after its connection was lost. The
// zero value is the default: from 0.25 s, doubling to 10 s, for ever. Each
// delay is shortened by up to half at random, so that the clients of a server
// that restarted do not return in step. A server that named a later time
// (retry_after_ms) is obeyed.
type Reconnect struct {
	First    time.Duration // the first delay; zero means 250 ms
	Max      time.Duration // the longest delay; zero means 10 s
	Attempts int           // failures in a row before giving up; zero means never, negative means at the first
}

// WithToken sends token as the bearer credential.
func WithToken(token string) Option {
	return func(c *config) { c.token, c.tokenFile = token, "" }
}

// WithTokenFile sends the content of the file at path, less surrounding space,
// as the bearer credential. It is read again for each connection, so that a
// server which restarted with a new token is found again. What was read last
// counts while the file cannot be read: the server says whether it still does.
func WithTokenFile(path string) Option {
	return func(c *config) { c.token, c.tokenFile = "", path }
}

// WithRole chooses what the connection may do. The default is to view.
func WithRole(role contracts.Role) Option {
	return func(c *config) { c.hello.Role = role }
}

// WithTakeover says what attaching as controller does to a lease held by
// another connection. It holds for the first connection; coming back, the
// client never takes a lease that somebody else was given meanwhile.
func WithTakeover(t contracts.Takeover) Option {
	return func(c *config) { c.takeover = t }
}

// WithSession names the session to attach to. With create, a session the
// server does not know is made.
func WithSession(id string, create bool) Option {
	return func(c *config) { c.session, c.create = id, create }
}

// WithHello sets client info, capabilities and opt-outs. Its role counts if it
// has one.
func WithHello(hello contracts.Hello) Option {
	return func(c *config) {
		hello.Role = cmp.Or(hello.Role, c.hello.Role)
		c.hello = hello
	}
}

// WithCursor continues after the entry at cursor of the journal epoch, both
// taken from an earlier [Update]. [Client.State] then lacks what was before,
// unless the server answers with a snapshot.
//
// WithCursor, [WithHistory] and [WithTail] each choose where to begin. The last
// one given replaces the others.
func WithCursor(epoch string, cursor uint64) Option {
	return func(c *config) { c.epoch, c.cursor, c.tail = epoch, &cursor, 0 }
}

// WithHistory starts with the beginning of the session, if the server still
// has it, instead of with a snapshot. It replaces [WithCursor] and [WithTail].
func WithHistory() Option { return WithCursor("", 0) }

// WithTail starts with the last n entries of the session, as far as the server
// still has them. [Client.State] is the whole state all the same, that of the
// moment of attaching until Next has returned what came before it.
// [Client.Skipped] says how much was left out. With a ticket, which is good for
// one connection, the session starts with a snapshot. WithTail replaces
// [WithCursor] and [WithHistory].
func WithTail(n uint64) Option {
	return func(c *config) { c.epoch, c.cursor, c.tail = "", nil, n }
}

// WithHeader adds a header to the request that opens each connection.
func WithHeader(key, value string) Option {
	return func(c *config) { c.header.Add(key, value) }
}

// WithReconnect sets how the client comes back.
func WithReconnect(r Reconnect) Option {
	return func(c *config) { c.reconnect = r }
}

// WithoutReconnect ends the client with its first connection.
func WithoutReconnect() Option { return WithReconnect(Reconnect{Attempts: -1}) }

// WithDialer makes connections with dial instead of the network. The URL then
// only serves for its path and its Host header.
func WithDialer(dial func(context.Context) (net.Conn, error)) Option {
	return func(c *config) { c.dialer = dial }
}

// WithLogger reports lost connections and retries. The default is silence.
// Credentials and the content of the session are never logged.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) { c.log = log }
}

// WithBuffer sets how many bytes of received frames may wait for
// [Client.Next]. At the bound the client stops reading from the connection, so
// that the server holds the rest. One update always fits.
func WithBuffer(bytes int) Option {
	return func(c *config) { c.buffer = bytes }
}

// newConfig applies opts over the defaults.
func newConfig(opts []Option) config {
	c := config{header: http.Header{}, log: slog.New(slog.DiscardHandler), buffer: DefaultBuffer}
	for _, opt := range opts {
		opt(&c)
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
	if token := strings.TrimSpace(string(text)); err == nil && token != "" { // it may just be written anew
		c.token = token
	}
	if c.token == "" {
		return "", fmt.Errorf("read token: %w", cmp.Or(err, errors.New(c.tokenFile+" is empty")))
	}
	return c.token, nil
}
