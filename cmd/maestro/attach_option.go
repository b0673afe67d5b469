package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// An option is an answer that an agent offers to an approval.
type option struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

func (o option) allows() bool  { return strings.HasPrefix(o.Kind, "allow") }
func (o option) rejects() bool { return strings.HasPrefix(o.Kind, "reject") }
func (o option) always() bool  { return strings.HasSuffix(o.Kind, "_always") }

// text returns the option for people: its name, what it means and its id.
func (o option) text() string {
	kind := strings.ReplaceAll(inLine(o.Kind, 40), "_", " ")
	return fmt.Sprintf("%s (%s, %s)", inLine(o.Name, maxArgs), kind, inLine(o.ID, maxArgs))
}

// A wish is what an answer to an approval says beside yes and no. The wire has no
// field for it, so it is said in the reason.
type wish struct {
	OptionID string `json:"option_id,omitempty"`
	Remember string `json:"remember,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// forSession is what may be remembered: nothing lasts longer.
const forSession = "session"

// options returns what the agent offers; nothing if it only takes yes and no.
func (q *question) options() []option {
	if q.kind != contracts.RequestApproval {
		return nil
	}
	if _, more, ok := fields(q.args); ok && more != nil {
		return more.Options
	}
	return nil
}

// meant returns the number from 1 of the option that a verdict stands for, 0 if
// there is none. Agents choose the same way: what holds once rather than always,
// or the other way round.
func meant(options []option, approved, always bool) int {
	fits := func(o option) bool { return approved && o.allows() || !approved && o.rejects() }
	if i := slices.IndexFunc(options, func(o option) bool { return fits(o) && o.always() == always }); i >= 0 {
		return i + 1
	}
	return slices.IndexFunc(options, fits) + 1
}

// ownTools are the tools of which an agent of ours remembers an answer without
// being told a rule. Those of servers and of clients are not among them.
var ownTools = []string{"bash", "read", "write", "edit", "glob", "grep"}

// lasts reports whether an approval may be given always without another word;
// remembers says whether the agent remembers answers at all.
func (q *question) lasts(remembers bool) bool {
	return remembers && slices.Contains(ownTools, q.tool)
}

// approvalKeys returns how to answer an approval; remembers says whether the
// agent may be told to remember the answer.
func approvalKeys(options []option, remembers bool) string {
	if len(options) == 0 {
		keys := "y = approve, n [reason] = deny"
		if remembers {
			keys += ", a = approve, always in this session"
		}
		return keys
	}
	number := func(key string, approved bool) string {
		if n := meant(options, approved, false); n > 0 {
			return fmt.Sprintf(", %s = %d", key, n)
		}
		return ""
	}
	return "a number" + number("y", true) + number("n [reason]", false)
}

// approvalAnswer takes an answer to an approval: a verdict with or without more,
// or the number of an option.
func (q *question) approvalAnswer(r *contracts.ServerRequestResponse, line string, remembers bool) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, rest = strings.ToLower(word), strings.TrimSpace(rest)
	options := q.options()
	if n, err := strconv.Atoi(word); err == nil && len(options) > 0 {
		return chooseOption(r, options, n, rest)
	}
	switch word {
	case "y", "yes", "n", "no":
		approved := word[0] == 'y'
		if err := checkWish(rest, approved, options, remembers); err != nil {
			return err
		}
		decide(r, approved, rest)
		return nil
	case "a", "always":
		switch {
		case rest != "":
			return errors.New("a takes nothing after it")
		case len(options) > 0:
			return errors.New("the agent has options of its own: choose one by its number")
		case !remembers:
			return errForgetful
		case !q.lasts(remembers):
			return errors.New(`such a call is remembered only by a rule that is named: y {"remember":"session","rule":"..."}`)
		}
		decide(r, true, wish{Remember: forSession}.text())
		return nil
	}
	if len(options) > 0 {
		return fmt.Errorf("a decision is awaited: a number from 1 to %d, y, or n and a reason", len(options))
	}
	if q.lasts(remembers) {
		return errors.New("a decision is awaited: y, n and a reason, or a")
	}
	return errors.New("a decision is awaited: y, or n and a reason")
}

var errForgetful = errors.New("this agent remembers no answers: y, or n and a reason")

// chooseOption answers with the n-th option.
func chooseOption(r *contracts.ServerRequestResponse, options []option, n int, rest string) error {
	switch {
	case n < 1 || n > len(options):
		return fmt.Errorf("there is no option %d", n)
	case rest != "":
		return errors.New("a number takes nothing after it")
	}
	decide(r, options[n-1].allows(), wish{OptionID: options[n-1].ID}.text())
	return nil
}

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

// checkWish refuses a reason that is meant to be a wish and would be taken for a
// mere verdict, or for another one.
func checkWish(reason string, approved bool, options []option, remembers bool) error {
	if !strings.HasPrefix(reason, "{") {
		if approved && strings.ContainsAny(reason, `{}[]"`) || approved && says(reason, "remember", "always", forSession, "option") {
			return errors.New(`y alone approves once; what is to be remembered is said as y {"remember":"session"}`)
		}
		return nil
	}
	var w wish
	d := json.NewDecoder(bytes.NewReader([]byte(reason)))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil || d.InputOffset() != int64(len(reason)) {
		return errors.New(`that is not understood: want {"remember":"session"}, which may have a "rule" and a "reason", or {"option_id":"..."}`)
	}
	if !remembers && (w.Remember != "" || w.Rule != "") {
		return errForgetful
	}
	if w.Remember != "" && w.Remember != forSession {
		return errors.New(`an answer can be remembered for the session only: {"remember":"session"}`)
	}
	if w.OptionID == "" {
		return nil
	}
	i := slices.IndexFunc(options, func(o option) bool { return o.ID == w.OptionID })
	switch {
	case i < 0:
		return errors.New("the agent offers no such option")
	case approved && options[i].rejects() || !approved && options[i].allows():
		return fmt.Errorf("option %d says the opposite: choose it by its number", i+1)
	}
	return nil
}

// says reports whether one of the words is in a text.
func says(text string, words ...string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

func (w wish) text() string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // texts only
	}
	return string(text)
}

// What a server says of an answer that came without a reason.
var noReasons = []string{"Approved", "Denied by user"}

// decided says how an approval ended: the verdict, and after the name of who
// decided what else was said and which option that is.
func decided(e *contracts.ServerRequestResolved, options []option) (verdict, more string) {
	verdict = string(e.Resolution)
	approved := e.Resolution == contracts.VerdictApproved
	w := wishIn(e.Reason)
	chosen := 0
	switch {
	case w.OptionID != "":
		chosen = slices.IndexFunc(options, func(o option) bool { return o.ID == w.OptionID }) + 1
	case e.ResolvedBy == contracts.ResolvedByUser:
		chosen = meant(options, approved, w.Remember == forSession)
	}
	switch {
	case chosen > 0:
		o := options[chosen-1]
		if o.rejects() == approved {
			verdict = "answered" // the agent heeds the option
		}
		more = fmt.Sprintf(": %d. %s", chosen, o.text())
	case w.OptionID != "":
		more = ": option " + inLine(w.OptionID, maxArgs)
	case w.Remember == forSession:
		more = ", always in this session"
	}
	if w.Rule != "" {
		more += ", as the rule " + inLine(w.Rule, maxArgs)
	}
	return verdict, more + colon(w.Reason)
}

// wishIn returns the wish that a reason is; one that is none says why.
func wishIn(reason string) (w wish) {
	if slices.Contains(noReasons, reason) {
		return wish{}
	}
	if !strings.HasPrefix(reason, "{") || json.Unmarshal([]byte(reason), &w) != nil || w == (wish{}) {
		return wish{Reason: reason}
	}
	return w
}
