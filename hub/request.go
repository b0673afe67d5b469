package hub

import (
	"cmp"
	"context"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/serverreq"
)

// Ask implements [contracts.Host]. A question is registered and published in one
// transaction, and answered and resolved in another. No client therefore sees a
// question that cannot be answered yet, or an open one that was answered.
func (a *host) Ask(ctx context.Context, req *contracts.ServerRequest, opts contracts.AskOptions) (contracts.Outcome, error) {
	h := (*Hub)(a)
	if err := contracts.ValidateEvent(req); err != nil {
		return contracts.Outcome{}, err
	}
	shown := h.announcement(req, opts.Truncated)
	var (
		wait    chan contracts.Outcome
		outcome contracts.Outcome
		err     error
	)
	h.update(func(tx *tx) {
		if tx.life.phase == phaseEnded || tx.work.run != nil && tx.work.run.stop != nil {
			err = errEnded
			return
		}
		var decided bool
		if outcome, decided = tx.decideByPolicy(req); !decided {
			wait, err = tx.open(req, shown, opts)
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

// abandon cancels a question whose caller stopped waiting. If the session is ending
// or moving to another process, the question stays open.
func (h *Hub) abandon(id string, wait chan contracts.Outcome, cause error) (contracts.Outcome, error) {
	resolved := false
	h.update(func(tx *tx) {
		if resolved = tx.work.waiters[id] != wait; resolved {
			return
		}
		delete(tx.work.waiters, id)
		if tx.life.phase != phaseOpen {
			return
		}
		if res, ok := tx.work.table.Cancel(id, "Run ended before request completed", tx.now); ok {
			tx.publishEnd(&res, nil) // without resume: the caller of Ask gets the error and ends the call
		}
	})
	if !resolved {
		return contracts.Outcome{}, cause
	}
	select {
	case outcome := <-wait: // the question was answered first
		return outcome, nil
	case <-h.done: // the store failed
		return contracts.Outcome{}, cause
	}
}

// askUser is the only tool whose user_input request has a legacy event.
const askUser = "ask_user"

// decideByPolicy decides an approval outside prompt mode (R51), and a question that
// the controller cannot answer. It reports whether it decided.
func (tx *tx) decideByPolicy(req *contracts.ServerRequest) (contracts.Outcome, bool) {
	if req.RequestType == contracts.RequestApproval {
		if tx.work.mode == contracts.ApprovalAuto && tx.opts.votesNeeded(req) > 0 {
			return contracts.Outcome{}, false // one client, who sets the mode, cannot replace several
		}
		return serverreq.Policy(tx.work.mode)
	}
	c := tx.clients.holder()
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
	tx.publish(&contracts.Status{Message: out.Reason}) // not silently (D8)
	return out, true
}

// An announced question is ready to be published.
type announced struct {
	legacy  []encoded // the event for older clients, if the question has one
	request encoded
	shown   *contracts.RequestShown // comes before the request
	display encoded                 // shown
}

// announcement returns the events that show a question. cut says that the agent has cut
// it.
func (h *Hub) announcement(req *contracts.ServerRequest, cut bool) announced {
	var legacy []encoded
	switch kind := req.RequestType; {
	case kind == contracts.RequestApproval:
		call := &contracts.ToolCall{CallID: req.CallID, Tool: req.Tool, Args: req.Args, RequiresApproval: true}
		legacy = append(legacy, encode(nil, call))
	case kind == contracts.RequestClientTool,
		kind == contracts.RequestUserInput && req.Tool == askUser: // older clients take others for client tools
		call := &contracts.ClientToolRequest{CallID: req.CallID, Tool: req.Tool, Args: req.Args}
		legacy = append(legacy, encode(nil, call))
	}
	shown := h.shownRequest(req)
	shown.Truncated = shown.Truncated || cut
	return announced{legacy: legacy, request: encode(nil, req), shown: shown, display: encode(nil, shown)}
}

func (tx *tx) open(req *contracts.ServerRequest, a announced, opts contracts.AskOptions) (chan contracts.Outcome, error) {
	deadline := tx.deadlineFor(req.RequestType, opts.Timeout)
	if err := tx.work.table.Open(req, tx.now, deadline); err != nil {
		return nil, err
	}
	wait := make(chan contracts.Outcome, 1)
	tx.work.waiters[req.RequestID] = wait
	tx.work.table.Bind(req.RequestID, a.shown.Digest, int(a.shown.VotesNeeded))
	for _, e := range a.legacy {
		tx.publishEncoded(e)
	}
	record := aboutRequest(AuditAsked, req, a.shown.Digest)
	tx.noteEncoded(note{Deadline: &requestDeadline{ID: req.RequestID, At: deadline}, Audit: tx.audit(record, nil)}, a.display)
	tx.publishEncoded(a.request)
	if tx.clients.holder() == nil {
		tx.publish(&contracts.Status{Message: "Nobody who is attached can answer: waiting for a controller"})
	}
	return wait, nil
}

func (tx *tx) deadlineFor(kind contracts.RequestType, timeout time.Duration) time.Time {
	timeout = cmp.Or(timeout, tx.opts.RequestTimeout[kind], serverreq.DefaultTimeout(kind))
	if timeout < 0 {
		return time.Time{}
	}
	return tx.now.Add(timeout)
}

// resolve publishes how questions ended without an answer. See resolveBy.
func (tx *tx) resolve(all ...serverreq.Resolution) { tx.resolveBy(nil, all...) }

// resolveBy publishes how questions ended, and who answered them unless by is nil. It
// passes the outcomes to the callers of Ask. For a question of an earlier process, it
// passes the outcome to resume.
func (tx *tx) resolveBy(by *contracts.Author, all ...serverreq.Resolution) {
	for _, res := range all {
		tx.publishEnd(&res, by)
		wait, asked := tx.work.waiters[res.Request.RequestID]
		if !asked {
			tx.resume(res.Request, res.Outcome())
			continue
		}
		delete(tx.work.waiters, res.Request.RequestID)
		withdrawn := res.Event.Resolution == contracts.VerdictCancelled && res.Event.ResolvedBy == contracts.ResolvedByRuntime
		if r := tx.work.run; r != nil && tx.info.KeepsRequests && !withdrawn {
			delete(r.Calls, res.Request.CallID) // the caller of Ask may outlive the run, and ends the call itself
		}
		tx.then(func(*Hub) { wait <- res.Outcome() }) // does not block: 1-buffered, and this is the only value
	}
	tx.startQueued() // it may have waited for the answer
}

// Withdraw implements [contracts.Host].
func (a *host) Withdraw(id string, verdict contracts.Verdict, reason string, by contracts.Resolver) (open bool) {
	h := (*Hub)(a)
	h.update(func(tx *tx) {
		var res serverreq.Resolution
		if res, open = tx.work.table.Withdraw(id, verdict, reason, by, tx.now); open {
			tx.resolve(res)
		}
	})
	return open
}
