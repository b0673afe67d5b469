package editor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxLine bounds a line of the editor, as lines of the headless protocol are
// bounded. What is longer is not kept.
const maxLine = contracts.MaxLineBytes

// headBytes is how much of a line that is too long is kept, to find its id.
const headBytes = 4 << 10

// A longLine is a line that was too long and is gone but for its beginning.
type longLine struct{ head []byte }

func (*longLine) Error() string { return fmt.Sprintf("the line is longer than %d bytes", maxLine) }

// A lines reads lines of at most limit bytes.
type lines struct {
	in    *bufio.Reader
	limit int
}

func newLines(in io.Reader) *lines {
	return &lines{in: bufio.NewReaderSize(in, 64<<10), limit: maxLine}
}

// next returns the next line without its end. It belongs to the caller. One that
// is too long is skipped without being kept, and the error is a *longLine. A last
// line that has no end counts.
func (l *lines) next() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(bytes.TrimSuffix(line, []byte("\n"))) > l.limit {
			long, line = true, line[:min(len(line), headBytes)]
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long:
			return nil, &longLine{line}
		case err != nil && len(line) == 0:
			return nil, err
		default:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		}
	}
}

// idIn returns the id of a message whose beginning is head, if it stands there
// and the message asks something.
func idIn(head []byte) (id json.RawMessage) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	asks := false
	for {
		key, err := dec.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		switch key {
		case "id":
			id = value
		case "method":
			asks = true
		}
	}
	if !asks || !isID(id) {
		return nil
	}
	return id
}

// isID reports whether a value may be the id of a request.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}
