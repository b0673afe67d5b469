package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
	"github.com/seed-028515a8/maestro/internal/show"
)

// A history shows a part of the past. Updates of the present wait meanwhile.
type history struct {
	view  *view
	pages chan news // closed at the end of the history
	stop  context.CancelFunc
}

// review starts to show the past: the number of turns in text, or if that is empty the
// session from its beginning, through a connection of its own.
func (a *attachment) review(ctx context.Context, wg *sync.WaitGroup, text string) error {
	turns := 0
	if text != "" {
		var err error
		if turns, err = strconv.Atoi(text); err != nil || turns < 1 || turns > contracts.MaxHistoryTurns {
			return fmt.Errorf("/history takes a number of turns from 1 to %d, or nothing",
				contracts.MaxHistoryTurns)
		}
	}
	if a.past != nil {
		return errors.New("/history is already running")
	}
	h := &history{view: newView(a.local), pages: make(chan news, maxNews)}
	h.view.me, h.view.viewer, h.view.past = a.view.me, a.view.viewer, true
	a.past = h
	ctx, h.stop = context.WithCancel(ctx)
	read := a.readAll
	if turns == 0 {
		a.local.Line(console.Bold, "-- from the beginning")
	} else {
		a.local.Line(console.Bold, fmt.Sprintf("-- the last turns: %d", turns))
		read = func(ctx context.Context, h *history) error { return a.readTurns(ctx, h, turns) }
	}
	wg.Go(a.restoring(func() { // ends with the history, stop or ctx
		defer close(h.pages)
		if err := read(ctx, h); err != nil {
			h.add(ctx, news{err: err})
		}
	}))
	return nil
}

// add passes an update on. It returns false when the history was stopped.
func (h *history) add(ctx context.Context, n news) bool {
	select {
	case h.pages <- n:
		return true
	case <-ctx.Done():
		return false
	}
}

// readAll reads the session from its beginning.
func (a *attachment) readAll(ctx context.Context, h *history) error {
	c, err := a.redial(ctx)
	if err != nil {
		return err
	}
	defer c.Close(false)
	follow(ctx, c, h.pages)
	return nil
}

// readTurns reads the last turns, as far as they fit in one page.
func (a *attachment) readTurns(ctx context.Context, h *history, turns int) error {
	page, err := a.client.History(ctx, contracts.HistoryRequest{
		Turns: int64(turns), Limit: contracts.MaxHistoryLimit, Bytes: contracts.MaxHistoryBytes,
	})
	if err != nil {
		return err
	}
	if page.Cut && !h.note(ctx, "what is before is left out: /history without a number shows all") {
		return nil
	}
	for _, e := range page.Entries {
		event, err := new(contracts.Decoder).Event(e.Message)
		if err != nil {
			continue // of a type that this client does not know, or left out because it is too long
		}
		u := client.Update{Kind: client.KindEvent, Cursor: e.Cursor, Event: event, Replayed: true}
		if !h.add(ctx, news{update: u}) {
			break
		}
		if e.Omitted > 0 && !h.note(ctx, fmt.Sprintf("%d more bytes of this output are not shown", e.Omitted)) {
			break
		}
	}
	return nil
}

// note adds a line in place of what is not shown.
func (h *history) note(ctx context.Context, text string) bool {
	return h.add(ctx, news{update: client.Update{Kind: client.KindEvent, Event: &contracts.Status{Message: text}}})
}

// page shows a page of the history. After the last one the present continues.
func (a *attachment) page(n news, more bool) {
	_, caughtUp := n.update.Event.(*contracts.HelloOK)
	switch {
	case !more || caughtUp:
		a.past.stop()
		a.past = nil
		a.local.Line(console.Bold, "-- now")
	case n.err != nil && !errors.Is(n.err, context.Canceled): // /history was not stopped
		a.local.Line(console.Red, "! history: "+show.OneLine(inWords(n.err), show.MaxArgs))
	case n.err == nil && n.update.Kind != client.KindConnected:
		a.past.view.show(n.update)
	}
}

// index asks for the prompts of the session, or for the places that contain a text, and
// shows the latest of them.
func (a *attachment) index(what string, req contracts.HistoryRequest) {
	var page *contracts.HistoryPage
	a.send(order{
		what: what,
		do: func(ctx context.Context) (_ contracts.Result, err error) {
			page, err = a.client.History(ctx, req)
			return contracts.Result{}, err
		},
		done: func(contracts.Result) {
			if page.Before != nil {
				a.local.Line(console.Dim, "-- there may be earlier ones")
			}
			for _, t := range page.Turns {
				a.local.Line(console.Plain, "  "+turnLine(&t))
			}
			for _, hit := range page.Hits {
				excerpt := show.OneLine(hit.Excerpt, show.MaxArgs)
				of := strings.ReplaceAll(strings.TrimSuffix(show.OneLine(hit.Of, 40), "_accepted"), "_", " ")
				a.local.Line(console.Plain, fmt.Sprintf("  %s %s: %s", clock(hit.At), of, excerpt))
			}
			if len(page.Turns)+len(page.Hits) == 0 {
				a.local.Line(console.Dim, "-- nothing found")
			}
		},
	})
}

// turnLine returns a line about a turn: when, who, what, and how it ended.
func turnLine(t *contracts.HistoryTurn) string {
	by, took := "", ""
	if t.Author != nil {
		by = show.OneLine(t.Author.Name, 40) + ": "
	}
	if t.DurationMS != nil {
		took = fmt.Sprintf(", %.1f s", float64(*t.DurationMS)/1000)
	}
	prompt, outcome := show.OneLine(t.Line, show.MaxArgs), show.OneLine(string(t.Outcome), 20)
	return fmt.Sprintf("%s %s%s (%s%s)", clock(t.At), by, prompt, outcome, took)
}

// clock returns a time of the wire as a person reads it.
func clock(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return "?"
	}
	return t.Local().Format("Jan 2 15:04:05")
}
