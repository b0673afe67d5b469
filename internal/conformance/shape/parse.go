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
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text after the JSON value")
	}
	return v, nil
}

// value reads a value that is inside so many others.
func value(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if _, opens := t.(json.Delim); err != nil || !opens {
		return t, err
	}
	if depth == contracts.MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d", contracts.MaxDepth)
	}
	if t == json.Delim('{') {
		return object(d, depth)
	}
	list := []any{}
	for d.More() {
		v, err := value(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err = d.Token()
	return list, err
}

func object(d *json.Decoder, depth int) (map[string]any, error) {
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
		if m[key], err = value(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return m, err
}
