package contracts

// A Form encodes the frames of one kind of wire. Forms are compared with ==: all
// connections with equal forms share the frames, which are made once and lie
// contiguously in memory (D2).
//
// It is in this package because the transports implement it and the hub uses it,
// and neither imports the other.
type Form interface {
	// AppendMessage appends the frame of an event whose JSON is body.
	AppendMessage(dst []byte, cursor uint64, body []byte) []byte
	// AppendSnapshot appends the frame of a snapshot whose JSON is body. A wire
	// without snapshots appends nothing.
	AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte
	// AppendReset appends the frame that makes a client replace its state by body.
	AppendReset(dst []byte, cursor uint64, reason ResetReason, body []byte) []byte
	// AppendHeartbeat appends the heartbeat of an idle connection: on WebSocket a
	// ping frame, and unless quiet the heartbeat envelope.
	AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte
	// AppendOpening appends the first bytes of a new connection; none on most
	// wires.
	AppendOpening(dst []byte) []byte
	// AppendControl appends a control frame: one JSON text.
	AppendControl(dst []byte, text []byte) []byte
}
