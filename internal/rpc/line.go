package rpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// headBytes is how much of a line that is too long is kept, to tell what it was.
const headBytes = 4 << 10

// A longLine is a line that was too long and is gone but for its beginning.
type longLine struct {
	head  []byte
	limit int
}

func (l *longLine) Error() string {
	return fmt.Sprintf("the message is too long: its line has more than %d bytes", l.limit)
}

// readLine returns the next line without its end, valid until the next call. A
// line longer than limit is skipped without being kept, and the error is a
// *longLine. A last line that has no end counts.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	var long *longLine
	for {
		part, err := r.ReadSlice('\n')
		if long == nil && len(line)+len(bytes.TrimSuffix(part, []byte("\n"))) > limit {
			head := append(line, part...)
			long, line = &longLine{bytes.Clone(head[:min(len(head), headBytes)]), limit}, nil
		}
		full := errors.Is(err, bufio.ErrBufferFull)
		if long == nil && (full || line != nil) {
			line = append(line, part...)
			part = line
		}
		switch {
		case full:
		case err != nil && len(part) == 0 && long == nil:
			return nil, err
		case long != nil:
			return nil, long
		default:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
	}
}

// maxBeginning bounds what is shown of a bad line, in bytes.
const maxBeginning = 80

// beginning is how a line begins, as text.
func beginning(line []byte) string {
	line = bytes.TrimSpace(line)
	return string(bytes.ToValidUTF8(line[:min(len(line), maxBeginning)], nil))
}

// sniff returns the id of a message whose beginning is head, and whether it has a
// method, as far as they stand there.
func sniff(head []byte) (id json.RawMessage, asks bool) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
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
	if !isID(id) {
		id = nil
	}
	return id, asks
}

// isID reports whether a value may be the id of a request.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}
