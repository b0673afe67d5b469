package contracts

// A Form builds the bytes of one kind of wire. Forms are compared with ==: all
// connections with equal forms share the bytes, which are made once and lie
// contiguously (D2).
//
// It lives here because the transports provide it and the hub uses it, and
// neither imports the other.
type Form interface {
	// AppendMessage appends the frame of an event whose JSON is body.
	AppendMessage(dst []byte, cursor uint64, body []byte) []byte
	// AppendSnapshot appends the frame of a snapshot whose JSON is body. A wire
	// without snapshots appends nothing.
	AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte
	// AppendReset appends the frame that makes a client start over from body.
	AppendReset(dst []byte, cursor uint64, reason ResetReason, body []byte) []byte
	// AppendHeartbeat appends what keeps an idle connection alive: on WebSocket
	// a ping frame, and unless quiet the heartbeat envelope.
	AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte
	// AppendOpening appends what a new connection is sent before anything else;
	// nothing on most wires.
	AppendOpening(dst []byte) []byte
	// AppendControl appends a frame that is neither: one JSON text.
	AppendControl(dst []byte, text []byte) []byte
}
