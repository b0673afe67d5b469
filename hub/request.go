package hub

import (
	"cmp"
	"context"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/serverreq"
)

// Ask implements [contracts.Host]. The question and its journal entries share a
// critical section, as do an answer and its resolution: no client sees a
// request that it cannot answer, or that was answered.
func (a *host) Ask(ctx context.Context, req *contracts.ServerRequest, opts contracts.AskOptions) (contracts.Outcome, error) {
	h := (*Hub)(a)
	if err := contracts.ValidateEvent(req); err != nil {
		return contracts.Outcome{}, err
	}
	var (
		wait    chan contracts.Outcome
		outcome contracts.Outcome
		err     error
	)
	h.update(func(s *state) {
		if s.phase == phaseEnded || s.run != nil && s.run.stop != nil {
			err = errEnded
			return
		}
		var decided bool
		if outcome, decided = h.policy(s, req); !decided {
			wait, err = h.open(s, req, opts)
		}
	})
	if opts.Opened != nil && err == nil {
		opts.Opened()
	}
	if wait == nil {
		return outcome, err
	}
	select {
	case outcome = <-wait:
		return outcome, nil
	case <-ctx.Done():
	case <-h.done:
		err = errEnded
	}
	return h.abandon(req.RequestID, wait, cmp.Or(context.Cause(ctx), err))
}

// abandon ends a question whose asker has stopped waiting, unless the session
// is only being suspended: then it waits for the next process.
func (h *Hub) abandon(id string, wait chan contracts.Outcome, cause error) (contracts.Outcome, error) {
	h.update(func(s *state) {
		delete(s.waiters, id)
		if s.phase != phaseOpen {
			return
		}
		if res, ok := s.table.Cancel(id, "Run ended before request completed", s.now); ok {
			h.publish(s, &res.Event) // to clients alone: the asker has its error, and ends the call
		}
	})
	select {
	case outcome := <-wait: // the answer came first
		return outcome, nil
	default:
		return contracts.Outcome{}, cause
	}
}

// askUser is the tool whose legacy request is a question to the user.
const askUser = "ask_user"

// policy decides what need not be asked, or cannot be: an approval outside
// prompt mode (R51), and a question that the one who controls cannot answer.
func (h *Hub) policy(s *state, req *contracts.ServerRequest) (contracts.Outcome, bool) {
	if req.RequestType == contracts.RequestApproval {
		switch s.mode {
		case contracts.ApprovalAuto:
			return contracts.Outcome{Verdict: contracts.VerdictApproved, Reason: "Auto-approved by policy", By: contracts.ResolvedByPolicy}, true
		case contracts.ApprovalFail:
			return contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "Denied by approval policy", By: contracts.ResolvedByPolicy}, true
		}
		return contracts.Outcome{}, false
	}
	c := s.holder()
	if c == nil || c.terms.CanAnswer(req.RequestType) {
		return contracts.Outcome{}, false
	}
	out := contracts.Outcome{Verdict: contracts.VerdictFailed, By: contracts.ResolvedByPolicy, Reason: "The controlling client cannot answer " + string(req.RequestType) + " requests"}
	switch req.RequestType {
	case contracts.RequestToolRetry:
		out.Verdict, out.Reason = contracts.VerdictSkipped, "Retry skipped by policy"
		return out, true // silently (R63)
	case contracts.RequestMCPElicitation:
		out.Verdict = contracts.VerdictCancelled
	}
	h.publish(s, &contracts.Status{Message: out.Reason}) // said in the open, never a silent hang (D8)
	return out, true
}

// open registers a question and shows it.
func (h *Hub) open(s *state, req *contracts.ServerRequest, opts contracts.AskOptions) (chan contracts.Outcome, error) {
	deadline := h.deadlineFor(s, req.RequestType, opts.Timeout)
	if err := s.table.Open(req, s.now, deadline); err != nil {
		return nil, err
	}
	wait := make(chan contracts.Outcome, 1)
	s.waiters[req.RequestID] = wait
	switch req.RequestType {
	case contracts.RequestApproval:
		h.publish(s, &contracts.ToolCall{CallID: req.CallID, Tool: req.Tool, Args: req.Args, RequiresApproval: true})
	case contracts.RequestClientTool:
		h.publish(s, &contracts.ClientToolRequest{CallID: req.CallID, Tool: req.Tool, Args: req.Args})
	case contracts.RequestUserInput:
		if req.Tool == askUser { // of any other tool it would be taken for a client tool
			h.publish(s, &contracts.ClientToolRequest{CallID: req.CallID, Tool: req.Tool, Args: req.Args})
		}
	}
	h.note(s, note{Deadline: &requestDeadline{ID: req.RequestID, At: deadline}})
	h.publish(s, req)
	if s.holder() == nil {
		h.publish(s, &contracts.Status{Message: "Nobody who is attached can answer: waiting for a controller"})
	}
	h.metrics.Asked.Add(1)
	return wait, nil
}

func (h *Hub) deadlineFor(s *state, kind contracts.RequestType, timeout time.Duration) time.Time {
	if timeout == 0 {
		timeout = h.opts.RequestTimeout[kind]
	}
	if timeout == 0 {
		timeout = serverreq.DefaultTimeout(kind)
	}
	if timeout < 0 {
		return time.Time{}
	}
	return s.now.Add(timeout)
}

// resolve shows how a request ended and hands the outcome to whoever asked. If
// that was an earlier process, the agent may go on from the answer.
func (h *Hub) resolve(s *state, res serverreq.Resolution) {
	h.publish(s, &res.Event)
	outcome := contracts.Outcome{
		Verdict: res.Event.Resolution, Reason: res.Event.Reason, By: res.Event.ResolvedBy,
		Content: res.Content, Announced: true,
	}
	wait, asked := s.waiters[res.Request.RequestID]
	if asked {
		delete(s.waiters, res.Request.RequestID)
		wait <- outcome // 1-buffered, and this is its only value
		return
	}
	h.resume(s, res.Request, outcome)
}

// Withdraw implements [contracts.Host].
func (a *host) Withdraw(id string, verdict contracts.Verdict, reason string, by contracts.Resolver) (open bool) {
	h := (*Hub)(a)
	h.update(func(s *state) {
		var res serverreq.Resolution
		if res, open = s.table.Withdraw(id, verdict, reason, by, s.now); open {
			h.resolve(s, res)
		}
	})
	return open
}
