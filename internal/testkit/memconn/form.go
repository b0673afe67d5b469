package memconn

import (
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Form is the wire form of a connection.
type Form string

const (
	// Lines is the form of a networked client, with one envelope or control frame per
	// line. An empty line is a ping; [Peer] answers it itself.
	Lines Form = "lines"
	// Bare is the form of a local client. It has messages only: no cursors, snapshots
	// or heartbeats.
	Bare Form = "bare"
	// Events is the form of a stream on which the client cannot send. It has the
	// envelopes of Lines, but no control frames and no pings. The first line is
	// [Opening]. A client without heartbeats gets [Comment] instead of them.
	Events Form = "events"
)

var _ contracts.Form = Lines

// The lines of [Events] that are not envelopes.
const (
	Opening = "open"
	Comment = "comment"
)

// AppendMessage appends a message envelope, or body alone.
func (f Form) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	if f == Bare {
		return append(append(dst, body...), '\n')
	}
	return fmt.Appendf(dst, `{"type":"message","cursor":%d,"message":%s}`+"\n", cursor, body)
}

// AppendSnapshot appends a snapshot envelope.
func (f Form) AppendSnapshot(dst []byte, _ uint64, body []byte) []byte {
	if f == Bare {
		return dst
	}
	return fmt.Appendf(dst, `{"type":"snapshot","snapshot":%s}`+"\n", body)
}

// AppendReset appends a reset envelope.
func (f Form) AppendReset(dst []byte, _ uint64, reason contracts.ResetReason, body []byte) []byte {
	if f == Bare {
		return dst
	}
	return fmt.Appendf(dst, `{"type":"reset","reason":"%s","snapshot":%s}`+"\n", reason, body)
}

// AppendHeartbeat appends a ping and, unless quiet, a heartbeat envelope.
func (f Form) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	switch {
	case f == Bare:
		return dst
	case f == Lines:
		dst = append(dst, '\n')
	case quiet:
		return append(dst, Comment+"\n"...)
	}
	if quiet {
		return dst
	}
	return fmt.Appendf(dst, `{"type":"heartbeat","cursor":%d}`+"\n", cursor)
}

// AppendOpening appends the first line of a stream.
func (f Form) AppendOpening(dst []byte) []byte {
	if f == Events {
		dst = append(dst, Opening+"\n"...)
	}
	return dst
}

// AppendHistory appends text.
func (f Form) AppendHistory(dst, text []byte) []byte {
	return append(append(dst, text...), '\n')
}

// AppendControl appends text.
func (f Form) AppendControl(dst, text []byte) []byte {
	if f == Events {
		return dst
	}
	return append(append(dst, text...), '\n')
}
