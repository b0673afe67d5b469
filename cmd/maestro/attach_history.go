package main

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A history is the session being shown once more, from its beginning, through
// a connection of its own. Meanwhile the present waits.
type history struct {
	view  *view
	pages chan news // closed when the past has caught up with the present
}

// review starts to show the session from its beginning.
func (a *attachment) review(ctx context.Context, wg *sync.WaitGroup) {
	if a.past != nil {
		a.refuse(errors.New("the history is being shown already"))
		return
	}
	h := &history{view: newView(a.local), pages: make(chan news)}
	h.view.me, h.view.viewer = a.view.me, a.view.viewer
	a.past = h
	a.local.line(styleBold, "-- from the beginning")
	wg.Go(func() { h.read(ctx, a.redial) }) // ends with the past or ctx
}

// read hands on what happened until now.
func (h *history) read(ctx context.Context, dial func(context.Context) (follower, error)) {
	defer close(h.pages)
	c, err := dial(ctx)
	if err != nil {
		h.turn(ctx, news{err: err})
		return
	}
	defer c.Close(false)
	for {
		u, err := c.Next(ctx)
		if _, caughtUp := u.Event.(*contracts.HelloOK); caughtUp || !h.turn(ctx, news{u, err}) || err != nil {
			return
		}
	}
}

// turn hands on one page. It reports false if ctx ended first.
func (h *history) turn(ctx context.Context, page news) bool {
	select {
	case h.pages <- page:
		return true
	case <-ctx.Done():
		return false
	}
}

// page shows a page of the past; after the last one the present goes on.
func (a *attachment) page(n news, more bool) {
	switch {
	case !more:
		a.past = nil
		a.local.line(styleBold, "-- now")
	case n.err != nil:
		a.local.line(styleRed, "! history: "+oneLine(n.err.Error(), maxArgs))
	case n.update.Kind != client.KindConnected:
		a.past.view.show(n.update)
	}
}
