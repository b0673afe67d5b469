package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Values in elicitations.
const (
	modeForm     = "form"
	modeURL      = "url"
	actionAccept = "accept"
)

// An elicitation is a question of an MCP server or an agent, in the form for
// the editor. The library's types lose most of a schema.
type elicitation struct {
	SessionID     acp.SessionId   `json:"sessionId"`
	Mode          string          `json:"mode"`
	Message       string          `json:"message"`
	Schema        json.RawMessage `json:"requestedSchema,omitempty"`
	URL           string          `json:"url,omitempty"`
	ElicitationID string          `json:"elicitationId,omitempty"`
}

// An elicited is the editor's answer to an elicitation, and the answer to the
// server.
type elicited struct {
	Action  string  `json:"action"`
	Content answers `json:"content,omitempty"`
}

// answers are the fields of a completed form.
type answers map[string]json.RawMessage

// UnmarshalJSON decodes an empty list as no fields.
func (a *answers) UnmarshalJSON(raw []byte) error {
	if string(raw) == emptyList {
		return nil
	}
	return json.Unmarshal(raw, (*map[string]json.RawMessage)(a))
}

// elicitation sends the question of an MCP server to the editor, and returns
// its answer.
func (a *attachment) elicitation(ctx context.Context, r contracts.PendingRequest, answer *contracts.ServerRequestResponse) (*contracts.ServerRequestResponse, error) {
	var e elicitation
	if err := json.Unmarshal(r.Args, &e); err != nil {
		return nil, errors.New("the question cannot be read")
	}
	switch {
	case e.Mode == modeURL && !a.peer.url:
		return nil, errors.New("it asks to open " + e.URL)
	case e.Mode != modeURL && !a.peer.form:
		return nil, errors.New("it asks for a form: " + e.Message)
	}
	e.SessionID = a.id
	got, err := a.elicit(ctx, &e)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(got)
	if err != nil {
		return nil, err
	}
	answer.Content = []contracts.ContentBlock{{Type: "text", Text: string(text)}}
	return answer, nil
}

func (a *attachment) elicit(ctx context.Context, e *elicitation) (*elicited, error) {
	raw, err := a.peer.conn.Call(ctx, acp.ClientMethodElicitationCreate, e)
	if err != nil {
		return nil, err
	}
	got := &elicited{}
	if err := json.Unmarshal(raw, got); err != nil {
		return nil, errUnreadable
	}
	if !slices.Contains([]string{actionAccept, "decline", "cancel"}, got.Action) {
		return nil, fmt.Errorf("its answer has no known action but %q", abridge.Head(got.Action, maxName))
	}
	if got.Action != actionAccept {
		got.Content = nil
	}
	return got, nil
}

// A field is a field of a form.
type field struct {
	Type        string   `json:"type"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Choices     []choice `json:"oneOf,omitempty"`
	Items       *items   `json:"items,omitempty"`
}

// items are the possible elements of a list in a form.
type items struct {
	Choices []choice `json:"anyOf"`
}

type choice struct {
	Value string `json:"const"`
	Title string `json:"title"`
}

// input asks the user the agent's questions in a form with a field for each.
// The answer is text, as from any client.
func (a *attachment) input(ctx context.Context, r contracts.PendingRequest, answer *contracts.ServerRequestResponse) (*contracts.ServerRequestResponse, error) {
	all := contracts.UserQuestions(r.Args)
	form, message := formOf(all)
	if form == nil {
		in := inputsOf(r.Args)
		form, message = map[string]field{"answer": {Type: "string", Title: "Answer"}}, in.title(r.Tool)
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": form})
	if err != nil {
		return nil, err
	}
	got, err := a.elicit(ctx, &elicitation{SessionID: a.id, Mode: modeForm, Message: message, Schema: schema})
	if err != nil {
		return nil, err
	}
	text := contracts.NoUserAnswer
	if answer.IsError = got.Action != actionAccept; !answer.IsError {
		text = textOf(all, got.Content)
	}
	answer.Content = []contracts.ContentBlock{{Type: "text", Text: text}}
	return answer, nil
}

// formOf returns a form for questions, nil if there are none.
func formOf(all []contracts.UserQuestion) (form map[string]field, message string) {
	for i, q := range all {
		f := field{Type: "string", Title: q.Header, Description: q.Question}
		var choices []choice
		for _, o := range q.Options {
			title := o.Label
			if o.Description != "" {
				title += ": " + o.Description
			}
			choices = append(choices, choice{o.Label, title})
		}
		if f.Choices = choices; q.MultiSelect {
			f.Type, f.Choices, f.Items = "array", nil, &items{choices}
		}
		if form == nil {
			form, message = map[string]field{}, q.Question
		} else {
			message = "The agent asks:"
		}
		form[fieldName(i)] = f
	}
	return form, message
}

func fieldName(i int) string { return "answer" + strconv.Itoa(i+1) }

// textOf returns the text of a completed form.
func textOf(all []contracts.UserQuestion, content answers) string {
	if len(all) == 0 {
		return plain(content["answer"])
	}
	given := make([]string, len(all))
	for i := range all {
		given[i] = plain(content[fieldName(i)])
	}
	return contracts.UserAnswer(all, given)
}

// plain returns a value of a form as text.
func plain(raw json.RawMessage) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &list) == nil:
		return strings.Join(list, ", ")
	}
	return string(raw)
}
