package ws

import (
	"encoding/binary"
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// Form builds unmasked WebSocket frames, each with one envelope or control
// frame of the protocol. All Forms are equal. The methods allocate only to grow
// dst.
type Form struct{}

var _ contracts.Form = Form{}

// The envelopes in pieces.
const (
	messageStart   = `{"type":"message","cursor":`
	messageMiddle  = `,"message":`
	snapshotStart  = `{"type":"snapshot","snapshot":`
	resetStart     = `{"type":"reset","reason":"`
	resetMiddle    = `","snapshot":`
	heartbeatStart = `{"type":"heartbeat","cursor":`
)

// The first byte of a frame: the FIN bit and the opcode (RFC 6455 section 5.2).
const (
	finText  = 0x81
	finClose = 0x88
	finPing  = 0x89
	finPong  = 0x8a

	opContinuation = 0x0
	opBinary       = 0x2 // the largest opcode of a message
)

// AppendMessage appends a message envelope around body.
func (Form) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	var digits [20]byte
	number := strconv.AppendUint(digits[:0], cursor, 10)
	dst = appendHeader(dst, len(messageStart)+len(number)+len(messageMiddle)+len(body)+1)
	dst = append(dst, messageStart...)
	dst = append(dst, number...)
	dst = append(dst, messageMiddle...)
	dst = append(dst, body...)
	return append(dst, '}')
}

// AppendSnapshot appends a snapshot envelope around body, which contains the
// cursor.
func (Form) AppendSnapshot(dst []byte, _ uint64, body []byte) []byte {
	dst = appendHeader(dst, len(snapshotStart)+len(body)+1)
	dst = append(dst, snapshotStart...)
	dst = append(dst, body...)
	return append(dst, '}')
}

// AppendReset appends a reset envelope around body, which contains the cursor.
func (Form) AppendReset(dst []byte, _ uint64, reason contracts.ResetReason, body []byte) []byte {
	dst = appendHeader(dst, len(resetStart)+len(reason)+len(resetMiddle)+len(body)+1)
	dst = append(dst, resetStart...)
	dst = append(dst, reason...)
	dst = append(dst, resetMiddle...)
	dst = append(dst, body...)
	return append(dst, '}')
}

// AppendHeartbeat appends a ping, which every client answers, and unless quiet
// a heartbeat envelope.
func (Form) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	dst = append(dst, finPing, 0)
	if quiet {
		return dst
	}
	var digits [20]byte
	number := strconv.AppendUint(digits[:0], cursor, 10)
	dst = appendHeader(dst, len(heartbeatStart)+len(number)+1)
	dst = append(dst, heartbeatStart...)
	dst = append(dst, number...)
	return append(dst, '}')
}

// AppendOpening appends nothing: the handshake has its own frames.
func (Form) AppendOpening(dst []byte) []byte { return dst }

// AppendControl appends text as a frame without an envelope.
func (Form) AppendControl(dst, text []byte) []byte {
	return append(appendHeader(dst, len(text)), text...)
}

// appendHeader appends the header of a text frame of n bytes.
func appendHeader(dst []byte, n int) []byte {
	switch {
	case n < 126:
		return append(dst, finText, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, finText, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, finText, 127), uint64(n))
	}
}

// closeFrame returns a close frame. It cuts a reason that is too long for a
// control frame.
func closeFrame(code int, reason string) []byte {
	const longest = 123 // a control frame holds 125 bytes, two of them the code
	reason = reason[:min(len(reason), longest)]
	frame := append(make([]byte, 0, 4+len(reason)), finClose, byte(2+len(reason)))
	frame = binary.BigEndian.AppendUint16(frame, uint16(code))
	return append(frame, reason...)
}

// closing returns the code and the reason in a close frame, if it has a code.
func closing(frame []byte) (code int, reason []byte, ok bool) {
	if len(frame) < 4 || frame[0] != finClose {
		return 0, nil, false
	}
	return int(binary.BigEndian.Uint16(frame[2:])), frame[4:], true
}
