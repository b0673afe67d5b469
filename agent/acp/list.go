package acp

import (
	"bytes"
	"encoding/json"
)

// maxListed bounds the processed elements of a list from the program: a line
// has room for millions of empty elements.
const maxListed = 1024

// A list is a list from the program, of which the first elements are kept. A
// value that is not a list decodes as no list.
type list[T any] struct {
	kept []T // nil if there was no list
	more int // number of elements that were not kept
}

// UnmarshalJSON implements [json.Unmarshaler]. Members of a wrong type in an
// element are ignored.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	*l = list[T]{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil
	}
	l.kept = []T{}
	for dec.More() {
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return err
		}
		if len(l.kept) == maxListed {
			l.more++
			continue
		}
		var t T
		if err := decode(element, &t); err != nil {
			return err
		}
		l.kept = append(l.kept, t)
	}
	return nil
}
