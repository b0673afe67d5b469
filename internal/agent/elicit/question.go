// Package elicit has the form for clients of questions by MCP servers and ACP
// agents, and of their answers: mcp_elicitation on the wire.
//
// A checked question is bounded, can be shown, and has no URL except http and
// https. An accepted answer fits the form. The package does not ask the
// questions.
package elicit

import (
	"cmp"
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

// Tool is the tool name of elicitations on the wire.
const Tool = "mcp_elicitation"

// Modes of a question.
const (
	ModeForm = "form"
	ModeURL  = "url"
)

// maxPuts bounds how often a question is asked if its answers do not fit.
const maxPuts = 3

// Bounds of a question, in bytes. A longer message or id is cut; a longer form
// or URL makes the question invalid.
const (
	maxName    = 64
	maxMessage = 16 << 10
	maxForm    = 128 << 10
	maxURL     = 8 << 10
	maxID      = 256
)

// A Question is an elicitation as clients see it.
type Question struct {
	ServerName      string          `json:"serverName"`
	RequestID       string          `json:"requestId"`
	Mode            string          `json:"mode"`
	Message         string          `json:"message"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"`
	URL             string          `json:"url,omitempty"`
	ElicitationID   string          `json:"elicitationId,omitempty"`

	refused string // why the last answer was refused
}

// Check completes a question of server so that clients can show it, or returns
// why they cannot. It sets a new request id, because a server's own ids start
// again with every connection.
func (q *Question) Check(server string) error {
	q.ServerName, q.RequestID = cut(server, maxName), newID()
	q.Message = cut(strings.Map(shown, q.Message), maxMessage)
	switch q.Mode {
	case "", ModeForm: // earlier versions have no mode
		q.Mode, q.URL, q.ElicitationID = ModeForm, "", ""
		return q.checkForm()
	case ModeURL:
		q.RequestedSchema = nil
		return q.checkURL()
	}
	return errors.New("the question is of an unknown kind")
}

func (q *Question) checkForm() error {
	var schema any
	switch {
	case len(q.RequestedSchema) == 0 || string(q.RequestedSchema) == "null":
		q.RequestedSchema = nil
	case len(q.RequestedSchema) > maxForm:
		return errors.New("the form is too long")
	case json.Unmarshal(q.RequestedSchema, &schema) != nil:
		return errors.New("the form is not understood")
	case refers(schema):
		return errors.New("the form refers to itself or to another, as forms may not")
	case hides(schema):
		return errors.New("the form has characters that cannot be shown")
	}
	return nil
}

// shown returns a character as it may be shown. It replaces terminal controls
// and characters that reverse the direction of text.
func shown(c rune) rune {
	if unicode.IsControl(c) && c != '\n' && c != '\t' && c != '\r' || c == '\u202d' || c == '\u202e' {
		return '\uFFFD'
	}
	return c
}

// hides reports whether a schema has a text with characters that shown
// replaces.
func hides(schema any) bool {
	return anyText(schema, func(text string, _ bool) bool { return strings.Map(shown, text) != text })
}

// refers reports whether a schema contains a reference. Forms are flat and need
// none. Validating an answer against a schema that refers to itself would not
// end.
func refers(schema any) bool {
	return anyText(schema, func(text string, isKey bool) bool {
		return isKey && strings.HasPrefix(text, "$") && strings.HasSuffix(strings.ToLower(text), "ref")
	})
}

// anyText reports whether is holds for a key or a text at any depth of a schema.
func anyText(schema any, is func(text string, isKey bool) bool) bool {
	switch v := schema.(type) {
	case string:
		return is(v, false)
	case map[string]any:
		for key, value := range v {
			if is(key, true) || anyText(value, is) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return anyText(e, is) })
	}
	return false
}

// checkURL checks the URL of a question. It allows http and https only, because
// a client might open other URLs with more rights than a web page has. It
// refuses a user name before the host and characters other than ASCII, which
// could hide where the URL leads.
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

// FromServer is the reason of an MCP server's question.
const FromServer = "MCP server requested additional user input"

// Request returns a checked question as a server request. reason says who asks.
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

// Put asks a checked question, and asks it again while its answers do not fit, at
// most three times. reason says who asks. Without an answer to the question, Put
// returns the outcome and why there is none.
func (q *Question) Put(
	reason string, ask func(*contracts.ServerRequest) (contracts.Outcome, error),
) (answer *Answer, out contracts.Outcome, why string, err error) {
	for range maxPuts {
		req, err := q.Request(reason)
		if err != nil {
			return nil, out, "", err
		}
		if out, err = ask(req); err != nil || out.Verdict != contracts.VerdictAnswered {
			return nil, out, cmp.Or(out.Reason, string(out.Verdict)), err
		}
		if answer, why = q.Read(out.Content); answer != nil {
			return answer, out, "", nil
		}
		q.RequestID, q.refused = newID(), why
	}
	return nil, out, why, nil
}

func newID() string { return strings.ToLower(rand.Text())[:16] }

// cut returns the beginning of a text as valid UTF-8, without an incomplete
// character at its end.
func cut(text string, limit int) string {
	return abridge.Head(strings.ToValidUTF8(text, "\uFFFD"), limit)
}
