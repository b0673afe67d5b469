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
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
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

// elicitation sends the question of an MCP server to the editor, and returns
// its answer.
func (a *attachment) elicitation(ctx context.Context, r contracts.PendingRequest, answer *contracts.ServerRequestResponse) (*contracts.ServerRequestResponse, error) {
	var e elicitation
	if err := json.Unmarshal(r.Args, &e); err != nil {
		return nil, errors.New("the question cannot be read")
	}
	switch {
	case e.Mode == elicit.ModeURL && !a.peer.url:
		return nil, errors.New("it asks to open " + e.URL)
	case e.Mode != elicit.ModeURL && !a.peer.form:
		return nil, errors.New("it asks for a form: " + e.Message)
	}
	e.SessionID = a.id
	got, err := a.elicit(ctx, &e)
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(got) // it was decoded
	answer.Content = []contracts.ContentBlock{{Type: "text", Text: string(text)}}
	return answer, nil
}

func (a *attachment) elicit(ctx context.Context, e *elicitation) (*elicit.Answer, error) {
	raw, err := a.peer.conn.Call(ctx, acp.ClientMethodElicitationCreate, e)
	if err != nil {
		return nil, err
	}
	return readAnswer(raw)
}

// readAnswer reads the editor's answer to an elicitation.
func readAnswer(raw json.RawMessage) (*elicit.Answer, error) {
	var got struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &got) != nil {
		return nil, errUnreadable
	}
	if !slices.Contains([]string{elicit.Accept, elicit.Decline, elicit.Cancel}, got.Action) {
		return nil, fmt.Errorf("its answer has no known action but %q", abridge.Head(got.Action, maxName))
	}
	answer := &elicit.Answer{Action: got.Action}
	if got.Action == elicit.Accept && got.Content != nil && decode(got.Content, &answer.Content) != nil {
		return nil, errUnreadable
	}
	return answer, nil
}

// input asks the user the agent's questions in a form with a field for each.
// The answer is text, as from any client.
func (a *attachment) input(ctx context.Context, r contracts.PendingRequest, answer *contracts.ServerRequestResponse) (*contracts.ServerRequestResponse, error) {
	all := contracts.UserQuestions(r.Args)
	form, message := formOf(all)
	if form == nil {
		in := inputsOf(r.Args)
		form, message = map[string]any{"answer": map[string]string{"type": "string", "title": "Answer"}}, in.title(r.Tool)
	}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": form}) // texts can be encoded
	got, err := a.elicit(ctx, &elicitation{SessionID: a.id, Mode: elicit.ModeForm, Message: message, Schema: schema})
	if err != nil {
		return nil, err
	}
	text := contracts.NoUserAnswer
	if answer.IsError = got.Action != elicit.Accept; !answer.IsError {
		text = textOf(all, got.Content)
	}
	answer.Content = []contracts.ContentBlock{{Type: "text", Text: text}}
	return answer, nil
}

// formOf returns a form for questions, nil if there are none.
func formOf(all []contracts.UserQuestion) (form map[string]any, message string) {
	for i, q := range all {
		f := map[string]any{"type": "string", "title": q.Header, "description": q.Question}
		var choices []map[string]string
		for _, o := range q.Options {
			title := o.Label
			if o.Description != "" {
				title += ": " + o.Description
			}
			choices = append(choices, map[string]string{"const": o.Label, "title": title})
		}
		switch {
		case q.MultiSelect:
			f["type"], f["items"] = "array", map[string]any{"anyOf": choices}
		case len(choices) > 0:
			f["oneOf"] = choices
		}
		if form == nil {
			form, message = map[string]any{}, q.Question
		} else {
			message = "The agent asks:"
		}
		form[fieldName(i)] = f
	}
	return form, message
}

func fieldName(i int) string { return "answer" + strconv.Itoa(i+1) }

// textOf returns the text of a completed form.
func textOf(all []contracts.UserQuestion, content map[string]json.RawMessage) string {
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
