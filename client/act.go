package client

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/seed-028515a8/maestro/contracts"
)

// An idSource makes ids that no other client of the session uses.
type idSource struct {
	prefix string
	last   atomic.Uint64
}

// next returns a new id of at most MaxSendIDBytes.
func (s *idSource) next() string { return s.prefix + "-" + strconv.FormatUint(s.last.Add(1), 36) }

// Send makes the server execute a command. It returns the result, or a
// [*contracts.Error] with the code of the refusal. If the connection is lost before
// the answer, the client sends the command again with the same id as soon as the
// server continues the connection, and the server executes it once. If the server
// does not continue the connection, Send fails with [ErrAnswerLost]. A command that
// was not sent yet waits for the next connection. If ctx ends, the command may
// still be executed.
//
// At most MaxUnanswered calls are open at a time; further calls wait.
func (c *Client) Send(ctx context.Context, cmd contracts.Command) (contracts.Result, error) {
	message, err := contracts.EncodeCommand(cmd)
	if err != nil {
		return contracts.Result{}, fmt.Errorf("encode %s: %w", cmd.CommandType(), err)
	}
	id := c.ids.next()
	return c.result(ctx, &contracts.Send{ID: id, Message: message}, id, true)
}

// Prompt starts a run.
func (c *Client) Prompt(ctx context.Context, content string) (contracts.Result, error) {
	return c.Send(ctx, &contracts.Prompt{Content: content})
}

// Interrupt stops the active run.
func (c *Client) Interrupt(ctx context.Context) (contracts.Result, error) {
	return c.Send(ctx, &contracts.Interrupt{})
}

// Approve approves a request. The reason may be empty.
func (c *Client) Approve(ctx context.Context, requestID, reason string) (contracts.Result, error) {
	return c.decide(ctx, requestID, true, &contracts.ToolResult{Success: true, Output: reason})
}

// Deny denies an approval request. The reason may be empty.
func (c *Client) Deny(ctx context.Context, requestID, reason string) (contracts.Result, error) {
	return c.decide(ctx, requestID, false, &contracts.ToolResult{Error: reason})
}

// decide answers an approval. Without a reason, the server sets one.
func (c *Client) decide(ctx context.Context, requestID string, approved bool, why *contracts.ToolResult) (contracts.Result, error) {
	if why.Output == "" && why.Error == "" {
		why = nil
	}
	return c.Send(ctx, &contracts.ServerRequestResponse{
		RequestID: requestID, RequestType: contracts.RequestApproval, Approved: &approved, Result: why,
	})
}

// AnswerText answers a client tool, an elicitation or a request for user input.
func (c *Client) AnswerText(ctx context.Context, requestID string, kind contracts.RequestType, text string) (contracts.Result, error) {
	return c.answer(ctx, requestID, kind, text, false)
}

// AnswerError answers such a request with a failure.
func (c *Client) AnswerError(ctx context.Context, requestID string, kind contracts.RequestType, text string) (contracts.Result, error) {
	return c.answer(ctx, requestID, kind, text, true)
}

func (c *Client) answer(ctx context.Context, requestID string, kind contracts.RequestType, text string, failed bool) (contracts.Result, error) {
	return c.Send(ctx, &contracts.ServerRequestResponse{
		RequestID: requestID, RequestType: kind, IsError: failed,
		Content: []contracts.ContentBlock{{Type: "text", Text: text}},
	})
}

// Retry answers a tool retry. The reason may be empty.
func (c *Client) Retry(ctx context.Context, requestID string, action contracts.RetryAction, reason string) (contracts.Result, error) {
	return c.Send(ctx, &contracts.ServerRequestResponse{
		RequestID: requestID, RequestType: contracts.RequestToolRetry, DecisionAction: action, Reason: reason,
	})
}

// TakeControl takes the lease from its holder. TakeControl, ReleaseControl,
// AskControl, GrantControl and DenyControl are never sent twice, because the holder
// may have changed meanwhile. Without a connection they fail with
// [ErrNotConnected]; if the connection ends before the answer, they fail with
// [ErrAnswerLost].
func (c *Client) TakeControl(ctx context.Context) (contracts.Result, error) {
	id := c.ids.next()
	return c.result(ctx, &contracts.TakeControl{ID: id}, id, false)
}

// ReleaseControl releases the lease.
func (c *Client) ReleaseControl(ctx context.Context) (contracts.Result, error) {
	id := c.ids.next()
	return c.result(ctx, &contracts.ReleaseControl{ID: id}, id, false)
}

// AskControl asks the holder for the lease. The result says that the holder was
// asked; the holder's answer comes as a *contracts.LeaseChange.
func (c *Client) AskControl(ctx context.Context, reason string) (contracts.Result, error) {
	id := c.ids.next()
	return c.result(ctx, &contracts.AskControl{ID: id, Reason: reason}, id, false)
}

// GrantControl gives the lease to a connection that asked for it.
func (c *Client) GrantControl(ctx context.Context, connectionID string) (contracts.Result, error) {
	id := c.ids.next()
	return c.result(ctx, &contracts.GrantControl{ID: id, ConnectionID: connectionID}, id, false)
}

// DenyControl refuses a connection that asked for the lease. The reason may be
// empty.
func (c *Client) DenyControl(ctx context.Context, connectionID, reason string) (contracts.Result, error) {
	id := c.ids.next()
	return c.result(ctx, &contracts.DenyControl{ID: id, ConnectionID: connectionID, Reason: reason}, id, false)
}

// Ping waits for the server to answer. It is not needed to stay attached.
func (c *Client) Ping(ctx context.Context) (contracts.Pong, error) {
	id := c.ids.next()
	frame, err := c.call(ctx, &contracts.Ping{ID: id}, id, false)
	if pong, ok := frame.(*contracts.Pong); ok {
		return *pong, nil
	}
	return contracts.Pong{}, err
}

// result sends a frame and waits for its ws.result.
func (c *Client) result(ctx context.Context, frame contracts.Frame, id string, repeat bool) (contracts.Result, error) {
	answer, err := c.call(ctx, frame, id, repeat)
	if result, ok := answer.(*contracts.Result); ok {
		return *result, nil
	}
	return contracts.Result{}, err
}

// call sends a frame and waits for the answer with its id.
func (c *Client) call(ctx context.Context, frame contracts.Frame, id string, repeat bool) (contracts.Frame, error) {
	text, err := contracts.EncodeFrame(frame)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", frame.FrameType(), err)
	}
	return c.calls.do(ctx, &call{id: id, frame: text, repeat: repeat})
}

// sendOnly sends a frame that has no answer.
func (c *Client) sendOnly(ctx context.Context, frame contracts.Frame) error {
	_, err := c.call(ctx, frame, "", false)
	return err
}
