package rpc

import (
	"bytes"
	"encoding/json"
)

// headBytes is how much of a line that is too long is looked at, to tell what it
// was.
const headBytes = 4 << 10

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
