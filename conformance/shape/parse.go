package shape

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// Parse reads exactly one JSON text. Objects become map[string]any, numbers
// json.Number. It refuses what encoding/json lets pass: invalid UTF-8,
// duplicate keys, and more than contracts.MaxDepth levels.
func Parse(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("invalid UTF-8")
	}
	if err := checkDepth(text); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text after the JSON value")
	}
	return v, nil
}

// checkDepth bounds the recursion of value before it starts.
func checkDepth(text []byte) error {
	depth, quoted, escaped := 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			if depth++; depth > contracts.MaxDepth {
				return fmt.Errorf("nested deeper than %d", contracts.MaxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func value(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		return object(d)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := value(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

func object(d *json.Decoder) (map[string]any, error) {
	m := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := t.(string) // the decoder accepts nothing else here
		if _, dup := m[key]; dup {
			return nil, fmt.Errorf("duplicate key %q", key)
		}
		if m[key], err = value(d); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return m, err
}
