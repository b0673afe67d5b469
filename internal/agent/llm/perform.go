package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

const (
	// maxTogether bounds the calls that run at the same time.
	maxTogether = 4

	// A failed tool whose failure may pass runs again once after toolDelay, unless
	// it may have had an effect. After that a client decides, at most
	// maxRetryRounds times.
	toolDelay      = 500 * time.Millisecond
	maxRetryRounds = 10
)

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

// perform runs a call, with retries. Any goroutine may call it.
func (r *run) perform(ctx context.Context, c *call) done {
	d := done{call: c}
	if d.err = context.Cause(ctx); d.err != nil {
		return d
	}
	if d.err = r.start(ctx, c); d.err != nil {
		return d
	}
	for failures := 1; ; failures++ {
		r.try(ctx, &d)
		if d.err == nil || ctx.Err() != nil || !mayPass(d.err) {
			return d
		}
		again, err := r.retry(ctx, c, failures, d.err)
		switch {
		case err != nil:
			d.err = err
			return d
		case !again:
			d.result, d.err = tool.Result{Text: "Failed: " + shownError(d.err), IsError: true}, nil
			return d
		}
	}
}

// start publishes that a call runs.
func (r *run) start(ctx context.Context, c *call) error {
	c.started = true
	return r.host.Publish(ctx, c.announced(&contracts.ToolStart{CallID: c.Shown})...)
}

// try runs a call once. A panic of the tool is a failure.
func (r *run) try(ctx context.Context, d *done) {
	c := d.call
	defer func() {
		if p := recover(); p != nil {
			r.opts.Log.Error("tool panicked", slog.String("tool", c.Tool), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			d.result, d.err = tool.Result{Text: "The tool failed.", IsError: true}, nil
		}
	}()
	d.result, d.err = c.tool.Run(tool.LeaveOut(ctx, r.leaves(c)), c.Args, func(text string) error {
		for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
			d.streamed = true
			if err := r.host.Publish(ctx, &contracts.ToolOutput{CallID: c.Shown, Content: piece}); err != nil {
				return err
			}
		}
		return nil
	})
}

// retryArgs is what a client is told about a tool that failed.
type retryArgs struct {
	ToolCallID   string          `json:"tool_call_id"`
	Args         json.RawMessage `json:"args"`
	ErrorMessage string          `json:"error_message"`
	Attempt      int             `json:"attempt"` // of the questions about the call, from 1
	MaxAttempts  int             `json:"max_attempts"`
	Summary      string          `json:"summary"`
}

// retry reports whether a failed call runs again. An error ends the run.
func (r *run) retry(ctx context.Context, c *call, failures int, cause error) (bool, error) {
	round := failures
	if !c.tool.Gated || c.tool.Repeats {
		if round--; round == 0 {
			return true, sleep.For(ctx, toolDelay)
		}
	}
	if round > maxRetryRounds {
		return false, nil
	}
	title, label, action := c.labels()
	summary := title + " failed and may work if it is tried again"
	args := encode(retryArgs{
		ToolCallID: c.Shown, Args: c.args, ErrorMessage: shownError(cause),
		Attempt: round, MaxAttempts: maxRetryRounds, Summary: summary,
	})
	out, err := r.ask(ctx, c, fmt.Sprintf(":retry:%d", round), &contracts.ServerRequest{
		RequestType: contracts.RequestToolRetry, DisplayName: title, SummaryLabel: label, ActionDescription: action,
		Args: args, Reason: summary,
	})
	if err == nil && (out.Verdict == contracts.VerdictAborted || out.Verdict == contracts.VerdictCancelled) {
		err = aborted(c)
	}
	return out.Verdict == contracts.VerdictRetried, err
}

// aborted returns the error of a run that a client aborted after a tool had failed.
func aborted(c *call) error {
	return ended(contracts.ErrorCancelled, "Run aborted after "+c.Tool+" had failed")
}

// finish keeps what came of a call and shows it.
func (r *run) finish(ctx context.Context, d done) error {
	c := d.call
	switch {
	case ctx.Err() != nil && d.err != nil:
		why := "Interrupted: it may have run in part."
		if !c.started {
			why = "Not run: interrupted."
		}
		if err := r.keep(c, tool.Result{Text: why, IsError: true}); err != nil {
			r.opts.Log.Error("keep history", slog.Any("err", err))
		}
		return context.Cause(ctx)
	case d.err != nil:
		text := shownError(d.err)
		if err := r.conclude(ctx, c, tool.Result{Text: "Failed: " + text, IsError: true}, &contracts.ToolEnd{CallID: c.Shown}); err != nil {
			return err
		}
		if own, ok := errors.AsType[*contracts.Error](d.err); ok {
			return own
		}
		r.opts.Log.Error("run tool", slog.String("tool", c.Tool), slog.Any("err", d.err))
		return ended(contracts.ErrorTool, "The tool "+c.Tool+" failed: "+text)
	}
	var pieces []string // that clients have not seen
	if !d.streamed && d.result.Text != "" {
		pieces = append(pieces, bounded(d.result.Text, maxShownBytes))
	}
	for _, image := range d.result.Images {
		pieces = append(pieces, "[image:"+image.MimeType+"]")
	}
	if len(pieces) > 0 && ctx.Err() == nil {
		if err := r.host.Publish(ctx, &contracts.ToolOutput{CallID: c.Shown, Content: strings.Join(pieces, "\n")}); err != nil {
			return err
		}
	}
	return r.conclude(ctx, c, d.result, &contracts.ToolEnd{CallID: c.Shown, Success: !d.result.IsError})
}
