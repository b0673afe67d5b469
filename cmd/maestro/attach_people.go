package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	llm "github.com/seed-028515a8/maestro/internal/agent/llm/provider"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/show"
)

// This file is the part of the view about connections, control and the state.

// connected prints the beginning of a connection.
func (v *view) connected(a *contracts.Attached) {
	again := "attached to"
	if v.me != "" {
		again = "connected again to"
	}
	v.me, v.session = a.ConnectionID, a.SessionID
	how := ""
	v.viewer, v.approver = a.Role == contracts.RoleViewer, a.Role == contracts.RoleApprover
	switch {
	case v.viewer:
		how = " to watch"
	case v.approver:
		how = " to watch and answer questions"
	}
	v.notice(console.Bold, "%s session %s%s", again, show.OneLine(a.SessionID, 60), how)
	v.lost = ""
	if a.Resume != "replay" {
		v.forget()
	}
	id := orEmpty(a.ControllerConnectionID)
	if id != "" && id != v.me && v.names[id] == "" && id != v.controller {
		v.controller, v.known = id, false // printed with its name, which comes next
		return
	}
	v.setController(id, "")
}

// disconnected prints that the connection was lost, and each new reason why the
// client cannot connect again.
func (v *view) disconnected(err error) {
	why := ""
	if e, ok := errors.AsType[*client.CloseError](err); ok && e.Err == nil {
		why = strings.ReplaceAll(show.OneLine(string(e.Reason), 40), "_", " ")
	} else if ok {
		err = e.Err
	}
	why = cmp.Or(why, show.OneLine(innermost(err), 200))
	if why == v.lost {
		return
	}
	v.lost = why
	v.notice(console.Yellow, "connection lost (%s); trying again", why)
}

// ready prints the agent, if it has changed. A script gets a badge, because its events
// did not happen.
func (v *view) ready(model, provider string, executor contracts.ExecutorType) {
	v.replay = executor == contracts.ExecutorReplay
	v.remembers = !v.replay && !(provider == "local" && model == "shell") // which does not remember answers
	v.rules = !v.replay && slices.Contains([]string{llm.Anthropic, llm.OpenAI, llm.OpenAIChat}, provider)
	badge := ""
	if v.replay {
		badge = "[REPLAY] "
	}
	what := fmt.Sprintf("%sready: %s (%s)", badge, show.OneLine(model, 60), show.OneLine(provider, 60))
	if what != v.answers { // the server publishes it at every start
		v.answers = what
		v.notice(console.Dim, "%s", what)
	}
}

// place prints the workspace, if it has changed.
func (v *view) place(cwd string, branch *string) {
	on := ""
	if b := orEmpty(branch); b != "" {
		on = " on " + show.OneLine(b, 60)
	}
	where := show.OneLine(cwd, 200) + on
	if where != v.where {
		v.where = where
		v.notice(console.Dim, "workspace %s", where)
	}
}

// waiting prints the questions of a state that have not been printed.
func (v *view) waiting(requests []contracts.PendingRequest) {
	shown := v.questions
	v.questions = map[string]shownQuestion{}
	for i := range requests {
		q := questionOf(&requests[i])
		was, ok := shown[q.id]
		if !ok {
			v.request(q)
		} else if len(v.questions) < maxQuestions {
			v.questions[q.id] = was
		}
	}
}

// request prints a question with how to answer it, or with who can answer. A question
// is printed once, and again when we may answer it.
func (v *view) request(q question) {
	keys := v.mayAnswer()
	if was, ok := v.questions[q.id]; ok && (was.keys || !keys) {
		return
	}
	v.ask(q, v.howTo(&q))
}

// ask prints a question with a last line on how to answer it, or none.
func (v *view) ask(q question, last string) {
	if len(v.questions) < maxQuestions {
		v.questions[q.id] = shownQuestion{v.mayAnswer(), q.options()}
	}
	v.flow = ""
	v.screen.Block(console.Yellow, q.text(last, false))
}

// howTo returns how to answer a question, or who can.
func (v *view) howTo(q *question) string {
	switch {
	case v.mayAnswer():
		return q.keys(v.remembers)
	case v.controller == "":
		return "whoever takes control can answer"
	}
	or := ""
	if v.approvers {
		or = " or an approver"
	}
	return v.name(v.controller) + or + " can answer"
}

// mayAnswer reports whether we may answer questions. An answer takes a free lease,
// which an approver does not need.
func (v *view) mayAnswer() bool {
	return v.approver || !v.viewer && (v.controller == "" || v.driving())
}

// connections handles a change of the connections.
func (v *view) connections(e *contracts.ConnectionInfo) {
	switch {
	case e.Connections != nil:
		v.people(e.Connections)
	case e.Role == "":
		delete(v.names, e.ConnectionID)
		delete(v.persons, e.ConnectionID)
	case e.ClientInfo != nil:
		v.names[e.ConnectionID] = e.ClientInfo.Name
	}
	if e.ControllerConnectionID.Present {
		v.setController(e.ControllerConnectionID.Get(), "")
	}
}

// people takes the names of the attached clients.
func (v *view) people(list []contracts.ConnectionState) {
	clear(v.names)
	v.approvers = false
	for _, c := range list {
		v.approvers = v.approvers || c.MayAnswer
		v.names[c.ConnectionID] = ""
		if c.ClientInfo != nil {
			v.names[c.ConnectionID] = c.ClientInfo.Name
		}
	}
	maps.DeleteFunc(v.persons, func(id, _ string) bool { _, here := v.names[id]; return !here })
}

// attached reports whether a client of that name is attached.
func (v *view) attached(name string) bool {
	for id, other := range v.names {
		if name == other && other != "" || name == id {
			return true
		}
	}
	return false
}

// control prints a control frame.
func (v *view) control(frame contracts.Frame) {
	switch f := frame.(type) {
	case *contracts.LeaseChange:
		if f.Reason == contracts.LeaseDenied {
			v.notice(console.Yellow, "%s keeps control%s", v.name(orEmpty(f.ControllerConnectionID)), colon(f.Message))
			return
		}
		v.setController(orEmpty(f.ControllerConnectionID), string(f.Reason))
	case *contracts.Refusal:
		v.notice(console.Red, "refused: %s", show.OneLine(f.Message, show.MaxArgs))
	}
}

// asked prints a request for control. number identifies it in the answer.
func (v *view) asked(f *contracts.ControlRequest, number int) {
	if f.ClientInfo != nil {
		v.names[f.ConnectionID] = f.ClientInfo.Name
	}
	v.learn(f.Author)
	v.notice(console.Yellow, "%s asks for control%s: /grant %d or /deny %d", v.name(f.ConnectionID), colon(f.Reason), number, number)
}

// setController prints the controller, if it has changed.
func (v *view) setController(id, reason string) {
	if v.known && id == v.controller {
		return
	}
	v.controller, v.known = id, true
	why := ""
	if reason != "" {
		why = " (" + strings.ReplaceAll(show.OneLine(reason, 20), "_", " ") + ")"
	}
	switch id {
	case "":
		v.notice(console.Bold, "nobody is in control%s", why)
	case v.me:
		v.notice(console.Bold, "you are in control%s", why)
	default:
		v.notice(console.Bold, "%s is in control%s", v.name(id), why)
	}
}

// driving reports whether we have control.
func (v *view) driving() bool { return v.me != "" && v.controller == v.me }

// name returns the name of a connection for the user.
func (v *view) name(id string) string {
	switch {
	case id == "":
		return "nobody"
	case id == v.me:
		return "you"
	case v.persons[id] != "":
		return v.persons[id]
	case v.names[id] != "":
		return show.OneLine(v.names[id], 40) + " (" + show.OneLine(id, 14) + ")"
	}
	return show.OneLine(id, 14)
}

// colon returns a cleaned text after a colon, or nothing.
func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + show.OneLine(text, show.MaxArgs)
}

// orEmpty returns the string, or "" for nil.
func orEmpty(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
