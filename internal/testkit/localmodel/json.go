package localmodel

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// An object is a JSON object with its keys in order: key, value, key, value.
type object []any

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i := 0; i+1 < len(o); i += 2 {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%q:", o[i])
		out.Write(encode(o[i+1]))
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// encode returns v as JSON without escapes for HTML, as the services write it.
func encode(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // all encoded values were made here or decoded before
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// tokens estimates how many tokens n bytes are.
func tokens(n int) int { return max(1, (n+3)/4) }
