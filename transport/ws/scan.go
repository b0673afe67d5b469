package ws

import (
	"encoding/binary"
	"errors"
)

var errTooLarge = errors.New("the message is larger than allowed")

// A scanner follows the frames that a peer sends. It finds a message that is
// larger than allowed in the header that announces it. The library does not tell
// what a header announces.
type scanner struct {
	most int // bytes of a message

	head    [14]byte // of the frame that begins
	got     int      // bytes of head; the rest of a frame is skipped
	skip    int64    // bytes of the frame that are still to come
	message int64    // announced bytes of the message being sent
}

// scan takes the next bytes of the peer.
func (s *scanner) scan(p []byte) error {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, int64(len(p)))
			s.skip -= n
			p = p[n:]
			continue
		}
		s.head[s.got] = p[0]
		s.got++
		p = p[1:]
		length, whole := s.length()
		if !whole {
			continue
		}
		s.got, s.skip = 0, length
		if opcode := s.head[0] & 0x0f; opcode > opBinary {
			continue // not part of a message
		} else if opcode != opContinuation {
			s.message = 0
		}
		if length > int64(s.most)-s.message {
			return errTooLarge
		}
		s.message += length
	}
	return nil
}

// length returns how long the frame's payload is, once the header is whole. A
// negative length is for the library to refuse.
func (s *scanner) length() (payload int64, whole bool) {
	if s.got < 2 {
		return 0, false
	}
	size := 2
	if s.head[1]&0x80 != 0 { // masked
		size += 4
	}
	switch n := s.head[1] & 0x7f; n {
	case 126:
		size += 2
		payload = int64(binary.BigEndian.Uint16(s.head[2:]))
	case 127:
		size += 8
		payload = int64(binary.BigEndian.Uint64(s.head[2:]))
	default:
		payload = int64(n)
	}
	return payload, s.got == size
}
