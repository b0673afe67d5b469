package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed-028515a8/maestro/bench/control"
)

// WebSocket opcodes (RFC 6455, 5.2).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// maxControl is the longest payload of a control frame.
const maxControl = 125

// A stream reads what one viewer is sent, in pieces of any size, without
// keeping it. It follows the frames, which are a WebSocket's or the chunks of an
// HTTP answer, and, inside their payloads taken as one run of bytes, the marks
// of messages: so it does not matter whether a server puts one message in a
// frame, many, or a part of one.
type stream struct {
	next    uint64 // number that the next message must have
	chunked bool   // frames are chunks

	head   [maxHead]byte // header of the frame that begins
	have   int           // bytes of head so far
	begun  bool          // a frame has begun
	opcode byte          // of the open frame; chunks have none
	left   uint64        // payload bytes of the open frame still to come

	mark     [control.MarkWidth]byte // start of a mark that the last piece cut
	haveMark int

	control []byte // payload of the open control frame
	reply   []byte // what the viewer has to send back: pongs
}

// maxHead is the longest header of a frame; a WebSocket's has 14 bytes at most.
const maxHead = maxChunkHead

// A tally adds up what all viewers of a run received.
type tally struct {
	deliveries int64
	frames     int64 // data frames, or chunks
	bytes      int64 // as received, frame headers included
	now        int64 // microseconds since 1970, when the current piece was read
	timed      bool
	ages       []int32 // microseconds from sending to reading, per delivery, if timed
}

// A closedError is a close frame from the server.
type closedError struct {
	code   uint16
	reason string
}

func (e *closedError) Error() string {
	return fmt.Sprintf("server closed the connection: %d %s", e.code, e.reason)
}

// feed takes the next piece. It fails on a protocol violation, on a message
// that is lost, repeated or out of order, and on a close frame.
func (s *stream) feed(piece []byte, t *tally) error {
	t.bytes += int64(len(piece))
	for len(piece) > 0 {
		if s.left == 0 {
			rest, open, err := s.begin(piece)
			if err != nil || !open {
				return err
			}
			piece = rest
		}
		part := piece[:min(uint64(len(piece)), s.left)]
		piece = piece[len(part):]
		s.left -= uint64(len(part))
		if err := s.take(part, t); err != nil {
			return err
		}
	}
	return nil
}

// begin reads a frame header from piece and returns what follows it. It reports
// false if the header is not complete yet.
func (s *stream) begin(piece []byte) (rest []byte, open bool, err error) {
	for i, b := range piece {
		s.head[s.have] = b
		s.have++
		length, ok, err := s.parse(s.head[:s.have])
		if err != nil {
			return nil, false, err
		}
		if ok {
			if !s.chunked {
				s.opcode = s.head[0] & 15
			}
			s.left, s.have, s.begun = length, 0, true
			return piece[i+1:], true, nil
		}
	}
	return nil, false, nil
}

// parse returns the payload length that the header of a frame says, or false if
// head is not all of it yet.
func (s *stream) parse(head []byte) (length uint64, ok bool, err error) {
	if s.chunked {
		return parseChunk(head, !s.begun)
	}
	return parseHeader(head)
}

// parseHeader returns the payload length that the header of a WebSocket's frame
// says. It reports false if head is not the whole header yet.
func parseHeader(head []byte) (length uint64, ok bool, err error) {
	if len(head) < 2 {
		return 0, false, nil
	}
	switch {
	case head[0]&0x70 != 0:
		return 0, false, errors.New("frame with reserved bits")
	case head[1]&0x80 != 0:
		return 0, false, errors.New("masked frame from a server")
	}
	switch n := head[1]; {
	case n < 126:
		return uint64(n), true, nil
	case n == 126 && len(head) == 4:
		return uint64(binary.BigEndian.Uint16(head[2:])), true, nil
	case n == 127 && len(head) == 10:
		return binary.BigEndian.Uint64(head[2:]), true, nil
	}
	return 0, false, nil
}

// take reads a part of the open frame's payload; the frame ends if none is left.
func (s *stream) take(part []byte, t *tally) error {
	if s.opcode < opClose {
		if err := s.scan(part, t); err != nil {
			return err
		}
		if s.left == 0 {
			t.frames++
		}
		return nil
	}
	if len(s.control)+len(part) > maxControl {
		return errors.New("control frame is too long")
	}
	s.control = append(s.control, part...)
	if s.left > 0 {
		return nil
	}
	payload := s.control
	s.control = nil
	switch s.opcode {
	case opPing:
		s.reply = appendMasked(s.reply, opPong, payload)
	case opClose:
		closed := &closedError{code: 1005} // no status received
		if len(payload) >= 2 {
			closed.code, closed.reason = binary.BigEndian.Uint16(payload), string(payload[2:])
		}
		return closed
	}
	return nil
}

// scan finds the marks in a part of the payload.
func (s *stream) scan(part []byte, t *tally) error {
	if s.haveMark > 0 {
		n := copy(s.mark[s.haveMark:], part)
		part = part[n:]
		if s.haveMark += n; s.haveMark < len(s.mark) {
			return nil
		}
		s.haveMark = 0
		if err := s.count(s.mark[:], t); err != nil {
			return err
		}
	}
	for {
		i := bytes.IndexByte(part, control.Mark)
		if i < 0 {
			return nil
		}
		part = part[i:]
		if len(part) < control.MarkWidth {
			s.haveMark = copy(s.mark[:], part)
			return nil
		}
		if err := s.count(part, t); err != nil {
			return err
		}
		part = part[control.MarkWidth:]
	}
}

func (s *stream) count(mark []byte, t *tally) error {
	n, sent, ok := control.ParseMark(mark)
	if !ok {
		return fmt.Errorf("damaged message: %q", mark[:control.MarkWidth])
	}
	if n != s.next {
		return fmt.Errorf("message out of order: got number %d, want %d", n, s.next)
	}
	s.next++
	t.deliveries++
	if t.timed {
		t.ages = append(t.ages, int32(t.now-sent))
	}
	return nil
}

// appendMasked appends a client's frame. The mask is all zero, which a server
// must accept and which spares the client the work.
func appendMasked(dst []byte, opcode byte, payload []byte) []byte {
	dst = append(dst, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	dst = append(dst, 0, 0, 0, 0)
	return append(dst, payload...)
}
