package ws

import (
	"encoding/binary"
	"errors"
)

var errTooLarge = errors.New("the message is larger than allowed")

// A scanner follows the frames that a peer sends. It finds a message that is
// too large by the length in its frame headers, which the library does not
// expose.
type scanner struct {
	most int // bound of a message, in bytes

	head    [14]byte // header of the current frame
	got     int      // bytes of head read so far
	skip    int64    // payload bytes of the frame still to come
	message int64    // announced bytes of the current message
}

// scan processes the next bytes from the peer.
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
			continue // a control frame is not part of a message
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

// length returns the length of the frame's payload once the header is whole.
// The library refuses a negative length.
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
