package httpapi

import (
	"context"
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/sse"
)

// A Session is a session as its HTTP clients use it. A *contracts.Error is a
// refusal: the call has changed nothing.
type Session interface {
	sse.Session

	// State returns the encoded current snapshot.
	State() ([]byte, error)

	// SnapshotBytes returns the approximate length of the encoded snapshot, or
	// zero before the first one is encoded.
	SnapshotBytes() int

	// Connect makes or renews a connection. token is the secret of a new one.
	Connect(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.ConnectionAnswer, token string, err error)

	// Subscribe makes a subscription, and its connection if there is none.
	Subscribe(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.SubscriptionAnswer, token string, err error)

	// Unsubscribe ends a subscription. Ending the last one ends its connection.
	Unsubscribe(id string, by contracts.Caller) error

	// Post admits the command in text and calls reply with the encoded answer,
	// or returns a refusal. The command's effects begin after reply returns.
	// Calls with the same key admit the command once.
	Post(text []byte, key string, by contracts.Caller, reply func(answer []byte)) error

	Heartbeat(by contracts.Caller) (*contracts.HeartbeatAnswer, error)
	Disconnect(by contracts.Caller) (*contracts.DisconnectAnswer, error)
}

// A Wanted says which session a request needs, and whether to make it.
type Wanted struct {
	ID        string // empty: a new session, or the only one
	Create    bool   // make the session if it is unknown
	Socket    bool   // for a WebSocket, whose clients may leave the choice to the server
	Key       string // idempotency key of a request that makes a session without an id: a repeated request finds that session
	Principal contracts.Principal
	Role      contracts.Role           // the role that the headers request
	Runtime   *contracts.AttachRequest // the requested properties of a new runtime; nil if there are none
}

// Options configures a handler. Authorize, Find and Streams are required.
type Options struct {
	// Authorize returns the principal of a request. It checks Host and Origin as
	// well.
	Authorize func(*http.Request) (contracts.Principal, error)

	// Find opens the session of a request. opened says that this call started
	// its runtime.
	Find func(ctx context.Context, want Wanted) (session Session, opened bool, err error)

	// List lists the sessions that a principal may reach. Nil answers 404.
	List func(contracts.Principal) *contracts.SessionList

	// Fence refuses requests that a hosted runner may not serve. It may be nil.
	Fence Fence

	// Ready reports whether clients may attach, and whether the process is
	// draining. Nil means ready.
	Ready func() (ready, draining bool)

	Streams *sse.Streams
	Rates   RateLimiter // limits the requests of one principal; nil means no limit

	MaxBodyBytes int  // bounds a request body; zero means contracts.MaxSocketBytes; a larger one gets 413
	Strict       bool // refuse unknown keys and nulls (D13)
}
