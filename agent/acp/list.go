package acp

import (
	"bytes"
	"encoding/json"
)

// maxListed bounds the elements of a list of the program that are looked at: a
// line has room for millions of empty ones.
const maxListed = 1024

// A list is a list of the program, of which the first elements are kept. What is
// no list is none.
type list[T any] struct {
	kept []T // nil if there was no list
	more int // elements that are not kept
}

// UnmarshalJSON implements [json.Unmarshaler]. An element of the wrong type is
// kept as far as it fits.
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
