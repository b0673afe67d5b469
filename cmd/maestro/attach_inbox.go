package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/show"
)

// This file is the part of an attachment about the server: who is connected, and the open
// questions of all sessions.

// A serverCalls is the part of [client.Server] that an attachment uses.
type serverCalls interface {
	Connections(ctx context.Context, session string) (*contracts.ConnectionList, error)
	Inbox(context.Context) (*contracts.Inbox, error)
	AnswerQuestion(
		ctx context.Context, session, request string, a contracts.InboxAnswer,
	) (*contracts.InboxReceipt, error)
	CreateShare(ctx context.Context, session string, r contracts.ShareRequest) (*contracts.ShareAnswer, error)
	Shares(ctx context.Context, session string) (*contracts.ShareList, error)
	RevokeShare(ctx context.Context, session, share string) error
}

var _ serverCalls = (*client.Server)(nil)

// serverPatience is the time that the server has for an answer. Other orders wait meanwhile.
const serverPatience = 30 * time.Second

// askServer queues an order that makes a request to the server. done gets the answer.
func askServer[A any](a *attachment, what string, do func(context.Context) (A, error), done func(A)) {
	var answer A
	a.send(order{
		what: what,
		do: func(ctx context.Context) (_ contracts.Result, err error) {
			ctx, cancel := context.WithTimeout(ctx, serverPatience)
			defer cancel()
			answer, err = do(ctx)
			return contracts.Result{}, err
		},
		done: func(contracts.Result) { done(answer) },
	})
}

// who shows who is connected.
func (a *attachment) who() {
	session := a.view.session
	askServer(a, "who", func(ctx context.Context) (*contracts.ConnectionList, error) {
		return a.server.Connections(ctx, session)
	}, func(list *contracts.ConnectionList) {
		for _, c := range list.Connections {
			a.view.learn(&c.Author)
			a.local.Line(console.Plain, "  "+a.view.connectionLine(&c))
		}
		if rest := list.Count - int64(len(list.Connections)); rest > 0 {
			a.local.Line(console.Plain, fmt.Sprintf("  and %d more", rest))
		}
		if a.view.controller == "" {
			a.local.Line(console.Dim, "-- nobody is in control")
		}
	})
}

// connectionLine returns a line about a connection: role, since when, and whose it is.
func (v *view) connectionLine(c *contracts.ConnectionEntry) string {
	name := cmp.Or(authorName(&c.Author), show.OneLine(c.Author.Name, 40))
	if id := c.Author.ConnectionID; id == v.me {
		name += ", you"
	} else {
		name += ", " + show.OneLine(id, 14)
	}
	if c.Controller {
		name += ", in control"
	}
	if !c.Attached {
		name += ", away"
	}
	return fmt.Sprintf("%-10s since %s  %s", show.OneLine(string(c.Role), 10), clock(c.Since), name)
}

// An inboxEntry is an open question of the inbox, as it was shown.
type inboxEntry struct {
	contracts.InboxQuestion
	question question // the same in the form of a question of this session
	whole    bool     // question has the arguments
	seen     bool     // it was shown, and not only listed
}

// newInboxEntry returns the entry of a question. The display form has the arguments, if it
// is whole.
func newInboxEntry(q contracts.InboxQuestion) inboxEntry {
	e := inboxEntry{InboxQuestion: q}
	args, found := strings.CutPrefix(q.Display, q.Tool+" ")
	e.whole = found && !q.Truncated && json.Valid([]byte(args))
	e.question = question{id: q.RequestID, kind: q.RequestType, tool: q.Tool, label: q.Description, reason: q.Reason}
	if e.whole {
		e.question.args = json.RawMessage(args)
	}
	return e
}

// inboxCommand executes /inbox: it lists the open questions, shows one, or answers one.
func (a *attachment) inboxCommand(text string) error {
	if text == "" {
		askServer(a, "inbox", a.server.Inbox, a.listInbox)
		return nil
	}
	word, answer, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(word)
	switch {
	case err != nil:
		return errors.New("/inbox takes the number of a question and an answer, such as: /inbox 1 y")
	case n < 1 || n > len(a.inbox):
		return fmt.Errorf("the inbox has no question %d: /inbox lists it", n)
	}
	e := &a.inbox[n-1]
	if answer = strings.TrimSpace(answer); answer == "" {
		a.showInboxEntry(n, e)
		return nil
	}
	return a.answerInboxEntry(n, e, answer)
}

func (a *attachment) listInbox(list *contracts.Inbox) {
	a.inbox = nil
	for i, q := range list.Questions {
		e := newInboxEntry(q)
		a.inbox = append(a.inbox, e)
		a.local.Line(console.Yellow, fmt.Sprintf("%2d %s", i+1, a.inboxLine(&e)))
	}
	switch {
	case len(list.Questions) == 0:
		a.local.Line(console.Dim, "-- no question is open")
	case list.Truncated:
		a.local.Line(console.Dim, "-- there are more: these are the oldest")
	default:
		a.local.Line(console.Dim, "-- /inbox 1 shows the first one, then /inbox 1 y approves it")
	}
}

// inboxLine returns a line about a question: its session, and what is asked.
func (a *attachment) inboxLine(e *inboxEntry) string {
	where := show.OneLine(e.SessionID, 40)
	switch {
	case e.SessionID == a.view.session:
		where = "this session"
	case e.SessionTitle != "":
		where += " (" + show.OneLine(e.SessionTitle, 60) + ")"
	}
	what := e.Display
	if e.whole && !e.Escaped {
		what = e.Tool + " " + e.summary()
	}
	return where + ": " + show.OneLine(what, 100) + votes(e)
}

// summary returns what is asked on one line.
func (e *inboxEntry) summary() string {
	if e.RequestType == contracts.RequestApproval {
		return show.Summary(e.question.args)
	}
	return strings.Join(e.question.body(), " ")
}

// votes returns how many have approved, if several must.
func votes(e *inboxEntry) string {
	if e.VotesNeeded == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d have approved)", e.Votes, e.VotesNeeded)
}

func (a *attachment) showInboxEntry(n int, e *inboxEntry) {
	e.seen = true
	a.local.Line(console.Bold, fmt.Sprintf("-- question %d, asked %s in %s%s",
		n, clock(e.AskedAt), show.OneLine(e.SessionID, 60), votes(e)))
	if e.Escaped {
		a.local.Line(console.Red, "-- the request has hidden characters: "+show.InLine(e.Display, show.MaxShown))
	}
	a.local.Block(console.Yellow, e.question.text("", true))
	if !e.whole {
		a.local.Line(console.Yellow, "  "+show.InLine(e.Display, show.MaxShown))
	}
	if e.Truncated {
		a.local.Line(console.Red, "-- this is only the beginning of the request")
	}
	keys := e.question.keys(a.view.remembers)
	if e.Truncated && e.RequestType == contracts.RequestApproval {
		keys = "n [reason] = deny; attach to the session to approve"
	}
	a.local.Line(console.Yellow, fmt.Sprintf("  /inbox %d and: %s", n, keys))
}

// errCutQuestion refuses to approve what was not shown.
var errCutQuestion = errors.New(
	"the inbox has only the beginning of this request: attach to the session to approve it")

func (a *attachment) answerInboxEntry(n int, e *inboxEntry, text string) error {
	r, err := e.question.answer(text, a.view.remembers)
	switch {
	case errors.Is(err, errMore):
		a.local.Line(console.Yellow, fmt.Sprintf("-- next for /inbox %d: %s", n, e.question.prompt(a.view.remembers)))
		return nil
	case err != nil:
		return err
	case r.Approved == nil || !*r.Approved:
	case e.Truncated:
		return errCutQuestion
	case !e.seen: // a line of the list is only a summary
		a.showInboxEntry(n, e)
		return errors.New("not sent: this is the whole request. The same line again approves it")
	}
	answer := contracts.InboxAnswer{
		Approved: r.Approved, Note: r.Reason, Digest: e.Digest, DecisionAction: r.DecisionAction,
		Content: r.Content, IsError: r.IsError,
	}
	if r.Result != nil {
		answer.Note = r.Result.Output + r.Result.Error // one of them is empty
	}
	session, request := e.SessionID, e.RequestID
	askServer(a, "inbox", func(ctx context.Context) (*contracts.InboxReceipt, error) {
		return a.server.AnswerQuestion(ctx, session, request, answer)
	}, func(receipt *contracts.InboxReceipt) {
		if receipt.Ended {
			a.local.Line(console.Dim, fmt.Sprintf("-- question %d is answered", n))
		} else {
			a.local.Line(console.Dim, fmt.Sprintf("-- your vote counts; question %d needs more votes", n))
		}
	})
	return nil
}
