package hub

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Wire says which messages a client and the hub exchange on a connection.
type Wire int

const (
	// WireEnvelope begins with hello, followed by envelopes and ws.* control frames.
	WireEnvelope Wire = iota
	// WireBare has bare messages both ways and an optional hello. Refusals are error
	// messages. A client on it cannot be reset, so the agent waits for it.
	WireBare
)

// A Form encodes the frames of one kind of wire; see [contracts.Form].
type Form = contracts.Form

// A Conn is a connected client. The transports implement it.
//
// Close must unblock ReadFrame and Write, because the hub has no other way to
// interrupt a peer that stopped reading. ReadFrame is called from one goroutine,
// Write from one goroutine at a time, Close and LastSeen from any.
type Conn interface {
	Form() Form

	// ReadFrame returns the next JSON text, which is valid until the next call. A
	// *contracts.Error means that this frame could not be read, such as an
	// over-long line, but the next one can. io.EOF is a regular end. Any other
	// error ends the connection.
	ReadFrame() ([]byte, error)

	// Write sends whole frames that the form encoded. It fails with
	// os.ErrDeadlineExceeded if the peer has not read them within the write
	// timeout.
	Write(frames []byte) error

	// LastSeen returns when the peer last sent anything, control frames included.
	// It returns the zero time if the peer cannot send on this connection.
	LastSeen() time.Time

	// Close ends the connection with a reason; nil is a normal end. Only the first
	// call has an effect. It does not wait for the peer.
	Close(why *contracts.Error)
}
