package auth

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/connlimit"
)

const maxTicketRequest = 4 << 10 // bytes of a request body

// members are the requested members of a JSON object.
type members map[string]json.RawMessage

// readBody returns the named members of the request's body, which must be a
// JSON object or empty.
func readBody(w http.ResponseWriter, r *http.Request, names ...string) (members, error) {
	body, err := connlimit.ReadBody(w, r, maxTicketRequest)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, nil
	}
	// A form on a foreign page cannot send this content type.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, badRequest("the content type must be application/json")
	}
	m, ok := parseMembers(body, names)
	if !ok {
		return nil, badRequest("the body must be a JSON object")
	}
	return m, nil
}

// parseMembers returns the named members of a JSON object. Null means absent.
// Other members are ignored. It refuses duplicate names, and names match by
// case (D13); encoding/json alone does neither.
func parseMembers(body []byte, names []string) (found members, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') || !utf8.Valid(body) {
		return nil, false
	}
	found = members{}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, isName := t.(string)
		var raw json.RawMessage
		if err != nil || !isName || seen[name] || d.Decode(&raw) != nil {
			return nil, false
		}
		seen[name] = true
		if slices.Contains(names, name) && string(raw) != "null" {
			found[name] = raw
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, false
	}
	_, err := d.Token()
	return found, err == io.EOF
}

// text returns a member that is a string, or the empty string if it is absent.
func (m members) text(name string) (value string, ok bool) {
	raw, present := m[name]
	return value, !present || json.Unmarshal(raw, &value) == nil
}

// whole returns a member that is an integer, or zero if it is absent.
func (m members) whole(name string) (value int64, present, ok bool) {
	raw, present := m[name]
	return value, present, !present || json.Unmarshal(raw, &value) == nil
}

// reply answers with a JSON body that must not be cached.
func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(body) // if the peer has gone, the secret in the body expires
}

// notAllowed refuses a method and lists the allowed ones.
func notAllowed(w http.ResponseWriter, methods string) error {
	w.Header().Set("Allow", methods)
	return &contracts.Error{Code: contracts.CodeMethodNotAllowed, Message: "method not allowed"}
}

// timestamp formats a time as on the wire.
func timestamp(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
