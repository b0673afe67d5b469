package rpc

import (
	"bytes"
	"encoding/json"
)

// headBytes is the size of the beginning of a too long line that is checked for
// its kind.
const headBytes = 4 << 10

// maxBeginning bounds the shown part of a bad line, in bytes.
const maxBeginning = 80

// beginning returns the beginning of a line as text.
func beginning(line []byte) string {
	line = bytes.TrimSpace(line)
	return string(bytes.ToValidUTF8(line[:min(len(line), maxBeginning)], nil))
}

// sniff returns the id of a message that begins with head, and whether it has a
// method, as far as head contains them.
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

// isID reports whether a value is a valid request id.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}
