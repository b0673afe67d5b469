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
)

// A question is a request of the runtime that waits for a decision, as it is
// put to the user of a terminal.
type question struct {
	id     string
	kind   contracts.RequestType
	tool   string
	label  string // what the tool calls itself; may be empty
	reason string // may be empty
	args   json.RawMessage

	given []string // user input only: answers to the first of its questions
}

// requestOf makes a question of the event that asks it.
func requestOf(e *contracts.ServerRequest) question {
	label := e.ActionDescription
	if label == "" {
		label = e.DisplayName
	}
	return question{id: e.RequestID, kind: e.RequestType, tool: e.Tool, label: label, reason: e.Reason, args: e.Args}
}

// questionOf makes a question of its place in a snapshot.
func questionOf(p *contracts.PendingRequest) question {
	label := p.ActionDescription
	if label == "" {
		label = p.DisplayName
	}
	return question{id: p.ID, kind: p.Kind, tool: p.Tool, label: label, args: p.Args}
}

// text returns the question with what is to be decided, cleaned, and a last line
// on who decides, or how.
func (q *question) text(last string) string {
	head := "? " + strings.ReplaceAll(oneLine(string(q.kind), 20), "_", " ") + ": " + oneLine(q.tool, 60)
	if more := cmp.Or(q.reason, q.label); more != "" { // the label mostly repeats the arguments
		head += " - " + oneLine(more, maxArgs)
	}
	return head + "\n" + q.body() + "  " + last
}

// body returns the details, indented, each line ended.
func (q *question) body() string {
	switch q.kind {
	case contracts.RequestUserInput:
		if parts := q.parts(); len(parts) > 0 {
			var b strings.Builder
			for _, p := range parts {
				b.WriteString(p.text())
			}
			return b.String()
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
			return fmt.Sprintf("  %s\n  attempt %d failed: %s\n", summary(a.Args), a.Attempt, oneLine(a.ErrorMessage, maxArgs))
		}
	}
	return "  " + summary(q.args) + "\n"
}

// elicitation returns what a server of the agent's asks for.
func (q *question) elicitation() string {
	var a struct {
		ServerName      string          `json:"serverName"`
		Message         string          `json:"message"`
		URL             string          `json:"url"`
		RequestedSchema json.RawMessage `json:"requestedSchema"`
	}
	if json.Unmarshal(q.args, &a) != nil {
		return "  " + summary(q.args) + "\n"
	}
	text := "  " + oneLine(a.ServerName, 60) + ": " + oneLine(a.Message, maxArgs) + "\n"
	if a.URL != "" {
		text += "  " + oneLine(a.URL, maxArgs) + "\n"
	}
	if len(a.RequestedSchema) > 0 {
		text += "  " + summary(a.RequestedSchema) + "\n"
	}
	return text
}

// keys returns how to answer.
func (q *question) keys() string {
	switch q.kind {
	case contracts.RequestApproval:
		return "y = approve, n [reason] = deny"
	case contracts.RequestToolRetry:
		return "r = retry, s = skip, a = abort, each with an optional reason"
	case contracts.RequestMCPElicitation:
		return `accept, decline, cancel, or a JSON object to accept with`
	case contracts.RequestUserInput:
		if parts := q.parts(); len(parts) > len(q.given) && len(parts[len(q.given)].Options) > 0 {
			if parts[len(q.given)].MultiSelect {
				return "numbers separated by commas, or a text"
			}
			return "a number or a text"
		}
		return "a text"
	}
	return "a text as the tool's result, ! and a text to report a failure"
}

// prompt returns the words before the cursor while the question waits.
func (q *question) prompt() string {
	switch q.kind {
	case contracts.RequestApproval:
		return "approve? [y/n] "
	case contracts.RequestToolRetry:
		return "retry? [r/s/a] "
	case contracts.RequestUserInput:
		if parts := q.parts(); len(parts) > 1 && len(q.given) < len(parts) {
			return fmt.Sprintf("answer %d of %d: ", len(q.given)+1, len(parts))
		}
	}
	return "answer: "
}

// errMore says that a line was taken and another is needed.
var errMore = errors.New("more answers are needed")

// answer makes the command that a typed line stands for. It returns errMore
// when the line answered one of several parts, and another error, which says
// what is expected, when the line is no answer.
func (q *question) answer(line string) (*contracts.ServerRequestResponse, error) {
	r := &contracts.ServerRequestResponse{RequestID: q.id, RequestType: q.kind}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, rest = strings.ToLower(word), strings.TrimSpace(rest)
	switch q.kind {
	case contracts.RequestApproval:
		return r, approvalAnswer(r, word, rest)
	case contracts.RequestToolRetry:
		return r, retryAnswer(r, word, rest)
	case contracts.RequestMCPElicitation:
		return r, elicitationAnswer(r, line)
	case contracts.RequestUserInput:
		return r, q.input(r, line)
	}
	text, failed := strings.CutPrefix(line, "!")
	r.IsError, r.Content = failed, textBlock(strings.TrimPrefix(text, " "))
	return r, nil
}

func approvalAnswer(r *contracts.ServerRequestResponse, word, reason string) error {
	yes := word == "y" || word == "yes"
	if !yes && word != "n" && word != "no" {
		return errors.New("a decision is awaited: y, or n and a reason")
	}
	r.Approved = &yes
	switch {
	case reason == "":
	case yes:
		r.Result = &contracts.ToolResult{Success: true, Output: reason}
	default:
		r.Result = &contracts.ToolResult{Error: reason}
	}
	return nil
}

func retryAnswer(r *contracts.ServerRequestResponse, word, reason string) error {
	for _, action := range []contracts.RetryAction{contracts.RetryActionRetry, contracts.RetryActionSkip, contracts.RetryActionAbort} {
		if word == string(action) || word == string(action)[:1] {
			r.DecisionAction, r.Reason = action, reason
			return nil
		}
	}
	return errors.New("a decision is awaited: r, s or a")
}

func elicitationAnswer(r *contracts.ServerRequestResponse, line string) error {
	line = strings.TrimSpace(line)
	answer := struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}{Action: line}
	if strings.HasPrefix(line, "{") && json.Valid([]byte(line)) {
		answer.Action, answer.Content = "accept", json.RawMessage(line)
	} else if !slices.Contains([]string{"accept", "decline", "cancel"}, line) {
		return errors.New("accept, decline, cancel or a JSON object is awaited")
	}
	text, err := json.Marshal(answer)
	r.Content = textBlock(string(text))
	return err
}

// input takes the answer to the next part; after the last one the answers
// become one text.
func (q *question) input(r *contracts.ServerRequestResponse, line string) error {
	parts := q.parts()
	if len(parts) == 0 {
		r.Content = textBlock(line)
		return nil
	}
	text, err := parts[len(q.given)].choose(line)
	if err != nil {
		return err
	}
	q.given = append(q.given, text)
	if len(q.given) < len(parts) {
		return errMore
	}
	if len(parts) > 1 {
		for i, p := range parts {
			q.given[i] = p.Header + ": " + q.given[i]
		}
	}
	r.Content = textBlock(strings.Join(q.given, "\n"))
	q.given = nil
	return nil
}

// A part is one question of a request for user input.
type part struct {
	Header   string `json:"header"`
	Question string `json:"question"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
	MultiSelect bool `json:"multiSelect"`
}

// parts returns the questions of a request for user input; none if they are not
// in the usual form.
func (q *question) parts() []part {
	var a struct {
		Questions []part `json:"questions"`
	}
	if json.Unmarshal(q.args, &a) != nil {
		return nil
	}
	return a.Questions
}

// text returns the question and its options, numbered from 1.
func (p *part) text() string {
	text := "  " + oneLine(p.Header, 40) + ": " + oneLine(p.Question, maxArgs) + "\n"
	for i, o := range p.Options {
		text += fmt.Sprintf("    %d. %s%s\n", i+1, oneLine(o.Label, 80), dash(o.Description))
	}
	return text
}

// choose returns the answer that a line stands for: the labels of the options
// it numbers, or the line itself.
func (p *part) choose(line string) (string, error) {
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
		return "", errors.New("one option is awaited")
	}
	return strings.Join(labels, ", "), nil
}

// dash returns a cleaned text after a dash, or nothing.
func dash(text string) string {
	if text == "" {
		return ""
	}
	return " - " + oneLine(text, maxArgs)
}

func textBlock(text string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: text}}
}
