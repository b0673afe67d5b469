package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

const (
	// A tool whose failure may pass runs once more by itself, after a delay, unless
	// it may have had an effect; then a client decides, in so many rounds.
	toolDelay      = 500 * time.Millisecond
	maxRetryRounds = 10
)

// retryArgs is what a client is told about a tool that failed.
type retryArgs struct {
	ToolCallID   string          `json:"tool_call_id"`
	Args         json.RawMessage `json:"args"`
	ErrorMessage string          `json:"error_message"`
	Attempt      int             `json:"attempt"` // of the questions about the call, from 1
	MaxAttempts  int             `json:"max_attempts"`
	Summary      string          `json:"summary"`
}

// retry reports whether a call is to run again after it has failed so often. An
// error ends the run.
func (r *run) retry(ctx context.Context, c *call, failures int, cause error) (bool, error) {
	alone := 1
	if c.gated() && !c.offer.runs.Repeats {
		alone = 0
	}
	if failures <= alone {
		return true, sleep.For(ctx, toolDelay)
	}
	round := failures - alone
	if round > maxRetryRounds {
		return false, nil
	}
	out, err := r.askRetry(ctx, c, round, cause)
	if err != nil {
		return false, err
	}
	switch out.Verdict {
	case contracts.VerdictRetried:
		return true, nil
	case contracts.VerdictAborted, contracts.VerdictCancelled:
		return false, aborted(c.Tool)
	}
	return false, nil
}

func (r *run) askRetry(ctx context.Context, c *call, round int, cause error) (contracts.Outcome, error) {
	title, label, action := c.labels()
	summary := title + " failed and may work if it is tried again"
	shown, _ := c.show()
	args, err := encode(retryArgs{
		ToolCallID: c.shown, Args: shown, ErrorMessage: shownError(cause),
		Attempt: round, MaxAttempts: maxRetryRounds, Summary: summary,
	})
	if err != nil {
		return contracts.Outcome{}, fmt.Errorf("encode args: %w", err)
	}
	return r.host.Ask(ctx, &contracts.ServerRequest{
		RequestID: fmt.Sprintf("%s:retry:%d", c.shown, round), RequestType: contracts.RequestToolRetry, CallID: c.shown,
		Tool: c.Tool, DisplayName: title, SummaryLabel: label, ActionDescription: action,
		Args: args, Reason: summary,
	}, contracts.AskOptions{})
}

// aborted is the end of a run that a client did not want to go on after a tool
// had failed.
func aborted(tool string) error {
	return &contracts.Error{
		Code: contracts.CodeRuntimeFailed, Message: "Run aborted after " + tool + " had failed", Type: contracts.ErrorCancelled,
	}
}
