// Package line splits an untrusted stream into lines. A line that is too long
// costs no more memory than the bound, and the lines after it are still read.
// The caller decides whether blank lines count and what happens to white space.
package line

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	buffer  = 64 << 10 // bytes; lines that fit are not copied
	maxKept = 1 << 20  // bytes; a larger buffer is dropped after its line
)

// ErrLong says that a line exceeds the limit.
var ErrLong = errors.New("line is too long")

// A Reader reads lines, which end with LF or the stream. One goroutine may use
// it.
type Reader struct {
	in    *bufio.Reader
	limit int
	kept  []byte // a line that did not fit in's buffer
	rest  bool   // the rest of a line that was too long must be skipped
}

// NewReader returns a reader of lines of at most limit bytes, without their
// ends.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, buffer), limit: limit}
}

// Next returns the next line without its end, valid until the next call. For a
// line that is too long it returns the first limit bytes and ErrLong at once;
// the next call skips the rest. Any other error ends the stream. An error other
// than io.EOF drops the incomplete last line, because part of a line may mean
// something else.
func (r *Reader) Next() ([]byte, error) {
	if cap(r.kept) > maxKept {
		r.kept = nil
	}
	r.kept = r.kept[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if r.rest {
			r.rest = full
			if err != nil && !full {
				return nil, err
			}
			continue
		}
		part, ended := bytes.CutSuffix(part, []byte("\n"))
		if len(r.kept)+len(part) > r.limit {
			r.kept, r.rest = append(r.kept, part...), !ended
			return r.kept[:r.limit], fmt.Errorf("%w: it has more than %d bytes", ErrLong, r.limit)
		}
		if full || len(r.kept) > 0 {
			r.kept = append(r.kept, part...)
			part = r.kept
		}
		switch {
		case full:
		case ended, errors.Is(err, io.EOF) && len(part) > 0:
			return part, nil
		default:
			return nil, err
		}
	}
}
