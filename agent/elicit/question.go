package elicit

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Tool is the tool that the wire has for elicitations.
const Tool = "mcp_elicitation"

// Modes of a question.
const (
	ModeForm = "form"
	ModeURL  = "url"
)

// maxPuts is how often a question is put, as far as its answers do not fit.
const maxPuts = 3

// Bounds on a question, in bytes. A message or an id that is longer is cut, and a
// form or an address is no question then.
const (
	maxName    = 64
	maxMessage = 16 << 10
	maxForm    = 128 << 10
	maxURL     = 8 << 10
	maxID      = 256
)

// A Question is what clients are told of an elicitation.
type Question struct {
	ServerName      string          `json:"serverName"`
	RequestID       string          `json:"requestId"`
	Mode            string          `json:"mode"`
	Message         string          `json:"message"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"`
	URL             string          `json:"url,omitempty"`
	ElicitationID   string          `json:"elicitationId,omitempty"`

	refusals int    // answers that were not taken
	refused  string // why the last one was not
}

// Check makes a question of server one that clients can be shown, or says why it
// is none. Its request id is ours: those of a server begin anew with every
// connection.
func (q *Question) Check(server string) error {
	q.ServerName, q.RequestID = cut(server, maxName), newID()
	q.Message = cut(strings.Map(shown, q.Message), maxMessage)
	switch q.Mode {
	case "", ModeForm: // which came first
		q.Mode, q.URL, q.ElicitationID = ModeForm, "", ""
		return q.checkForm()
	case ModeURL:
		q.RequestedSchema = nil
		return q.checkURL()
	}
	return errors.New("the question is of an unknown kind")
}

func (q *Question) checkForm() error {
	if len(q.RequestedSchema) == 0 || string(q.RequestedSchema) == "null" {
		q.RequestedSchema = nil
		return nil
	}
	if len(q.RequestedSchema) > maxForm {
		return errors.New("the form is too long")
	}
	var schema any
	if json.Unmarshal(q.RequestedSchema, &schema) != nil {
		return errors.New("the form is not understood")
	}
	if refers(schema) {
		return errors.New("the form refers to itself or to another, as forms may not")
	}
	if hides(schema) {
		return errors.New("the form has characters that cannot be shown")
	}
	return nil
}

// shown returns a character of a text that people read, or one in the place of what
// a terminal would obey, or what turns a text around.
func shown(c rune) rune {
	if unicode.IsControl(c) && c != '\n' && c != '\t' && c != '\r' || c == '\u202d' || c == '\u202e' {
		return '\uFFFD'
	}
	return c
}

// hides reports whether a schema has a text that is not what is shown of it.
func hides(schema any) bool {
	switch v := schema.(type) {
	case string:
		return strings.Map(shown, v) != v
	case map[string]any:
		for key, value := range v {
			if hides(key) || hides(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hides)
	}
	return false
}

// refers reports whether a schema has a reference anywhere. Forms are flat and
// have none; one that refers to itself would be followed without end if an answer
// to it were accepted.
func refers(schema any) bool {
	switch v := schema.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.HasSuffix(strings.ToLower(key), "ref") && strings.HasPrefix(key, "$") || refers(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}

// checkURL takes an address that people are to visit. Only those of the web are
// shown: a client might open others with more rights than a page has. People see
// where they lead: a name before the host, or letters that look like others, would
// hide it.
func (q *Question) checkURL() error {
	u, err := url.Parse(q.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(q.URL) > maxURL {
		return errors.New("it wanted an address opened that is none of the web, or too long")
	}
	if u.User != nil || strings.ContainsFunc(q.URL+u.Host, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }) {
		return errors.New("it wanted an address opened that does not show where it leads")
	}
	q.ElicitationID = cut(q.ElicitationID, maxID)
	return nil
}

// FromServer is the reason of a question of an MCP server.
const FromServer = "MCP server requested additional user input"

// Request returns the question as it is put, for a reason that says who asks. It was
// checked.
func (q *Question) Request(reason string) (*contracts.ServerRequest, error) {
	args, err := json.Marshal(q)
	if err == nil && len(args) > contracts.MaxValueBytes { // with its escapes
		err = errors.New("the question is too long")
	}
	if err != nil {
		return nil, err
	}
	id := Tool + ":" + q.ServerName + ":" + q.RequestID
	if q.refused != "" {
		reason = "Asked again: " + q.refused
	}
	return &contracts.ServerRequest{
		RequestID: id, RequestType: contracts.RequestMCPElicitation, CallID: id, Tool: Tool,
		Args: args, Reason: reason,
	}, nil
}

// Again makes a question one to be put again, because its answer was not taken for
// the reason why. It reports false if it was put often enough.
func (q *Question) Again(why string) bool {
	if q.refusals++; q.refusals >= maxPuts {
		return false
	}
	q.RequestID, q.refused = newID(), why
	return true
}

func newID() string { return strings.ToLower(rand.Text())[:16] }

// cut returns the beginning of a text as valid UTF-8.
func cut(text string, limit int) string {
	return abridge.Head(strings.ToValidUTF8(text, "\uFFFD"), limit)
}
