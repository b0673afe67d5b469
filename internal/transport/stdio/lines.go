package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
)

// lines splits a stream into lines. LF, CRLF and the end of the stream end a
// line (R3). It skips lines of white space (R4) and a byte-order mark at the
// start. It reports a line longer than max bytes, without its end, once and
// discards it while reading (R13).
type lines struct {
	in    *line.Reader
	max   int
	blank bool // lines of white space count
	begun bool // the first line has been read: no byte-order mark can follow
}

func newLines(r io.Reader, max int, blank bool) *lines {
	return &lines{in: line.NewReader(r, max+len(byteOrderMark)+len("\r")), max: max, blank: blank} // room for the byte-order mark and CR that next trims
}

const byteOrderMark = "\ufeff"

// next returns the next line without its end, valid until the next call. It
// returns a *contracts.Error for a line that is too long; any other error ends
// the stream.
func (l *lines) next() ([]byte, error) {
	for {
		text, err := l.in.Next()
		if err != nil && !errors.Is(err, line.ErrLong) {
			return nil, err
		}
		if !l.begun {
			l.begun = true
			text = bytes.TrimPrefix(text, []byte(byteOrderMark))
		}
		text = bytes.TrimSuffix(text, []byte("\r"))
		if err != nil || len(text) > l.max {
			return nil, &contracts.Error{
				Code: contracts.CodeBadRequest, Type: contracts.ErrorProtocol,
				Message: fmt.Sprintf("Failed to parse command: line exceeds %d bytes", l.max),
			}
		}
		if l.blank || len(bytes.TrimSpace(text)) > 0 {
			return text, nil
		}
	}
}
