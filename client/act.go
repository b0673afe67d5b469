package client

import (
	"context"
	"fmt"
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// Send makes the server execute a command. It returns the result, or a
// [*contracts.Error] with the code of the refusal. If the connection is lost before
// the answer and the server continues it, the client sends the command again with the
// same id, and the server executes it once. If the server does not continue the
// connection, Send fails with [ErrAnswerLost]. A command that was not sent yet waits
// for the next connection. If ctx ends, the command may still be executed. At most
// MaxUnanswered calls are open at a time; further calls wait. An answer without a digest
// gets that of the request in [Client.State], if the client asked for it by [WithPeople].
func (c *Client) Send(ctx context.Context, cmd contracts.Command) (contracts.Result, error) {
	if answer, ok := cmd.(*contracts.ServerRequestResponse); ok && answer.Digest == "" {
		bound := *answer
		bound.Digest = c.digest(answer.RequestID)
		cmd = &bound
	}
	message, err := contracts.EncodeCommand(cmd)
	if err != nil {
		return contracts.Result{}, fmt.Errorf("encode %s: %w", cmd.CommandType(), err)
	}
	return c.result(ctx, true, func(id string) contracts.Frame { return &contracts.Send{ID: id, Message: message} })
}

// digest returns the digest of a pending request, or "" if the client does not know it.
func (c *Client) digest(requestID string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.state.People().Requests {
		if r.RequestID == requestID {
			return r.Digest
		}
	}
	return ""
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

// History reads a page of the history before req.Before, or up to the newest entry if
// that is zero. The ID of req is replaced.
func (c *Client) History(ctx context.Context, req contracts.HistoryRequest) (*contracts.HistoryPage, error) {
	req.ID = c.newID()
	open := &call{id: req.ID, repeat: true}
	if _, err := c.send(ctx, &req, open); err != nil {
		return nil, err
	}
	return open.page, nil
}

// TakeControl takes the lease from its holder. TakeControl, ReleaseControl,
// AskControl, GrantControl and DenyControl are never sent twice, because the holder
// may have changed meanwhile. Without a connection they fail with
// [ErrNotConnected]; if the connection ends before the answer, they fail with
// [ErrAnswerLost].
func (c *Client) TakeControl(ctx context.Context) (contracts.Result, error) {
	return c.result(ctx, false, func(id string) contracts.Frame { return &contracts.TakeControl{ID: id} })
}

// ReleaseControl releases the lease.
func (c *Client) ReleaseControl(ctx context.Context) (contracts.Result, error) {
	return c.result(ctx, false, func(id string) contracts.Frame { return &contracts.ReleaseControl{ID: id} })
}

// AskControl asks the holder for the lease. The result says that the holder was
// asked; the holder's answer comes as a *contracts.LeaseChange.
func (c *Client) AskControl(ctx context.Context, reason string) (contracts.Result, error) {
	return c.result(ctx, false, func(id string) contracts.Frame { return &contracts.AskControl{ID: id, Reason: reason} })
}

// GrantControl gives the lease to a connection that asked for it.
func (c *Client) GrantControl(ctx context.Context, connectionID string) (contracts.Result, error) {
	return c.result(ctx, false, func(id string) contracts.Frame { return &contracts.GrantControl{ID: id, ConnectionID: connectionID} })
}

// DenyControl refuses a connection that asked for the lease. The reason may be
// empty.
func (c *Client) DenyControl(ctx context.Context, connectionID, reason string) (contracts.Result, error) {
	return c.result(ctx, false, func(id string) contracts.Frame {
		return &contracts.DenyControl{ID: id, ConnectionID: connectionID, Reason: reason}
	})
}

// result sends the frame that is made for a new id, and waits for its ws.result. No
// other client of the session uses the id.
func (c *Client) result(ctx context.Context, repeat bool, frame func(id string) contracts.Frame) (contracts.Result, error) {
	id := c.newID()
	return c.send(ctx, frame(id), &call{id: id, repeat: repeat})
}

func (c *Client) newID() string { return c.idPrefix + "-" + strconv.FormatUint(c.lastID.Add(1), 36) }

// send sends a frame and waits for its answer; without an id, until it is written.
func (c *Client) send(ctx context.Context, frame contracts.Frame, open *call) (contracts.Result, error) {
	text, err := contracts.EncodeFrame(frame)
	if err != nil {
		return contracts.Result{}, fmt.Errorf("encode %s: %w", frame.FrameType(), err)
	}
	open.frame = text
	return c.calls.do(ctx, open)
}
