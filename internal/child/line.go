package child

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
)

// ErrLongLine says that a line is longer than it may be.
var ErrLongLine = errors.New("line is too long")

// ReadLine returns the next line without its end, valid until the next call. A
// last line that has no end counts. At a line longer than limit it fails with
// ErrLongLine as soon as that is known, and keeps nothing of it; SkipLine passes
// over the rest.
func ReadLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(bytes.TrimSuffix(part, []byte("\n"))) > limit {
			if err == nil {
				_ = r.UnreadByte() // the end is what SkipLine looks for; it was just read
			}
			return nil, fmt.Errorf("%w: it has more than %d bytes", ErrLongLine, limit)
		}
		full := errors.Is(err, bufio.ErrBufferFull)
		if full || line != nil {
			line = append(line, part...)
			part = line
		}
		switch {
		case full:
		case err != nil && len(part) == 0:
			return nil, err
		default:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
	}
}

// SkipLine passes over the rest of a line.
func SkipLine(r *bufio.Reader) {
	for err := bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
		_, err = r.ReadSlice('\n')
	}
}
