package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	readBuffer = 64 << 10 // lines that fit are not copied
	maxKept    = 1 << 20  // a longer line's buffer is given up after it
)

// lines cuts a stream into lines. LF and CRLF end a line, and so does the end
// of the stream (R3). Lines of white space alone are passed over (R4), as is a
// byte-order mark at the start. A line longer than max bytes, its end not
// counted, is discarded as it comes in and reported once (R13).
type lines struct {
	r     *bufio.Reader
	max   int
	begun bool   // the place where a byte-order mark may stand is behind us
	long  []byte // a line that did not fit r's buffer; at most max and a terminator
}

func newLines(r io.Reader, max int) *lines {
	return &lines{r: bufio.NewReaderSize(r, readBuffer), max: max}
}

// next returns the next line without its end, valid until the next call. A
// *contracts.Error stands for a line that was too long; any other error ends
// the stream.
func (l *lines) next() ([]byte, error) {
	for {
		line, whole, err := l.read()
		if err != nil && len(line) == 0 && whole {
			return nil, err
		}
		if !l.begun {
			l.begun = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if !whole || len(line) > l.max {
			return nil, tooLong(l.max)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}

// read returns the next line without its LF, or the beginning of it and false
// if it is too long. An error other than the end of the stream drops what came
// before it: half a command must not be obeyed.
func (l *lines) read() (line []byte, whole bool, err error) {
	if cap(l.long) > maxKept {
		l.long = nil
	}
	l.long, whole = l.long[:0], true
	for {
		part, err := l.r.ReadSlice('\n')
		ended := err == nil || errors.Is(err, io.EOF)
		if err != nil && !ended && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, true, err
		}
		part = bytes.TrimSuffix(part, []byte("\n"))
		if ended && len(l.long) == 0 && whole {
			return part, true, err
		}
		// A CR and a byte-order mark may still be taken off.
		if whole = whole && len(l.long)+len(part) <= l.max+4; whole {
			l.long = append(l.long, part...)
		}
		if ended {
			return l.long, whole, err
		}
	}
}

func tooLong(max int) *contracts.Error {
	return &contracts.Error{
		Code: contracts.CodeBadRequest, Type: contracts.ErrorProtocol,
		Message: fmt.Sprintf("Failed to parse command: line exceeds %d bytes", max),
	}
}
