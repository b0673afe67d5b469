package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
)

// lines cuts a stream into lines. LF and CRLF end a line, and so does the end
// of the stream (R3). Lines of white space alone are passed over (R4), as is a
// byte-order mark at the start. A line longer than max bytes, its end not
// counted, is reported once and discarded as it comes in (R13).
type lines struct {
	in    *line.Reader
	max   int
	begun bool // the place where a byte-order mark may stand is behind us
}

func newLines(r io.Reader, max int) *lines {
	return &lines{in: line.NewReader(r, max+len(byteOrderMark)+len("\r")), max: max} // these may be taken off
}

const byteOrderMark = "\ufeff"

// next returns the next line without its end, valid until the next call. A
// *contracts.Error stands for a line that is too long; any other error ends the
// stream.
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
			return nil, tooLong(l.max)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			return text, nil
		}
	}
}

func tooLong(max int) *contracts.Error {
	return &contracts.Error{
		Code: contracts.CodeBadRequest, Type: contracts.ErrorProtocol,
		Message: fmt.Sprintf("Failed to parse command: line exceeds %d bytes", max),
	}
}
