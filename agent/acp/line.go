package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxLine bounds a line from the program, as lines of the headless protocol are
// bounded. What is longer is not kept.
const maxLine = contracts.MaxLineBytes

// headBytes is how much of a line that is too long is kept, to tell what it was.
const headBytes = 4 << 10

// A longLine is a line that was too long and is gone but for its beginning.
type longLine struct{ head []byte }

func (*longLine) Error() string { return fmt.Sprintf("line is longer than %d bytes", maxLine) }

// readLine returns the next line without its end, valid until the next call. A
// line longer than limit is skipped without being kept, and the error is a
// *longLine. A last line that has no end counts.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	var long *longLine
	for {
		part, err := r.ReadSlice('\n')
		if long == nil && len(line)+len(part) > limit+1 {
			head := append(line, part...)
			long, line = &longLine{bytes.Clone(head[:min(len(head), headBytes)])}, nil
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

// sniff returns the id and the method of a message whose beginning is head, as
// far as they stand there.
func sniff(head []byte) (id json.RawMessage, method string) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, ""
	}
	for {
		key, err := dec.Token()
		if err != nil {
			return id, method
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return id, method
		}
		switch key {
		case "id":
			id = value
		case "method":
			_ = json.Unmarshal(value, &method) // a method that is no text is none
		}
	}
}
