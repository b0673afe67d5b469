package wiring

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/transport/foreign"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
)

// A Protocol is one that clients of other programs speak, as lines of JSON. Its clients
// attach at /api/NAME/ws.
type Protocol struct {
	Name      string
	Translate func() dialect.Translator // called for each client
}

// ServeForeign returns the function that attaches a client to h. It is the client of
// principal p.
func ServeForeign(h *hub.Hub, p contracts.Principal) foreign.Attach {
	return func(ctx context.Context, port *foreign.Port) error {
		return h.Serve(ctx, port, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater, Principal: p})
	}
}

// A foreignVisit is one client of another protocol on a WebSocket.
type foreignVisit struct {
	protocol  Protocol
	handshake time.Duration
	open      func(context.Context, dialect.Start) (foreign.Attach, error)
}

func (v *foreignVisit) Serve(ctx context.Context, conn *ws.Conn) error {
	_, err := foreign.Serve(ctx, conn, foreign.Options{
		Translator: v.protocol.Translate(), Open: v.open, Pings: true, Handshake: v.handshake,
	})
	return err
}

// An Opener opens sessions for the clients of other protocols.
type Opener func(context.Context, contracts.Principal, dialect.Start) (foreign.Attach, error)

// As returns the function that opens sessions for one principal, and logs its failures.
func (o Opener) As(p contracts.Principal, log *slog.Logger) func(context.Context, dialect.Start) (foreign.Attach, error) {
	return func(ctx context.Context, start dialect.Start) (foreign.Attach, error) {
		attach, err := o(ctx, p, start)
		if err != nil {
			log.Error("session not opened", "session", start.SessionID, "err", err)
		}
		return attach, err
	}
}

// OnlySession opens the session of a process that has one.
func OnlySession(h *hub.Hub) Opener {
	return func(_ context.Context, p contracts.Principal, start dialect.Start) (foreign.Attach, error) {
		if start.SessionID != "" && start.SessionID != h.SessionID() {
			return nil, hub.ErrUnknownSession
		}
		return ServeForeign(h, p), nil
	}
}
