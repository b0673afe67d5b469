package chord

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/dialect/chord"
)

// A kind is a kind of question. A program has at most one open question of each.
type kind int

const (
	kindConfirm kind = iota
	kindQuestion
	kindHandoff
)

// A question is an open question of the program.
type question struct {
	id       string // the program's
	withdraw func()
}

const (
	maxAnswer  = 128 << 10 // bytes of an answer; a line has room for their escapes
	maxOptions = 32        // of a question; more are not shown
)

const noRun = "nobody can be asked outside of a run"

// ask asks the clients a question. take gets the outcome unless the program has withdrawn
// the question.
func (s *speaker) ask(k kind, id string, timeoutMS int64, req *contracts.ServerRequest, take func(contracts.Outcome, error)) {
	s.advance()
	s.withdraw(k) // a program that asks again has dropped the earlier question
	q := &question{id: id}
	timeout := time.Duration(min(max(timeoutMS, 0), int64(24*time.Hour/time.Millisecond))) * time.Millisecond
	s.run.open[k] = q
	q.withdraw = s.p.Ask(req, timeout, func(out contracts.Outcome, err error) {
		if s.run.open[k] == q {
			delete(s.run.open, k)
			take(out, err)
		}
	})
}

// withdraw ends a question that the program has dropped, and its call.
func (s *speaker) withdraw(k kind) {
	if q := s.run.open[k]; q != nil {
		delete(s.run.open, k)
		q.withdraw()
	}
}

// confirm asks whether a call may run.
func (s *speaker) confirm(c chord.ConfirmRequest) {
	if s.p.Run() == nil {
		s.p.Send(chord.Command{Type: chord.CommandConfirm, RequestID: c.RequestID, Action: "deny", DenyReason: noRun})
		return
	}
	args := bytes.TrimSpace([]byte(c.ArgsJSON))
	if !json.Valid(args) || args[0] != '{' {
		args, _ = json.Marshal(map[string]string{"input": c.ArgsJSON}) // texts can be encoded
	}
	s.approval(kindConfirm, c.RequestID, c.TimeoutMS, c.ToolName, args, c.NeedsApproval, func(approved bool, reason, pattern string) any {
		answer := chord.Command{Type: chord.CommandConfirm, RequestID: c.RequestID, Action: "deny", DenyReason: reason}
		if approved {
			answer.Action, answer.DenyReason = "allow", ""
		}
		if approved && pattern != "" {
			answer.RulePattern, answer.RuleScope = pattern, "session"
		}
		return answer
	})
}

// A handoffRequest asks whether another agent may carry out a plan.
type handoffRequest struct {
	RequestID string `json:"request_id"`
	PlanPath  string `json:"plan_path"`
	PlanText  string `json:"plan_text"`
	Agents    []struct {
		Name    string `json:"name"`
		Default bool   `json:"default"`
	} `json:"agents"`
}

// handoff asks whether a plan may be handed to the program's default agent.
func (s *speaker) handoff(h handoffRequest) {
	if s.p.Run() == nil {
		s.p.Send(chord.Command{Type: chord.CommandHandoff, RequestID: h.RequestID, Action: "deny", DenyReason: noRun})
		return
	}
	args, _ := json.Marshal(map[string]any{"plan_path": h.PlanPath, "plan_text": h.PlanText, "agents": h.Agents}) // it has only texts and flags
	s.approval(kindHandoff, h.RequestID, 0, "handoff", args, nil, func(approved bool, reason, _ string) any {
		answer := chord.Command{Type: chord.CommandHandoff, RequestID: h.RequestID, Action: "deny", DenyReason: reason}
		if approved {
			answer.Action, answer.DenyReason = "accept", ""
		}
		return answer
	})
}

// approval asks whether a call may run and sends the program the answer. subjects are
// the parts of the call that need approval; a remembered approval is a pattern for them.
func (s *speaker) approval(k kind, id string, timeoutMS int64, tool string, args []byte, subjects []string, answer func(approved bool, reason, pattern string) any) {
	args, omitted := program.Args(args)
	req := &contracts.ServerRequest{
		RequestID: turn.ID("call_"), RequestType: contracts.RequestApproval, Tool: cmp.Or(abridge.Bytes(tool, maxName), "tool"),
		ActionDescription: mask.Command(abridge.Bytes(strings.Join(subjects, "; "), maxText)),
		Args:              args, Reason: "The agent asks for permission",
	}
	req.CallID = req.RequestID
	if omitted > 0 {
		req.Reason += fmt.Sprintf(". Not all of it is shown: %d bytes of input are left out", omitted)
	}
	s.ask(k, id, timeoutMS, req, func(out contracts.Outcome, err error) {
		switch {
		case err != nil:
			s.p.Send(answer(false, "nobody could be asked", ""))
			return
		case out.Verdict == contracts.VerdictCancelled: // an interrupt follows, and the hub ends the call
			return
		case !out.Announced:
			s.p.Publish(&contracts.ToolCall{CallID: req.CallID, Tool: req.Tool, Args: req.Args})
		}
		approved, reason, pattern, remark := decide(out, subjects)
		if remark != "" {
			s.p.Status(remark)
		}
		s.p.Send(answer(approved, abridge.Bytes(reason, maxText), pattern))
		s.decided(req, approved)
	})
}

// decided publishes what an answer means for the call.
func (s *speaker) decided(req *contracts.ServerRequest, approved bool) {
	if !approved {
		s.p.Publish(turn.After(req.CallID, contracts.VerdictDenied))
		return
	}
	s.p.Publish(&contracts.ToolStart{CallID: req.CallID})
	if len(s.run.running) == maxRunning {
		s.endRunning(true)
	}
	s.run.running = append(s.run.running, req.CallID)
}

// decide returns what an answer means: whether the call may run, why not, and the pattern
// for which the answer is to be remembered. A note that is not understood counts as a
// denial. The remark says what was not possible.
func decide(out contracts.Outcome, subjects []string) (approved bool, reason, pattern, remark string) {
	note, reason, err := out.Note()
	if err == nil && note.OptionID != "" {
		err = errors.New("the agent offers no options")
	}
	if err != nil {
		return false, "", "", fmt.Sprintf("The answer counts as a denial: %v", err)
	}
	approved = out.Verdict == contracts.VerdictApproved
	switch {
	case note.Remember == "":
	case approved && note.Rule != "":
		pattern = note.Rule
	case approved && len(subjects) == 1 && !strings.ContainsAny(subjects[0], `*?[]{}\`):
		pattern = subjects[0]
	default:
		remark = "The agent cannot remember this answer: it holds for this call only"
	}
	return approved, reason, pattern, remark
}

// question asks people a question.
func (s *speaker) question(q chord.QuestionRequest) {
	answer := chord.Command{Type: chord.CommandQuestion, RequestID: q.RequestID, Cancelled: true}
	if s.p.Run() == nil {
		s.p.Send(answer)
		return
	}
	args, omitted := program.Args(form(&q))
	req := &contracts.ServerRequest{
		RequestID: turn.ID("call_"), RequestType: contracts.RequestUserInput, Tool: "ask_user", // the tool that all clients know
		Args: args, Reason: "The agent asks a question",
	}
	req.CallID = req.RequestID
	if omitted > 0 {
		req.Reason += ", which is too long to be shown"
	}
	s.ask(kindQuestion, q.RequestID, q.TimeoutMS, req, func(out contracts.Outcome, err error) {
		if err == nil && out.Verdict == contracts.VerdictCancelled {
			return // an interrupt follows, and the hub ends the call
		}
		if err == nil && out.Verdict == contracts.VerdictAnswered {
			answer.Answers, answer.Cancelled = answers(&q, out.Content), false
		}
		s.p.Send(answer)
		if out.Announced { // otherwise clients know of no call
			s.p.Publish(turn.After(req.CallID, out.Verdict))
		}
	})
}

// form returns a question as the arguments of a question to the user.
func form(q *chord.QuestionRequest) []byte {
	options := []map[string]string{}
	for i, label := range q.Options[:min(len(q.Options), maxOptions)] {
		option := map[string]string{"label": label}
		if i < len(q.OptionDetails) {
			option["description"] = q.OptionDetails[i]
		}
		options = append(options, option)
	}
	args, _ := json.Marshal(map[string]any{"questions": []any{map[string]any{ // it has only texts and a flag
		"header": cmp.Or(q.Header, "Question"), "question": q.Question, "options": options, "multiSelect": q.Multiple,
	}}})
	return args
}

// answers returns the texts of an answer. Clients write several chosen options as one
// text.
func answers(q *chord.QuestionRequest, content []contracts.ContentBlock) []string {
	var texts []string
	for _, block := range content {
		if block.Type == "text" {
			texts = append(texts, block.Text)
		}
	}
	if q.Multiple && len(texts) == 1 {
		parts := strings.Split(texts[0], ", ")
		if !slices.ContainsFunc(parts, func(part string) bool { return !slices.Contains(q.Options, part) }) {
			return parts
		}
	}
	if q.Multiple && len(texts) <= len(q.Options) {
		return texts
	}
	return []string{abridge.Head(strings.Join(texts, "\n"), maxAnswer)}
}
