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
	return appendText(dst, `{"type":"message","cursor":`, strconv.AppendUint(digits[:0], cursor, 10), `,"message":`, body, "}")
}

// AppendSnapshot appends a snapshot envelope around body, which contains the
// cursor.
func (Form) AppendSnapshot(dst []byte, _ uint64, body []byte) []byte {
	return appendText(dst, `{"type":"snapshot","snapshot":`, nil, "", body, "}")
}

// AppendReset appends a reset envelope around body, which contains the cursor.
func (Form) AppendReset(dst []byte, _ uint64, reason contracts.ResetReason, body []byte) []byte {
	return appendText(dst, `{"type":"reset","reason":"`, []byte(reason), `","snapshot":`, body, "}")
}

// AppendHeartbeat appends a ping, which every client answers, and unless quiet
// a heartbeat envelope.
func (Form) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	dst = append(dst, finPing, 0)
	if quiet {
		return dst
	}
	var digits [20]byte
	return appendText(dst, `{"type":"heartbeat","cursor":`, strconv.AppendUint(digits[:0], cursor, 10), "}", nil, "")
}

// AppendOpening appends nothing: the handshake has its own frames.
func (Form) AppendOpening(dst []byte) []byte { return dst }

// AppendHistory appends text, which is a whole envelope.
func (Form) AppendHistory(dst, text []byte) []byte { return appendText(dst, "", text, "", nil, "") }

// AppendControl appends text as a frame without an envelope.
func (Form) AppendControl(dst, text []byte) []byte { return appendText(dst, "", text, "", nil, "") }

// appendText appends a text frame with an envelope in pieces.
func appendText(dst []byte, start string, first []byte, middle string, body []byte, end string) []byte {
	switch n := len(start) + len(first) + len(middle) + len(body) + len(end); {
	case n < 126:
		dst = append(dst, finText, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, finText, 126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, finText, 127), uint64(n))
	}
	dst = append(append(dst, start...), first...)
	dst = append(append(dst, middle...), body...)
	return append(dst, end...)
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
