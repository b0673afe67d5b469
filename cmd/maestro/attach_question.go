package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/agent/elicit"
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
	older  bool // than the first line of a script, which does not answer it

	given  []string // user input only: answers to the first of its questions
	filled *form    // elicitations only, once it was needed
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

// text returns the question with what is to be decided, and a last line on who
// decides, or how, unless that is empty. What is very long is left out unless all is wanted.
func (q *question) text(last string, all bool) string {
	head := "? " + strings.ReplaceAll(oneLine(string(q.kind), 20), "_", " ") + ": " + inLine(q.tool, maxArgs)
	if more := cmp.Or(q.reason, q.label); more != "" { // the label mostly repeats the arguments
		head += " - " + inLine(more, maxArgs)
	}
	body := q.body()
	if !all {
		body = bothEnds(body)
	}
	for i, o := range q.options() { // are never left out
		body = append(body, fmt.Sprintf("  %d. %s", i+1, optionText(o)))
	}
	if last != "" {
		body = append(body, last)
	}
	return head + "\n" + strings.TrimSuffix(indented(body), "\n")
}

// indented returns lines as they stand below a question, each ended.
func indented(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}

// body returns the details line by line.
func (q *question) body() []string {
	switch q.kind {
	case contracts.RequestUserInput:
		if parts := q.parts(); len(parts) > 0 {
			var shown []string
			for _, p := range parts {
				shown = append(shown, p.text()...)
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
			return append(details(a.Args), hang(fmt.Sprintf("attempt %d failed: ", a.Attempt), "  ", a.ErrorMessage)...)
		}
	}
	return details(q.args)
}

// elicitation returns what a server of the agent's asks for.
func (q *question) elicitation() []string {
	var a struct {
		ServerName string `json:"serverName"`
		Message    string `json:"message"`
		URL        string `json:"url"`
	}
	if json.Unmarshal(q.args, &a) != nil {
		return details(q.args)
	}
	shown := hang(inLine(a.ServerName, 60)+": ", "  ", a.Message)
	if a.URL != "" {
		shown = append(shown, inLine(a.URL, maxShown))
	}
	if f := q.form(); len(f.fields) > 0 {
		return append(shown, f.text()...)
	}
	return append(shown, lines(compacted(q.schema()))...)
}

// schema returns what the answer to an elicitation has to fit, if anything.
func (q *question) schema() json.RawMessage {
	var a struct {
		RequestedSchema json.RawMessage `json:"requestedSchema"`
	}
	_ = json.Unmarshal(q.args, &a) // else there is none
	return a.RequestedSchema
}

// form returns the form of an elicitation.
func (q *question) form() *form {
	if q.filled == nil {
		q.filled = newForm(q.schema())
	}
	return q.filled
}

// begun reports whether a part of the answer was given.
func (q *question) begun() bool {
	return len(q.given) > 0 || q.filled != nil && q.filled.at > 0
}

// takesNothing reports whether an empty line is an answer.
func (q *question) takesNothing() bool {
	return q.kind == contracts.RequestMCPElicitation && len(q.form().fields) > 0
}

// keys returns how to answer; remembers says whether the agent remembers answers.
func (q *question) keys(remembers bool) string {
	switch q.kind {
	case contracts.RequestApproval:
		return approvalKeys(q.options(), q.lasts(remembers))
	case contracts.RequestToolRetry:
		return "r = retry, s = skip, a = abort, each with an optional reason"
	case contracts.RequestMCPElicitation:
		if len(q.form().fields) > 0 {
			return "field by field (enter takes the default, or leaves it out), decline, cancel, or a JSON object"
		}
		return `accept, decline, cancel, or a JSON object to accept with`
	case contracts.RequestUserInput:
		if parts := q.parts(); len(parts) > len(q.given) && len(parts[len(q.given)].Options) > 0 {
			if parts[len(q.given)].MultiSelect {
				return "numbers separated by commas or a text, decline, or cancel"
			}
			return "a number or a text, decline, or cancel"
		}
		return "a text"
	}
	return "a text as the tool's result, ! and a text to report a failure"
}

// prompt returns the words before the cursor while the question waits.
func (q *question) prompt(remembers bool) string {
	switch q.kind {
	case contracts.RequestApproval:
		if n := len(q.options()); n > 0 {
			return fmt.Sprintf("approve? [1-%d/y/n] ", n)
		}
		if q.lasts(remembers) {
			return "approve? [y]es, [n]o, [a]lways in this session: "
		}
		return "approve? [y/n] "
	case contracts.RequestMCPElicitation:
		return q.form().prompt()
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
// what is expected, when the line is no answer. remembers says whether the agent
// remembers answers.
func (q *question) answer(line string, remembers bool) (*contracts.ServerRequestResponse, error) {
	r := &contracts.ServerRequestResponse{RequestID: q.id, RequestType: q.kind}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, rest = strings.ToLower(word), strings.TrimSpace(rest)
	switch q.kind {
	case contracts.RequestApproval:
		return r, q.approvalAnswer(r, line, remembers)
	case contracts.RequestToolRetry:
		return r, retryAnswer(r, word, rest)
	case contracts.RequestMCPElicitation:
		return r, q.form().answer(r, line)
	case contracts.RequestUserInput:
		return r, q.input(r, line)
	}
	text, failed := strings.CutPrefix(line, "!")
	r.IsError, r.Content = failed, textBlock(strings.TrimPrefix(text, " "))
	return r, nil
}

func retryAnswer(r *contracts.ServerRequestResponse, word, reason string) error {
	for _, action := range []contracts.RetryAction{contracts.RetryActionRetry, contracts.RetryActionSkip, contracts.RetryActionAbort} {
		if word == string(action) || word == string(action)[:1] {
			r.DecisionAction, r.Reason = action, reason
			return nil
		}
	}
	return errors.New("want a decision: r, s or a")
}

// input takes the answer to the next part; after the last one the answers
// become one text.
func (q *question) input(r *contracts.ServerRequestResponse, line string) error {
	parts := q.parts()
	if len(parts) == 0 {
		r.Content = textBlock(line)
		return nil
	}
	if refused := strings.TrimSpace(line); refused == elicit.Decline || refused == elicit.Cancel {
		r.IsError, r.Content = true, textBlock("The user did not answer.")
		q.given = nil
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
func (p *part) text() []string {
	shown := hang(inLine(p.Header, 40)+": ", "  ", p.Question)
	for i, o := range p.Options {
		shown = append(shown, fmt.Sprintf("  %d. %s%s", i+1, inLine(o.Label, maxArgs), dash(o.Description)))
	}
	return shown
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
		return "", errors.New("want one option")
	}
	return strings.Join(labels, ", "), nil
}

// dash returns a cleaned text after a dash, or nothing.
func dash(text string) string {
	if text == "" {
		return ""
	}
	return " - " + inLine(text, maxArgs)
}

func textBlock(text string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: text}}
}
