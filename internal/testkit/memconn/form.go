package memconn

import (
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// Lines is the wire form of a networked client, with one envelope or control
// frame per line. An empty line is a ping; [Peer] answers it itself.
type Lines struct{}

var _ contracts.Form = Lines{}

// AppendMessage appends a message envelope.
func (Lines) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	dst = append(dst, `{"type":"message","cursor":`...)
	dst = strconv.AppendUint(dst, cursor, 10)
	dst = append(dst, `,"message":`...)
	dst = append(dst, body...)
	return append(dst, "}\n"...)
}

// AppendSnapshot appends a snapshot envelope.
func (Lines) AppendSnapshot(dst []byte, _ uint64, body []byte) []byte {
	dst = append(dst, `{"type":"snapshot","snapshot":`...)
	dst = append(dst, body...)
	return append(dst, "}\n"...)
}

// AppendReset appends a reset envelope.
func (Lines) AppendReset(dst []byte, _ uint64, reason contracts.ResetReason, body []byte) []byte {
	dst = append(dst, `{"type":"reset","reason":"`...)
	dst = append(dst, reason...)
	dst = append(dst, `","snapshot":`...)
	dst = append(dst, body...)
	return append(dst, "}\n"...)
}

// AppendHeartbeat appends a ping and, unless quiet, a heartbeat envelope.
func (Lines) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	dst = append(dst, '\n')
	if quiet {
		return dst
	}
	return appendHeartbeat(dst, cursor)
}

func appendHeartbeat(dst []byte, cursor uint64) []byte {
	dst = append(dst, `{"type":"heartbeat","cursor":`...)
	dst = strconv.AppendUint(dst, cursor, 10)
	return append(dst, "}\n"...)
}

// AppendOpening appends nothing.
func (Lines) AppendOpening(dst []byte) []byte { return dst }

// AppendControl appends text.
func (Lines) AppendControl(dst, text []byte) []byte {
	return append(append(dst, text...), '\n')
}

// Bare is the wire form of a local client. It has messages only: no cursors,
// snapshots or heartbeats.
type Bare struct{}

var _ contracts.Form = Bare{}

// AppendMessage appends body.
func (Bare) AppendMessage(dst []byte, _ uint64, body []byte) []byte {
	return append(append(dst, body...), '\n')
}

// AppendSnapshot appends nothing.
func (Bare) AppendSnapshot(dst []byte, _ uint64, _ []byte) []byte { return dst }

// AppendReset appends nothing.
func (Bare) AppendReset(dst []byte, _ uint64, _ contracts.ResetReason, _ []byte) []byte { return dst }

// AppendHeartbeat appends nothing.
func (Bare) AppendHeartbeat(dst []byte, _ uint64, _ bool) []byte { return dst }

// AppendOpening appends nothing.
func (Bare) AppendOpening(dst []byte) []byte { return dst }

// AppendControl appends text.
func (Bare) AppendControl(dst, text []byte) []byte {
	return append(append(dst, text...), '\n')
}

// Events is the wire form of a stream on which the client cannot send. It has
// the envelopes of [Lines], but no control frames and no pings. The first line
// is [Opening]. A client without heartbeats gets [Comment] instead of them.
type Events struct{ Lines }

var _ contracts.Form = Events{}

// The lines of [Events] that are not envelopes.
const (
	Opening = "open"
	Comment = "comment"
)

// AppendHeartbeat appends a heartbeat envelope or, if quiet, a comment.
func (Events) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	if quiet {
		return append(dst, Comment+"\n"...)
	}
	return appendHeartbeat(dst, cursor)
}

// AppendOpening appends the first line.
func (Events) AppendOpening(dst []byte) []byte { return append(dst, Opening+"\n"...) }

// AppendControl appends nothing.
func (Events) AppendControl(dst, _ []byte) []byte { return dst }
