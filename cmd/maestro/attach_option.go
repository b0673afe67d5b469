package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/show"
)

// optionText returns an option in words: its name, its kind and its id.
func optionText(o contracts.ApprovalOption) string {
	kind := strings.ReplaceAll(show.InLine(o.Kind, 40), "_", " ")
	return fmt.Sprintf("%s (%s, %s)", show.InLine(o.Name, show.MaxArgs), kind, show.InLine(o.ID, show.MaxArgs))
}

// options returns the options that the agent offers; none if it only takes yes and no.
func (q *question) options() contracts.ApprovalOptions {
	if q.kind != contracts.RequestApproval {
		return nil
	}
	if _, more := show.Fields(q.args); more != nil {
		return more.Options
	}
	return nil
}

// ownTools are the tools for which an llm: agent remembers an answer without a rule.
// Tools of MCP servers and of clients need a rule.
var ownTools = []string{"bash", "read", "write", "edit", "glob", "grep"}

// lasts reports whether an approval may be given always, without a rule. remembers
// says whether the agent remembers answers at all.
func (q *question) lasts(remembers bool) bool {
	return remembers && slices.Contains(ownTools, q.tool)
}

// approvalWords returns the prompt of an approval, how to answer it, and the answers
// that are possible. remembers says whether the agent remembers answers.
func (q *question) approvalWords(remembers bool) (prompt, keys, want string) {
	options := q.options()
	switch n := len(options); {
	case n > 0:
		return fmt.Sprintf("approve? [1-%d/y/n] ", n), optionKeys(options), fmt.Sprintf("a number from 1 to %d, y, or n and a reason", n)
	case q.lasts(remembers):
		return "approve? [y]es, [n]o, [a]lways in this session: ",
			"y = approve, n [reason] = deny, a = approve, always in this session", "y, n and a reason, or a"
	}
	return "approve? [y/n] ", "y = approve, n [reason] = deny", "y, or n and a reason"
}

// optionKeys returns how to answer with an option, and the options that y and n mean.
func optionKeys(options contracts.ApprovalOptions) string {
	number := func(key string, approved bool) string {
		if i := options.Meant(approved, contracts.AnswerNote{}); i >= 0 {
			return fmt.Sprintf(", %s = %d", key, i+1)
		}
		return ""
	}
	return "a number" + number("y", true) + number("n [reason]", false)
}

// approvalAnswer reads an answer to an approval: a verdict, maybe with a reason or a
// note, or the number of an option. Several lines are never consent, because they may
// have been written for something else.
func (q *question) approvalAnswer(r *contracts.ServerRequestResponse, line string, remembers bool) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, rest = strings.ToLower(word), strings.TrimSpace(rest)
	options := q.options()
	if strings.ContainsAny(line, "\r\n") && word != "n" && word != "no" {
		return errors.New("not sent: a decision is one line")
	}
	if n, err := strconv.Atoi(word); err == nil && len(options) > 0 {
		switch {
		case n < 1 || n > len(options):
			return fmt.Errorf("there is no option %d", n)
		case rest != "":
			return errors.New("a number takes no text after it")
		}
		decide(r, options[n-1].Allows(), contracts.AnswerNote{OptionID: options[n-1].ID}.String())
		return nil
	}
	switch word {
	case "y", "yes", "n", "no":
		approved := word[0] == 'y'
		if err := checkNote(rest, approved, options, remembers); err != nil {
			return err
		}
		decide(r, approved, rest)
		return nil
	case "a", "always":
		switch {
		case rest != "":
			return errors.New("a takes no text after it")
		case len(options) > 0:
			return errors.New("the agent has options of its own: choose one by its number")
		case !remembers:
			return errForgetful
		case !q.lasts(remembers):
			return errors.New(`such a call is remembered only by a rule that is named: y {"remember":"session","rule":"..."}`)
		}
		decide(r, true, contracts.AnswerNote{Remember: contracts.RememberSession}.String())
		return nil
	}
	_, _, want := q.approvalWords(remembers)
	return errors.New("want a decision: " + want)
}

var errForgetful = errors.New("this agent does not remember answers: want y, or n and a reason")

// decide fills in a verdict and its reason.
func decide(r *contracts.ServerRequestResponse, approved bool, reason string) {
	r.Approved = &approved
	switch {
	case reason == "":
	case approved:
		r.Result = &contracts.ToolResult{Success: true, Output: reason}
	default:
		r.Result = &contracts.ToolResult{Error: reason}
	}
}

// checkNote refuses a note that the agent would ignore, or that contradicts the
// verdict.
func checkNote(reason string, approved bool, options contracts.ApprovalOptions, remembers bool) error {
	w, err := contracts.ParseAnswerNote(reason)
	switch {
	case errors.Is(err, contracts.ErrNoNote):
		if approved && reason != "" {
			return errors.New(`not sent: y alone approves. Only a note in braces may follow it, such as {"reason":"..."}`)
		}
		return nil
	case err != nil:
		return fmt.Errorf(`that is not understood, %w: want {"remember":"session"}, which may have a "rule" and a "reason", or {"option_id":"..."}`, err)
	case !remembers && (w.Remember != "" || w.Rule != ""):
		return errForgetful
	case w.OptionID == "":
		return nil
	}
	i := options.Index(w.OptionID)
	switch {
	case i < 0:
		return errors.New("the agent offers no such option")
	case approved && options[i].Rejects() || !approved && options[i].Allows():
		return fmt.Errorf("option %d says the opposite: choose it by its number", i+1)
	}
	return nil
}

// noReasons are the reasons that a server writes if the answer had none.
var noReasons = []string{"Approved", "Denied by user"}

// decided describes the end of an approval: the verdict, and the text after the name
// of the resolver, with the chosen option and the reason.
func decided(e *contracts.ServerRequestResolved, options contracts.ApprovalOptions) (verdict, more string) {
	verdict = string(e.Resolution)
	approved := e.Resolution == contracts.VerdictApproved
	w, err := contracts.ParseAnswerNote(e.Reason)
	if err != nil && !slices.Contains(noReasons, e.Reason) {
		w.Reason = e.Reason
	}
	chosen := -1
	if e.ResolvedBy == contracts.ResolvedByUser && (err == nil || errors.Is(err, contracts.ErrNoNote)) {
		chosen = options.Meant(approved, w)
	}
	switch {
	case chosen >= 0:
		o := options[chosen]
		if o.Rejects() == approved {
			verdict = "answered" // the agent follows the option, and not the verdict
		}
		more = fmt.Sprintf(": %d. %s", chosen+1, optionText(o))
	case w.OptionID != "":
		more = ": option " + show.InLine(w.OptionID, show.MaxArgs)
	case w.Remember != "":
		more = ", always in this session"
	}
	if w.Rule != "" {
		more += ", as the rule " + show.InLine(w.Rule, show.MaxArgs)
	}
	return verdict, more + colon(w.Reason)
}
