package memconn

import (
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// Lines is the wire of a networked client: one envelope or control frame per
// line. An empty line stands for a ping, which [Peer] answers by itself.
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

// Bare is the wire of a local client: messages alone, without cursors,
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

// Events is the wire of a stream, on which the client cannot say anything:
// envelopes as [Lines] has them, no control frames and no pings. Its first line
// is [Opening]; a client that does without heartbeats gets [Comment] instead.
type Events struct{ Lines }

var _ contracts.Form = Events{}

// The lines of [Events] that are no envelopes.
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
