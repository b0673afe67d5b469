package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
	"github.com/seed-028515a8/maestro/internal/show"
)

// A question is an open server request, in the form for the user of a terminal.
type question struct {
	id     string
	kind   contracts.RequestType
	tool   string
	label  string // title of the call; may be empty
	reason string // may be empty
	args   json.RawMessage
	older  bool // opened before the first line of a script, which must not answer it

	given  []string // user input only: answers to its first questions
	filled *form    // elicitations only; nil until it is needed
}

// requestOf returns the question of an event.
func requestOf(e *contracts.ServerRequest) question {
	label := cmp.Or(e.ActionDescription, e.DisplayName)
	return question{id: e.RequestID, kind: e.RequestType, tool: e.Tool, label: label, reason: e.Reason, args: e.Args}
}

// questionOf returns the question of an entry in a snapshot.
func questionOf(p *contracts.PendingRequest) question {
	return question{id: p.ID, kind: p.Kind, tool: p.Tool, label: cmp.Or(p.ActionDescription, p.DisplayName), args: p.Args}
}

// text returns the question with its details, and last as the last line unless that
// is empty. Without all, long details are cut.
func (q *question) text(last string, all bool) string {
	head := "? " + strings.ReplaceAll(show.OneLine(string(q.kind), 20), "_", " ") + ": " + show.InLine(q.tool, show.MaxArgs)
	head += dash(cmp.Or(q.reason, q.label)) // the label mostly repeats the arguments
	body := q.body()
	if !all {
		body = show.BothEnds(body)
	}
	for i, o := range q.options() { // they are never cut
		body = append(body, fmt.Sprintf("  %d. %s", i+1, optionText(o)))
	}
	if last != "" {
		body = append(body, last)
	}
	return strings.Join(slices.Insert(body, 0, head), "\n  ")
}

// body returns the details line by line.
func (q *question) body() []string {
	switch q.kind {
	case contracts.RequestUserInput:
		if parts := contracts.UserQuestions(q.args); len(parts) > 0 {
			var shown []string
			for _, p := range parts {
				shown = append(shown, partText(p)...)
			}
			return shown
		}
	case contracts.RequestMCPElicitation:
		return q.elicitation()
	case contracts.RequestToolRetry:
		var a struct {
			Args         json.RawMessage `json:"args"`
			ErrorMessage string          `json:"error_message"`
			Attempt      int             `json:"attempt"`
		}
		if json.Unmarshal(q.args, &a) == nil {
			return append(show.Details(a.Args), show.Hang(fmt.Sprintf("attempt %d failed: ", a.Attempt), "  ", a.ErrorMessage)...)
		}
	}
	return show.Details(q.args)
}

// elicitation returns the details of an elicitation.
func (q *question) elicitation() []string {
	var a struct {
		ServerName string `json:"serverName"`
		Message    string `json:"message"`
		URL        string `json:"url"`
	}
	if json.Unmarshal(q.args, &a) != nil {
		return show.Details(q.args)
	}
	shown := show.Hang(show.InLine(a.ServerName, 60)+": ", "  ", a.Message)
	if a.URL != "" {
		shown = append(shown, show.InLine(a.URL, show.MaxShown))
	}
	if f := q.form(); len(f.fields) > 0 {
		return append(shown, f.text()...)
	}
	return append(shown, show.Lines(show.Compact(q.schema()))...)
}

// schema returns the schema for the answer to an elicitation, if there is one.
func (q *question) schema() json.RawMessage {
	var a struct {
		RequestedSchema json.RawMessage `json:"requestedSchema"`
	}
	_ = json.Unmarshal(q.args, &a) // on an error there is none
	return a.RequestedSchema
}

// form returns the form of an elicitation.
func (q *question) form() *form {
	if q.filled == nil {
		q.filled = newForm(q.schema())
	}
	return q.filled
}

// begun reports whether the question was answered in part.
func (q *question) begun() bool {
	return len(q.given) > 0 || q.filled != nil && q.filled.at > 0
}

// takesNothing reports whether an empty line is an answer.
func (q *question) takesNothing() bool {
	return q.kind == contracts.RequestMCPElicitation && len(q.form().fields) > 0
}

// keys returns how to answer. remembers says whether the agent remembers answers.
func (q *question) keys(remembers bool) string {
	switch q.kind {
	case contracts.RequestApproval:
		_, keys, _ := q.approvalWords(remembers)
		return keys
	case contracts.RequestToolRetry:
		return "r = retry, s = skip, a = abort, each with an optional reason"
	case contracts.RequestMCPElicitation:
		if len(q.form().fields) > 0 {
			return "field by field (enter takes the default, or leaves it out), decline, cancel, or a JSON object"
		}
		return `accept, decline, cancel, or a JSON object to accept with`
	case contracts.RequestUserInput:
		if parts := contracts.UserQuestions(q.args); len(parts) > len(q.given) && len(parts[len(q.given)].Options) > 0 {
			if parts[len(q.given)].MultiSelect {
				return "numbers separated by commas or a text, decline, or cancel"
			}
			return "a number or a text, decline, or cancel"
		}
		return "a text"
	}
	return "a text as the tool's result, ! and a text to report a failure"
}

// prompt returns the prompt while the question is the next one to answer.
func (q *question) prompt(remembers bool) string {
	switch q.kind {
	case contracts.RequestApproval:
		prompt, _, _ := q.approvalWords(remembers)
		return prompt
	case contracts.RequestMCPElicitation:
		return q.form().prompt()
	case contracts.RequestToolRetry:
		return "retry? [r/s/a] "
	case contracts.RequestUserInput:
		if parts := contracts.UserQuestions(q.args); len(parts) > 1 && len(q.given) < len(parts) {
			return fmt.Sprintf("answer %d of %d: ", len(q.given)+1, len(parts))
		}
	}
	return "answer: "
}

// errMore means that the line was read and another one is needed.
var errMore = errors.New("more answers are needed")

// answer returns the command for a typed line. It returns errMore if another part of
// the answer is missing, and another error, which says what is expected, if the line
// is not an answer. remembers says whether the agent remembers answers.
func (q *question) answer(line string, remembers bool) (*contracts.ServerRequestResponse, error) {
	r := &contracts.ServerRequestResponse{RequestID: q.id, RequestType: q.kind}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, rest = strings.ToLower(word), strings.TrimSpace(rest)
	switch q.kind {
	case contracts.RequestApproval:
		return r, q.approvalAnswer(r, line, remembers)
	case contracts.RequestToolRetry:
		for _, action := range []contracts.RetryAction{contracts.RetryActionRetry, contracts.RetryActionSkip, contracts.RetryActionAbort} {
			if word == string(action) || word == string(action)[:1] {
				r.DecisionAction, r.Reason = action, rest
				return r, nil
			}
		}
		return r, errors.New("want a decision: r, s or a")
	case contracts.RequestMCPElicitation:
		return r, q.form().answer(r, line)
	case contracts.RequestUserInput:
		return r, q.input(r, line)
	}
	text, failed := strings.CutPrefix(line, "!")
	r.IsError, r.Content = failed, textBlock(strings.TrimPrefix(text, " "))
	return r, nil
}

// input reads the answer to the next part. After the last part the answers become one
// text.
func (q *question) input(r *contracts.ServerRequestResponse, line string) error {
	parts := contracts.UserQuestions(q.args)
	if len(parts) == 0 {
		r.Content = textBlock(line)
		return nil
	}
	if refused := strings.TrimSpace(line); refused == elicit.Decline || refused == elicit.Cancel {
		r.IsError, r.Content = true, textBlock(contracts.NoUserAnswer)
		q.given = nil
		return nil
	}
	text, err := choose(parts[len(q.given)], line)
	if err != nil {
		return err
	}
	q.given = append(q.given, text)
	if len(q.given) < len(parts) {
		return errMore
	}
	r.Content = textBlock(contracts.UserAnswer(parts, q.given))
	q.given = nil
	return nil
}

// partText returns a question to the user and its options, numbered from 1.
func partText(p contracts.UserQuestion) []string {
	shown := show.Hang(show.InLine(p.Header, 40)+": ", "  ", p.Question)
	for i, o := range p.Options {
		shown = append(shown, fmt.Sprintf("  %d. %s%s", i+1, show.InLine(o.Label, show.MaxArgs), dash(o.Description)))
	}
	return shown
}

// choose returns the answer in a line: the labels of the options whose numbers it
// lists, or the line itself.
func choose(p contracts.UserQuestion, line string) (string, error) {
	line = strings.TrimSpace(line)
	var labels []string
	for number := range strings.SplitSeq(line, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || len(p.Options) == 0 {
			return line, nil // a text
		}
		if n < 1 || n > len(p.Options) {
			return "", fmt.Errorf("there is no option %d", n)
		}
		labels = append(labels, p.Options[n-1].Label)
	}
	if len(labels) > 1 && !p.MultiSelect {
		return "", errors.New("want one option")
	}
	return strings.Join(labels, ", "), nil
}

// dash returns an exposed text after a dash, or nothing.
func dash(text string) string {
	if text == "" {
		return ""
	}
	return " - " + show.InLine(text, show.MaxArgs)
}

func textBlock(text string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: text}}
}
