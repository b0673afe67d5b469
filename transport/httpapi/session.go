package httpapi

import (
	"context"
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/sse"
)

// A Session is one session as its HTTP clients use it. Each error that is a
// *contracts.Error is a refusal, and changed nothing.
type Session interface {
	sse.Session

	// State returns the encoded snapshot as of now.
	State() ([]byte, error)

	// SnapshotBytes returns about how long the encoded snapshot is; zero if none has
	// been encoded yet.
	SnapshotBytes() int

	// Connect makes or renews a connection. token is its secret if it is new.
	Connect(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.ConnectionAnswer, token string, err error)

	// Subscribe makes a subscription, and perhaps the connection for it.
	Subscribe(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.SubscriptionAnswer, token string, err error)

	// Unsubscribe ends a subscription, the last one with its connection.
	Unsubscribe(id string, by contracts.Caller) error

	// Post admits the command in text and hands reply the encoded answer, unless it
	// refuses. What the command begins waits for reply to return. With a key it does
	// so once, however often it is called.
	Post(text []byte, key string, by contracts.Caller, reply func(answer []byte)) error

	Heartbeat(by contracts.Caller) (*contracts.HeartbeatAnswer, error)
	Disconnect(by contracts.Caller) (*contracts.DisconnectAnswer, error)
}

// A Wanted says which session a request is about, and whether it may be made.
type Wanted struct {
	ID        string // empty: a new one, or the only one there is
	Create    bool   // one that is unknown may be made
	Socket    bool   // for a WebSocket, whose clients may leave the choice to the server
	Key       string // names the request that makes one without an id, so that a repeated one finds it
	Principal contracts.Principal
	Role      contracts.Role           // that headers ask for
	Runtime   *contracts.AttachRequest // what a new runtime should be like; nil if nothing was said
}

// Options configures a handler. Authorize, Find and Streams are required.
type Options struct {
	// Authorize says who asks. It checks Host and Origin as well.
	Authorize func(*http.Request) (contracts.Principal, error)

	// Find opens the session a request is about. opened says that this call made
	// its runtime.
	Find func(ctx context.Context, want Wanted) (session Session, opened bool, err error)

	// List lists the sessions that a principal may reach.
	List func(contracts.Principal) *contracts.SessionList

	// Fence refuses requests that a hosted runner may not serve. Nil refuses
	// none.
	Fence Fence

	// Ready reports whether clients may attach, and whether that is because the
	// process is draining. Nil means always.
	Ready func() (ready, draining bool)

	Streams *sse.Streams
	Rates   RateLimiter // how often one principal may ask; nil for any number

	MaxBodyBytes int  // of a request; contracts.MaxSocketBytes; beyond, 413
	Strict       bool // refuse unknown keys and nulls (D13)
}
