package main

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
)

// A history is the session being shown once more, from its beginning, through
// a connection of its own. Meanwhile the present waits.
type history struct {
	view  *view
	pages chan news // closed when the past has caught up with the present
	stop  context.CancelFunc
}

// review starts to show the session from its beginning.
func (a *attachment) review(ctx context.Context, wg *sync.WaitGroup) {
	if a.past != nil {
		a.refuse(errors.New("/history is already running"))
		return
	}
	h := &history{view: newView(a.local), pages: make(chan news, maxNews)}
	h.view.me, h.view.viewer, h.view.past = a.view.me, a.view.viewer, true
	a.past = h
	ctx, h.stop = context.WithCancel(ctx)
	a.local.Line(console.Bold, "-- from the beginning")
	wg.Go(a.restoring(func() { h.read(ctx, a.redial) })) // ends with the past, stop or ctx
}

// read hands on what happened until now.
func (h *history) read(ctx context.Context, dial func(context.Context) (follower, error)) {
	defer close(h.pages)
	defer h.stop()
	c, err := dial(ctx)
	if err != nil && ctx.Err() == nil {
		h.turn(ctx, news{err: err})
	}
	if err != nil {
		return
	}
	defer c.Close(false)
	for ctx.Err() == nil {
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
		a.local.Line(console.Bold, "-- now")
	case n.err != nil:
		a.local.Line(console.Red, "! history: "+oneLine(n.err.Error(), maxArgs))
	case n.update.Kind != client.KindConnected:
		a.past.view.show(n.update)
	}
}
