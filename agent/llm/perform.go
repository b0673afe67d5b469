package llm

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/agent/llm/tool"
	"github.com/seed-028515a8/maestro/contracts"
)

// maxTogether bounds the calls that run at the same time.
const maxTogether = 4

// A done is what came of running a call.
type done struct {
	call     *call
	result   tool.Result
	streamed bool  // clients have seen output of it
	err      error // that ends the run
}

// together runs calls at the same time and takes their results as they come.
func (r *run) together(ctx context.Context, calls []*call) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan *call, len(calls)) // holds all of them; closed below
	results := make(chan done, len(calls))
	for _, c := range calls {
		c.announced()
		queue <- c
	}
	close(queue)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range min(maxTogether, len(calls)) {
		wg.Go(func() { // ends when the queue is empty, at once if ctx has ended
			for c := range queue {
				results <- r.perform(ctx, c)
			}
		})
	}
	var failed error
	for range calls {
		if err := r.finish(ctx, <-results); err != nil && failed == nil {
			failed = err
			cancel(err)
		}
	}
	return failed
}

// perform runs a call that may run, with the retries that it takes. It may be
// called from any goroutine.
func (r *run) perform(ctx context.Context, c *call) done {
	d := done{call: c}
	if d.err = context.Cause(ctx); d.err != nil {
		return d
	}
	if d.err = r.start(ctx, c); d.err != nil {
		return d
	}
	for try := 1; ; try++ {
		var shown bool
		d.result, shown, d.err = r.try(ctx, c)
		d.streamed = d.streamed || shown
		if d.err == nil || ctx.Err() != nil || !mayPass(d.err) {
			return d
		}
		again, err := r.retry(ctx, c, try, d.err)
		if err != nil {
			d.err = err
			return d
		}
		if !again {
			d.result, d.err = tool.Result{Text: "Failed: " + shownError(d.err), IsError: true}, nil
			return d
		}
	}
}

// start announces that a call runs.
func (r *run) start(ctx context.Context, c *call) error {
	events := []contracts.Event{&contracts.ToolStart{CallID: c.shown}}
	if c.announce != nil {
		events = []contracts.Event{c.announce, events[0]}
		c.announce = nil
	}
	c.started = true
	return r.host.Publish(ctx, events...)
}

// try runs a call once. A panic of the tool is an error.
func (r *run) try(ctx context.Context, c *call) (result tool.Result, shown bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.opts.Log.Error("tool panicked", slog.String("tool", c.Tool), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			result, err = tool.Result{Text: "The tool failed.", IsError: true}, nil
		}
	}()
	result, err = c.offer.runs.Run(tool.LeaveOut(ctx, r.leaves(c)), c.Args, func(text string) error {
		for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
			shown = true
			if err := r.host.Publish(ctx, &contracts.ToolOutput{CallID: c.shown, Content: piece}); err != nil {
				return err
			}
		}
		return nil
	})
	return result, shown, err
}

// finish keeps what came of a call and shows it.
func (r *run) finish(ctx context.Context, d done) error {
	c := d.call
	if ctx.Err() != nil && d.err != nil {
		why := "Interrupted: it may have run in part."
		if !c.started {
			why = "Not run: interrupted."
		}
		if err := r.result(c, tool.Result{Text: why, IsError: true}); err != nil {
			r.opts.Log.Error("keep history", slog.Any("err", err))
		}
		return context.Cause(ctx)
	}
	if d.err != nil {
		return r.broke(ctx, c, d.err)
	}
	if text := shownResult(d); text != "" && ctx.Err() == nil {
		if err := r.host.Publish(ctx, &contracts.ToolOutput{CallID: c.shown, Content: text}); err != nil {
			return err
		}
	}
	return r.conclude(ctx, c, d.result, &contracts.ToolEnd{CallID: c.shown, Success: !d.result.IsError})
}

// broke ends a call whose failure ends the run.
func (r *run) broke(ctx context.Context, c *call, cause error) error {
	result := tool.Result{Text: "Failed: " + shownError(cause), IsError: true}
	if err := r.conclude(ctx, c, result, &contracts.ToolEnd{CallID: c.shown}); err != nil {
		return err
	}
	if own, ok := errors.AsType[*contracts.Error](cause); ok {
		return own
	}
	r.opts.Log.Error("run tool", slog.String("tool", c.Tool), slog.Any("err", cause))
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "The tool " + c.Tool + " failed: " + shownError(cause), Type: contracts.ErrorTool}
}

// shownResult returns what clients have not seen of a result.
func shownResult(d done) string {
	var pieces []string
	if !d.streamed && d.result.Text != "" {
		pieces = append(pieces, bounded(d.result.Text, maxShownBytes))
	}
	for _, image := range d.result.Images {
		pieces = append(pieces, "[image:"+image.MimeType+"]")
	}
	return strings.Join(pieces, "\n")
}
