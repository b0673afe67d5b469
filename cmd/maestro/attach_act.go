package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/show"
)

// A request sends one command to the server.
type request func(context.Context) (contracts.Result, error)

// line executes a line. An error ends the attachment.
func (a *attachment) line(ctx context.Context, wg *sync.WaitGroup, line string) error {
	act, err := parseLine(line, a.view.commandsOfAgent())
	if act.verb != verbSay || a.activity.first() == nil { // answers are in the history only if they are refused
		a.edit.Remember(line)
	}
	if q := a.activity.first(); act.verb == "" && a.typed && q != nil && q.takesNothing() {
		act.verb = verbSay
	}
	if err == nil && act.acts() {
		err = a.refusal(act)
	}
	if err != nil {
		a.edit.Remember(line)
		a.refuse(err)
		return nil
	}
	if act.acts() && !a.acted {
		a.acted = true
		if !a.typed && a.json == nil { // with JSON a program writes the lines, and it was shown the questions
			a.activity.age()
		}
	}
	switch act.verb {
	case "":
	case "quit":
		return errLeave
	case "help":
		a.local.Line(console.Plain, a.view.help())
	case "show":
		q := a.activity.first()
		if q == nil {
			a.refuse(errors.New("no question is open"))
			break
		}
		a.local.Block(console.Yellow, q.text(a.view.howTo(q), true))
	case "who":
		a.who()
	case "inbox":
		if err := a.inboxCommand(act.text); err != nil {
			a.refuse(err)
		}
	case "share":
		if err := a.share(act.text); err != nil {
			a.refuse(err)
		}
	case "queued":
		for i, p := range a.queue() {
			a.local.Line(console.Plain, queuedLine(i+1, &p))
		}
	case "history":
		if err := a.review(ctx, wg, act.text); err != nil {
			a.refuse(err)
		}
	case "turns":
		a.index("turns", contracts.HistoryRequest{Kind: contracts.HistoryTurns})
	case "find":
		a.index("find", contracts.HistoryRequest{Kind: contracts.HistorySearch, Query: act.text})
	case verbSay:
		a.say(line, act.text)
	default:
		a.lease(act)
	}
	return nil
}

// refuse prints why a line is not executed.
func (a *attachment) refuse(why error) {
	a.failed = true
	a.local.Line(console.Red, "! "+why.Error())
}

// refusal returns why this client may not execute an action now.
func (a *attachment) refusal(act action) error {
	switch {
	case a.viewer && a.linked:
		return errors.New("you only watch")
	case a.viewer:
		return errors.New("you only watch: attach without --view to act")
	case a.view.approver && (act.verb == verbSay && a.activity.first() != nil || act.verb == "inbox"):
		return nil
	case a.view.approver && act.verb == verbSay && len(a.activity.answered) > 0:
		return errors.New("you have answered: the question waits for others")
	case a.view.approver && act.verb == verbSay:
		return errors.New("you only answer questions, and none is open")
	case a.view.approver && a.linked:
		return errors.New("you only answer questions")
	case a.view.approver:
		return errors.New("you only answer questions: attach without --approve to do more")
	}
	switch act.verb {
	case "ask", "take", "inbox", "share":
		return nil
	case verbSay, "interrupt", "queue", "steer":
		if a.view.controller == "" {
			return nil // acting takes a free lease
		}
	}
	if !a.view.driving() {
		return fmt.Errorf("%s is in control: /ask or /take first", a.view.name(a.view.controller))
	}
	return nil
}

// say answers the next question, or starts a run. line is the typed line of the text.
func (a *attachment) say(line, text string) {
	if a.tooLate() {
		a.edit.Remember(line)
		a.refuse(errors.New("not sent: the question has ended. If this was not its answer, send it again"))
		return
	}
	q := a.activity.first()
	if q == nil {
		a.view.expect(text)
		a.activity.await()
		a.send(order{
			what: "prompt", do: a.command(&contracts.Prompt{Content: text}),
			done: func(r contracts.Result) { a.activity.accept(r.Cursor) },
			undo: func() {
				delete(a.activity.busy, awaited)
				a.view.unexpect(text)
				a.edit.Return(text)
			},
		})
		return
	}
	if q.older {
		a.refuse(errors.New("not sent: a question was open before these lines. A person must answer it, or /interrupt must end it"))
		return
	}
	response, err := q.answer(text, a.view.remembers)
	switch {
	case errors.Is(err, errMore):
	case err != nil:
		a.edit.Remember(line)
		a.refuse(err)
	default:
		put := *q
		a.activity.answer(q.id)
		a.send(order{what: "answer", do: a.command(response), undo: func() {
			a.activity.reopen(put)
			a.edit.Remember(line)
		}})
	}
}

// queue returns the prompts that wait.
func (a *attachment) queue() []contracts.QueuedPrompt {
	if people := a.client.State().People; people != nil {
		return people.Queue
	}
	return nil
}

// changeOf returns the command that edits, moves or removes a prompt of the queue.
func changeOf(act action, queue []contracts.QueuedPrompt) (contracts.Command, error) {
	switch {
	case act.number > len(queue):
		return nil, fmt.Errorf("the queue has no prompt %d: /queued shows it", act.number)
	case act.verb == "edit" && act.text == "":
		return nil, errors.New("/edit takes a number and the new text")
	}
	id := queue[act.number-1].PromptID
	switch act.verb {
	case "edit":
		return &contracts.QueueEdit{PromptID: id, Content: act.text}, nil
	case "first":
		return &contracts.QueueMove{PromptID: id, Before: &queue[0].PromptID}, nil
	}
	return &contracts.QueueCancel{PromptID: id}, nil
}

// queuedLine returns a prompt of the queue with its author on one line.
func queuedLine(number int, p *contracts.QueuedPrompt) string {
	name := authorName(&p.Author)
	if p.When == contracts.PromptSteer {
		name += " (steers)"
	}
	return fmt.Sprintf("%2d %s> %s", number, name, show.OneLine(p.Content, show.MaxArgs))
}

// lease executes an interrupt, or an action about control or the queue.
func (a *attachment) lease(act action) {
	var do request
	switch act.verb {
	case "interrupt":
		if !a.typed {
			a.activity.end()
		}
		do = a.command(&contracts.Interrupt{})
	case "queue":
		do = a.command(&contracts.Prompt{Content: act.text, When: contracts.PromptNext})
	case "steer":
		do = a.command(&contracts.Prompt{Content: act.text, When: contracts.PromptSteer})
	case "resume":
		do = a.command(&contracts.QueueResume{})
	case "edit", "first", "drop":
		cmd, err := changeOf(act, a.queue())
		if err != nil {
			a.refuse(err)
			return
		}
		do = a.command(cmd)
	case "take":
		do = a.client.TakeControl
	case "release":
		do = a.client.ReleaseControl
	case "ask":
		do = func(ctx context.Context) (contracts.Result, error) { return a.client.AskControl(ctx, act.text) }
	case "grant", "deny":
		if act.number > len(a.activity.askers) {
			a.refuse(errors.New("no client with that number asks for control"))
			return
		}
		asker := a.activity.askers[act.number-1]
		a.activity.askers = slices.Delete(a.activity.askers, act.number-1, act.number)
		do = func(ctx context.Context) (contracts.Result, error) {
			if act.verb == "grant" {
				return a.client.GrantControl(ctx, asker.ConnectionID)
			}
			return a.client.DenyControl(ctx, asker.ConnectionID, act.text)
		}
	}
	a.send(order{what: act.verb, do: do})
}

// command returns the request that sends cmd. Without a connection it tells the user
// that the request waits for the next one.
func (a *attachment) command(cmd contracts.Command) request {
	if a.view.lost != "" {
		a.local.Line(console.Dim, "-- not connected: this is sent when the connection is back")
	}
	return func(ctx context.Context) (contracts.Result, error) { return a.client.Send(ctx, cmd) }
}

// send queues an order for dispatch. Its outcome comes back to the loop, which shows
// the session meanwhile.
func (a *attachment) send(o order) {
	if a.sending == maxSending {
		if o.undo != nil {
			o.undo()
		}
		a.refuse(errors.New("too many messages wait for the server"))
		return
	}
	a.sending++
	a.orders <- o // there is room, because sending is bounded
}

// dispatch sends the orders one after the other until ctx ends.
func (a *attachment) dispatch(ctx context.Context) {
	for {
		select {
		case o := <-a.orders:
			o.result, o.err = o.do(ctx)
			a.outcomes <- o // there is room, likewise
		case <-ctx.Done():
			return
		}
	}
}
