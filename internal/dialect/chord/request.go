package chord

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// A request is a question of the agent that is not resolved.
type request struct {
	id       string
	kind     contracts.RequestType // approval or user_input
	tool     string
	args     json.RawMessage
	subject  string // what rules are matched against
	command  bool   // subject is a command line
	shown    bool   // the client was asked
	answered bool   // an answer is on its way

	asks  []contracts.UserQuestion // at least one, for user_input
	texts []string                 // answers to the first of them
}

// newRequest returns a question that clients can be asked, nil for another kind.
func newRequest(id string, kind contracts.RequestType, tool, label, reason string, args json.RawMessage) *request {
	r := &request{id: id, kind: kind, tool: tool, args: args}
	switch kind {
	case contracts.RequestApproval:
		if r.subject, r.command = commandIn(args); !r.command {
			r.subject = cmp.Or(label, string(args))
		}
	case contracts.RequestUserInput:
		if r.asks = contracts.UserQuestions(args); len(r.asks) == 0 {
			r.asks = []contracts.UserQuestion{plainQuestion(args, reason)}
		}
	default:
		return nil
	}
	return r
}

// commandIn returns the command line in the arguments of a call. A tool may ignore the case
// of names, so several members could be the command line. The whole arguments then stand
// for it, which no rule for a command line matches.
func commandIn(args json.RawMessage) (line string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(args))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return "", false
	}
	found := 0
	for d.More() {
		name, err := d.Token()
		var value any
		if err != nil || d.Decode(&value) != nil {
			return "", false
		}
		if strings.EqualFold(fmt.Sprint(name), "command") {
			found++
			line, ok = value.(string)
		}
	}
	if found > 1 {
		return string(args), true
	}
	return line, ok && line != ""
}

// plainQuestion returns the question in args that are not of the usual form.
func plainQuestion(args json.RawMessage, reason string) (q contracts.UserQuestion) {
	var a struct {
		Question, Prompt, Message string
		Options                   []string
		Multiple                  bool
	}
	_ = json.Unmarshal(args, &a) // what fits is used
	q.Question, q.MultiSelect = cmp.Or(a.Question, a.Prompt, a.Message, reason, string(args)), a.Multiple
	q.Options = slices.Grow(q.Options, len(a.Options))[:len(a.Options)]
	for i, o := range a.Options {
		q.Options[i].Label = o
	}
	return q
}

// ask begins to wait for an answer. A rule may answer at once.
func (t *Translator) ask(out *dialect.Out, r *request) {
	if slices.ContainsFunc(t.pending, func(p *request) bool { return p.id == r.id }) {
		return
	}
	t.pending = append(t.pending, r)
	t.updated = out.Now
	if r.kind == contracts.RequestApproval && t.allowedByRule(r) && (t.holder == "" || t.holder == t.self) {
		t.respond(out, r, &contracts.ServerRequestResponse{Approved: new(true)})
		return
	}
	t.reveal(out)
}

// exposed returns the oldest request of a kind that needs an answer, or nil.
func (t *Translator) exposed(kind contracts.RequestType) *request {
	if i := slices.IndexFunc(t.pending, func(r *request) bool { return r.kind == kind && !r.answered }); i >= 0 {
		return t.pending[i]
	}
	return nil
}

// reveal asks the client: at most one question of each kind at a time.
func (t *Translator) reveal(out *dialect.Out) {
	if r := t.exposed(contracts.RequestApproval); r != nil && !r.shown {
		r.shown = true
		t.emit(out, TypeConfirmRequest, r.confirm())
	}
	if r := t.exposed(contracts.RequestUserInput); r != nil && !r.shown {
		r.shown = true
		t.emit(out, TypeQuestionRequest, r.question())
	}
}

// maxSubject bounds a subject that is shown, in bytes.
const maxSubject = 32 << 10

func (r *request) confirm() *ConfirmRequest {
	return &ConfirmRequest{
		RequestID: r.id, ToolName: r.tool, ArgsJSON: string(r.args),
		NeedsApproval:      []string{abridge.Bytes(r.subject, maxSubject)},
		NeedsApprovalRules: []string{"*"}, // every call asks unless a rule allows it
	}
}

// Bounds of a question that is shown. The texts of options are in bytes.
const (
	maxOptions = 64
	maxOption  = 512
)

func (r *request) question() *QuestionRequest {
	q := r.asks[len(r.texts)]
	shown := &QuestionRequest{
		RequestID: r.questionID(), ToolName: r.tool, Header: abridge.Bytes(q.Header, maxOption),
		Question: abridge.Bytes(q.Question, maxSubject), Options: []string{}, OptionDetails: []string{}, Multiple: q.MultiSelect,
	}
	for _, o := range q.Options[:min(len(q.Options), maxOptions)] {
		shown.Options = append(shown.Options, abridge.Bytes(o.Label, maxOption))
		shown.OptionDetails = append(shown.OptionDetails, abridge.Bytes(o.Description, maxOption))
	}
	if len(shown.Options) > 0 {
		shown.DefaultAnswer = shown.Options[0]
	}
	return shown
}

// questionID returns the id of the question that is asked now.
func (r *request) questionID() string {
	if len(r.texts) == 0 {
		return r.id
	}
	return r.id + "#" + strconv.Itoa(len(r.texts)+1)
}

// Actions of confirm.
const (
	actionAllow     = "allow"
	actionAllowOnce = "allow_once"
	actionDeny      = "deny"
)

// confirm answers an approval.
func (t *Translator) confirm(out *dialect.Out, cmd *Command) {
	r := t.exposed(contracts.RequestApproval)
	switch {
	case r == nil || r.id != cmd.RequestID:
		t.fail(out, codeNoPending, "no confirm request with this id is pending")
		return
	case cmd.Action != actionAllow && cmd.Action != actionAllowOnce && cmd.Action != actionDeny:
		t.fail(out, "", "unsupported confirm action: "+cmd.Action)
		return
	}
	rule, err := t.rule(cmd, r)
	if err != nil {
		t.fail(out, "", err.Error())
		return
	}
	if !t.mayControl(out) {
		return
	}
	answer := &contracts.ServerRequestResponse{Approved: new(cmd.Action != actionDeny)}
	if cmd.Action == actionDeny {
		answer.Reason = cmd.DenyReason
	} else if cmd.FinalArgsJSON != "" && !sameJSON(cmd.FinalArgsJSON, r.args) {
		answer.Approved, answer.Reason = new(false), "the person wants other arguments: "+abridge.Bytes(cmd.FinalArgsJSON, maxMessage)
		rule = nil
		t.fail(out, "final_args_unsupported", "this server cannot change the arguments of a call: the tool was not run")
	}
	if rule != nil && !t.install(out, *rule) {
		return
	}
	t.respond(out, r, answer)
}

// install adds a rule. It returns false if the rule cannot be kept.
func (t *Translator) install(out *dialect.Out, rule Rule) bool {
	if rule.Scope != ScopeSession {
		if err := t.options.Rules.Add(rule); err != nil {
			t.fail(out, codeRuleNotKept, "the rule could not be kept")
			return false
		}
	}
	t.rules = append(t.rules, rule)
	t.emit(out, TypeToast, Toast{Level: "info", Message: "Rule added: " + rule.String() + " — /rules to undo"})
	return true
}

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(a string, b json.RawMessage) bool {
	var x, y any
	return decodeJSON([]byte(a), &x) && decodeJSON(b, &y) && reflect.DeepEqual(x, y)
}

// decodeJSON decodes a value without loss. It returns false if text is not one value.
func decodeJSON(text []byte, value *any) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return json.Valid(text) && d.Decode(value) == nil
}

// answer answers a question. A request for user input may have several.
func (t *Translator) answer(out *dialect.Out, cmd *Command) {
	r := t.exposed(contracts.RequestUserInput)
	switch {
	case r == nil || r.questionID() != cmd.RequestID:
		t.fail(out, codeNoPending, "no question with this id is pending")
		return
	case !t.mayControl(out):
		return
	case cmd.Cancelled:
		t.respond(out, r, &contracts.ServerRequestResponse{IsError: true, Content: textBlock(contracts.NoUserAnswer)})
		return
	}
	r.texts = append(r.texts, strings.Join(cmd.Answers, ", "))
	if len(r.texts) < len(r.asks) {
		r.shown = false
		t.updated = out.Now
		t.reveal(out)
		return
	}
	t.respond(out, r, &contracts.ServerRequestResponse{Content: textBlock(contracts.UserAnswer(r.asks, r.texts))})
}

func textBlock(text string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: text}}
}

// respond answers a request. If the session refuses the answer, the client is asked
// again.
func (t *Translator) respond(out *dialect.Out, r *request, answer *contracts.ServerRequestResponse) {
	answer.RequestID, answer.RequestType = r.id, r.kind
	r.answered = true
	t.updated = out.Now
	t.do(out, answer, func(out *dialect.Out, refused *contracts.Refusal) {
		if refused == nil {
			return
		}
		t.refuse(out, refused)
		r.answered, r.texts = false, nil
		t.reveal(out)
	})
	t.reveal(out)
}

// resolved forgets a request that has been answered or cancelled.
func (t *Translator) resolved(out *dialect.Out, e *contracts.ServerRequestResolved) {
	i := slices.IndexFunc(t.pending, func(r *request) bool { return r.id == e.RequestID })
	if i < 0 {
		return
	}
	r := t.pending[i]
	t.pending = slices.Delete(t.pending, i, i+1)
	t.updated = out.Now
	if !r.answered && r.shown {
		t.info(out, "the request "+r.id+" was resolved by "+string(e.ResolvedBy)+": "+string(e.Resolution))
	}
	t.reveal(out)
}
