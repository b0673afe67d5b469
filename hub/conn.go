package hub

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Wire says how a client and the hub speak on a connection.
type Wire int

const (
	// WireEnvelope: hello first, then envelopes and ws.* control frames.
	WireEnvelope Wire = iota
	// WireBare: bare messages both ways, hello optional. Refusals are error
	// messages. Such a client cannot be reset, so the agent waits for it.
	WireBare
)

// A Form builds the bytes of one kind of wire; see [contracts.Form].
type Form = contracts.Form

// A Conn is the hub's view of a connected client. The transports satisfy it.
//
// Close must unblock ReadFrame and Write: the hub has no other way to
// interrupt a peer that stopped reading. ReadFrame is called from one
// goroutine, Write from one goroutine at a time, Close and LastSeen from any.
type Conn interface {
	Form() Form

	// ReadFrame returns the next JSON text; it is valid until the next call.
	// A *contracts.Error is a frame that could not be read but after which
	// reading can go on, such as an over-long line; any other error ends the
	// connection, io.EOF quietly.
	ReadFrame() ([]byte, error)

	// Write sends bytes that the form made: any number of whole frames. It
	// fails with os.ErrDeadlineExceeded when the peer has not taken them within
	// the write timeout.
	Write(frames []byte) error

	// LastSeen is when the peer last sent anything, control frames included; the
	// zero time if it cannot say anything on this connection.
	LastSeen() time.Time

	// Close ends the connection and says why; nil is a normal end. Only the
	// first call counts. It does not wait for the peer.
	Close(why *contracts.Error)
}
