package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/console"
)

// aim sets the prompt. If a question comes while a line is being typed, the line is
// set aside until the question has ended.
func (a *attachment) aim() {
	if !a.local.Live() {
		return
	}
	p, purpose := a.prompt()
	a.local.SetPrompt(p)
	if a.edit.For(purpose) {
		a.intruded = time.Now()
		a.local.Line(console.Dim, "-- what you were typing comes back after the answer")
	}
}

// prompt returns the prompt, with the state of the session, and the purpose of the
// next line: the id of the question that it answers, or "" for a prompt.
func (a *attachment) prompt() (p console.Prompt, purpose string) {
	p.Mark = "> "
	q, drives := a.activity.first(), !a.viewer && a.view.mayAnswer()
	drives = drives && (q != nil || !a.view.approver)
	if q != nil && drives {
		p.Mark, p.Look, purpose = q.prompt(a.view.remembers), console.Yellow, q.id
	}
	switch {
	case a.view.lost != "":
		p.State, p.Look = "reconnecting", console.Red
	case a.past != nil:
		p.State, p.Look = "history, Ctrl-C ends it", console.Dim
	case purpose != "":
	case q != nil || len(a.activity.answered) > 0: // the answers of others count too
		p.State, p.Look = "waiting", console.Yellow
	case a.activity.running():
		p.State, p.Look = "working", console.Cyan
	}
	switch {
	case drives:
	case p.State == "" && (a.viewer || a.view.approver):
		p.State = "watching"
	case p.State == "":
		p.State = "watching (/ask, /take)"
	default:
		p.State = "watching, " + p.State
	}
	if a.view.replay {
		p.State = strings.TrimSpace("[REPLAY] " + p.State)
	}
	return p, purpose
}

// press handles typed keys.
func (a *attachment) press(ctx context.Context, wg *sync.WaitGroup, keys string, signals <-chan os.Signal) error {
	a.edit.Feed([]byte(keys))
	for {
		event, text, shown, more := a.edit.Next()
		if !more {
			a.local.Flush()
			return nil
		}
		var err error
		switch event {
		case console.Entered:
			if time.Since(a.intruded) < secondStroke && a.activity.first() != nil { // the line is not meant for the question
				a.edit.Return(text)
				a.refuse(errors.New("not sent: a question has come. Your line comes back after the answer"))
				break
			}
			a.local.Enter(shown)
			err = a.line(ctx, wg, text)
		case console.Interrupt:
			err = a.signal(os.Interrupt)
		case console.End:
			err = errLeave
		case console.Stop:
			err = a.stop(signals)
		case console.Clear:
			a.local.Clear()
		case console.Refused:
			a.refuse(errors.New("too long: a line has at most 1 MiB. The up key shows its beginning"))
		}
		if err != nil {
			return err
		}
		a.aim() // the next key may be for another line
	}
}

// stop stops the program, as Ctrl-Z does, until it is continued.
func (a *attachment) stop(signals <-chan os.Signal) error {
	if a.mode == nil {
		return nil
	}
	a.local.Hide()
	other, err := a.mode.Stop(signals)
	if err == nil && other != nil {
		err = a.signal(other)
	}
	return err
}

// refresh shows the line again after the program was stopped and continued. The
// screen itself notices a new size.
func (a *attachment) refresh(s os.Signal) error {
	if !console.Continued(s) || a.mode == nil {
		return nil
	}
	a.local.Abandon()
	return a.mode.Enter()
}
