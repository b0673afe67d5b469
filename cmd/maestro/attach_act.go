package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A request is one thing to ask the server.
type request func(context.Context) (contracts.Result, error)

// line does what a typed line says. An error ends the attachment.
func (a *attachment) line(ctx context.Context, wg *sync.WaitGroup, line string) error {
	act, err := parseLine(line)
	if err == nil && act.acts() {
		err = a.refusal(act)
	}
	if err != nil {
		a.local.line(styleRed, "! "+err.Error())
		return nil
	}
	switch act.verb {
	case verbNothing:
	case verbQuit:
		return errLeave
	case verbHelp:
		a.local.line(stylePlain, attachHelp)
	case verbWho:
		st := a.client.State()
		a.view.who(a.local, &st)
	case verbHistory:
		a.review(ctx, wg)
	case verbSay:
		a.say(ctx, wg, act.text)
	default:
		a.lease(ctx, wg, act)
	}
	return nil
}

// refusal returns why this user may not do what a line says, before the server
// is bothered.
func (a *attachment) refusal(act action) error {
	if a.viewer {
		return errors.New("you are watching only: attach without --view to act")
	}
	switch act.verb {
	case verbAsk, verbTake:
		return nil
	case verbSay, verbInterrupt:
		if a.view.controller == "" {
			return nil // acting takes a free lease
		}
	}
	if !a.view.driving() {
		return fmt.Errorf("%s is in control: /ask or /take first", a.view.name(a.view.controller))
	}
	return nil
}

// say answers the question that waits longest, or else starts a run.
func (a *attachment) say(ctx context.Context, wg *sync.WaitGroup, text string) {
	q := a.desk.first()
	if q == nil {
		a.view.expect(text)
		a.send(ctx, wg, "prompt", a.command(&contracts.Prompt{Content: text}))
		return
	}
	response, err := q.answer(text)
	switch {
	case errors.Is(err, errMore):
	case err != nil:
		a.local.line(styleRed, "! "+err.Error())
	default:
		a.send(ctx, wg, "answer", a.command(response))
	}
}

// lease does what a line about control says.
func (a *attachment) lease(ctx context.Context, wg *sync.WaitGroup, act action) {
	switch act.verb {
	case verbInterrupt:
		a.send(ctx, wg, "interrupt", a.command(&contracts.Interrupt{}))
	case verbTake:
		a.send(ctx, wg, "take", a.client.TakeControl)
	case verbRelease:
		a.send(ctx, wg, "release", a.client.ReleaseControl)
	case verbAsk:
		a.send(ctx, wg, "ask", func(ctx context.Context) (contracts.Result, error) {
			return a.client.AskControl(ctx, act.text)
		})
	case verbGrant, verbDeny:
		asker, ok := a.desk.takeAsker(act.number)
		if !ok {
			a.local.line(styleRed, "! nobody with that number asks for control")
			return
		}
		a.send(ctx, wg, string(act.verb), func(ctx context.Context) (contracts.Result, error) {
			if act.verb == verbGrant {
				return a.client.GrantControl(ctx, asker.ConnectionID)
			}
			return a.client.DenyControl(ctx, asker.ConnectionID, act.text)
		})
	}
}

// command returns the request that sends cmd.
func (a *attachment) command(cmd contracts.Command) request {
	return func(ctx context.Context) (contracts.Result, error) { return a.client.Send(ctx, cmd) }
}

// send makes a request beside the loop, so that the session goes on being
// shown meanwhile. Its outcome comes back to the loop.
func (a *attachment) send(ctx context.Context, wg *sync.WaitGroup, what string, do request) {
	if a.sending == maxSending {
		a.local.line(styleRed, "! too much waits for the server already")
		return
	}
	a.sending++
	a.acted = true
	wg.Go(func() { // ends with its answer or ctx
		_, err := do(ctx)
		select {
		case a.outcomes <- outcome{what, err}:
		case <-ctx.Done():
		}
	})
}
