package heddle

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// Frame implements [dialect.Translator].
func (t *translator) Frame(out *dialect.Out, f contracts.Frame, ev contracts.Event) {
	switch f := f.(type) {
	case *contracts.Attached:
		t.id = f.SessionID
	case *contracts.SnapshotEnvelope:
		t.snapshot(f.Snapshot)
	case *contracts.ResetEnvelope:
		t.snapshot(f.Snapshot)
		switch s := t.send; {
		case s == nil:
		case s.stage == stageRunning:
			t.finish(out, &Error{Code: CodeProtocolError, Message: "Events of the send were lost", Retryable: true})
		case s.stage == stageWaiting && !t.busy: // the end of the other run may be among what was lost
			t.prompt(out)
		}
	case *contracts.Result:
		if f.ID != nil {
			t.accepted(out, *f.ID)
		}
	case *contracts.Refusal:
		t.refused(out, f)
	case *contracts.LeaseChange:
		t.leaseChanged(out, f)
	case *contracts.ControlRequest:
		t.asker = strings.Clone(f.ConnectionID)
		t.handOver(out)
	case *contracts.MessageEnvelope:
		t.event(out, ev)
	}
	t.advance(out)
}

func (t *translator) snapshot(text []byte) {
	var decoder contracts.Decoder
	if s, err := decoder.Snapshot(text); err == nil {
		t.busy = s.State.IsResponding
	}
}

// event translates an event of the session.
func (t *translator) event(out *dialect.Out, ev contracts.Event) {
	s := t.send
	own := s != nil && s.stage == stageRunning
	switch e := ev.(type) {
	case *contracts.HelloOK:
		if t.phase == phaseOpening {
			t.opened(out)
		}
	case *contracts.RawAgentEvent:
		t.raw(out, e, own)
	case *contracts.ResponseEnd:
		if e.Usage.ModelID != "" {
			t.routed = strings.Clone(e.Usage.ModelID)
		}
		if !own || s.stopping == nil && s.failed == nil {
			t.messages++
		}
	}
	if own && t.send == s && (s.stopping == nil || s.stopping.Code != CodeCancelled) {
		t.runEvent(out, s, ev)
	}
}

// raw acts on the events about runs.
func (t *translator) raw(out *dialect.Out, e *contracts.RawAgentEvent, own bool) {
	s := t.send
	if _, user := e.UserMessage(); user {
		t.messages++
		return
	}
	switch e.EventKind {
	case "agent_start":
		t.busy = true
	case "agent_end":
		t.busy = false
		switch {
		case own && s.stopping != nil:
			t.finish(out, s.stopping)
		case own:
			t.finish(out, s.failed)
		case s != nil && s.stage == stageWaiting:
			t.prompt(out)
		}
	case "model_reply":
		var reply struct {
			ID string `json:"generation_id"`
		}
		if own && json.Unmarshal(e.Event, &reply) == nil {
			s.reply = reply.ID
		}
	case "model_error":
		if own {
			s.explain(e.Event)
		}
	case "turn_limit":
		if own {
			s.limited = true
		}
	}
}

// explain notes what the agent says about a failure of the provider. The session's
// error comes next.
func (s *send) explain(text []byte) {
	var said struct {
		Message      string          `json:"message"`
		Details      json.RawMessage `json:"details"`
		Provider     string          `json:"provider"`
		Status       int             `json:"status"`
		RetryAfterMS int64           `json:"retry_after_ms"`
	}
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		return
	}
	p := &Provider{Name: said.Provider, Status: said.Status, RetryAfterMS: said.RetryAfterMS}
	if p.Status > 0 {
		p.StatusCategory = string('0'+rune(p.Status/100%10)) + "xx"
	}
	s.failure.Provider = p
	s.cause = &Error{Code: CodeProviderError, Message: said.Message, Details: said.Details, Retryable: p.retryable()}
}

// retryable reports whether the same request may succeed later.
func (p *Provider) retryable() bool {
	return p.RetryAfterMS > 0 || slices.Contains([]int{
		0, // there was no answer
		http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529,
	}, p.Status)
}

// runEvent translates an event of the send's run.
func (t *translator) runEvent(out *dialect.Out, s *send, ev contracts.Event) {
	switch e := ev.(type) {
	case *contracts.ResponseStart:
		s.failed, s.failure.Provider, s.reply = nil, nil, ""
		if limit := t.config.maxIterations(); s.rounds >= limit && s.stopping == nil {
			t.stop(out, &Error{Code: t.limitCode(), Message: "Stopped after the maximum number of iterations"})
		}
	case *contracts.ResponseChunk:
		t.content(out, s, e)
	case *contracts.ResponseEnd:
		if s.stopping == nil && s.failed == nil {
			s.rounds++
			t.used(out, s, &e.Usage)
		}
	case *contracts.ToolCall:
		t.announce(out, s, e.CallID, e.Tool, e.Args)
	case *contracts.ToolStart:
		t.toolStarted(out, s, e.CallID)
	case *contracts.ToolOutput:
		if c := s.calls[e.CallID]; c != nil {
			c.output = clipped(c.output, e.Content)
		}
	case *contracts.ToolEnd:
		t.toolEnded(out, s, e)
	case *contracts.ServerRequest:
		t.question(out, s, e)
	case *contracts.ServerRequestResolved:
		t.resolved(out, s, e)
	case *contracts.Compaction:
		if s.stopping == nil {
			t.emit(out, Body{Event: EventContextCompact})
		}
	case *contracts.ErrorEvent:
		t.runFailed(out, s, e)
	}
}

func (t *translator) content(out *dialect.Out, s *send, e *contracts.ResponseChunk) {
	switch {
	case s.stopping != nil || e.Content == "":
	case !e.IsThinking:
		text := strings.Clone(e.Content)
		s.text = append(s.text, abridge.Head(text, maxText+utf8.UTFMax-len(s.text))...)
		t.emit(out, Body{Event: EventContentDelta, Text: &text})
	case t.extension(ExtensionThinking):
		t.emit(out, Body{Event: EventContentDelta, Text: &e.Content, Thinking: true})
	}
}

// used tells and adds up the usage of a model call, if it is known.
func (t *translator) used(out *dialect.Out, s *send, u *contracts.Usage) {
	id := s.reply
	s.reply = ""
	if u.TotalTokens == 0 {
		return
	}
	prompt := u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
	now := &Usage{PromptTokens: prompt, CompletionTokens: u.OutputTokens, TotalTokens: u.TotalTokens}
	if t.client.since(3) {
		now.CachedTokens, now.CacheWriteTokens, now.GenerationID = u.CacheReadTokens, u.CacheWriteTokens, id
		if now.CostMicros = int64(math.Round(u.TotalCostUSD * 1e6)); now.CostMicros > 0 {
			now.CostCurrency = "USD"
		}
	}
	t.emit(out, Body{Event: EventUsage, Usage: now})
	sum := *now
	if before := s.usage; before != nil {
		sum.PromptTokens += before.PromptTokens
		sum.CompletionTokens += before.CompletionTokens
		sum.TotalTokens += before.TotalTokens
		sum.CachedTokens += before.CachedTokens
		sum.CacheWriteTokens += before.CacheWriteTokens
		sum.CostMicros += before.CostMicros
		if sum.CostMicros > 0 {
			sum.CostCurrency = "USD"
		}
	}
	s.usage = &sum
}

// announce notes a call, and stops a run that repeats itself.
func (t *translator) announce(out *dialect.Out, s *send, id, tool string, args json.RawMessage) {
	if s.stopping != nil || s.calls[id] != nil || len(s.calls) >= maxCalls {
		return
	}
	c := &toolCall{name: t.tools.shown(tool), args: slices.Clone(args)}
	if len(c.args) == 0 {
		c.args = json.RawMessage("null")
	}
	s.calls[id] = c
	if key := tool + " " + string(args); key == s.last {
		s.repeats++
	} else {
		s.last, s.repeats = key, 1
	}
	if s.repeats == loopLimit {
		s.failure.LoopCount, s.failure.LoopThreshold = loopLimit, loopLimit
		t.stop(out, &Error{Code: CodeLoopDetected, Message: "The tool " + c.name + " was called 3 times in a row with the same arguments"})
	}
}

func (t *translator) callID(id string) string {
	if t.extension(ExtensionCallIDs) {
		return id
	}
	return ""
}

func (t *translator) toolStarted(out *dialect.Out, s *send, id string) {
	c := s.calls[id]
	if c == nil || c.started {
		return
	}
	c.started = true
	if s.running++; s.running == 1 {
		s.since = out.Now
	}
	made := Call{ID: t.callID(id), Name: c.name, Args: c.args}
	if s.madeSize += len(c.args); s.madeSize > maxMadeSize {
		made.Args = json.RawMessage("null")
	}
	s.made = append(s.made, made)
	t.emit(out, Body{Event: EventToolStart, Name: &c.name, Args: c.args, CallID: t.callID(id)})
}

func (t *translator) toolEnded(out *dialect.Out, s *send, e *contracts.ToolEnd) {
	c := s.calls[e.CallID]
	if c == nil {
		return
	}
	delete(s.calls, e.CallID)
	if !c.started {
		if e.GovernedOutcome == "denied" && e.ApprovalRequestID == "" {
			t.denied(out, c, "Denied by a rule")
		}
		return
	}
	if s.running--; s.running == 0 {
		s.toolTime += out.Now.Sub(s.since)
	}
	s.text = nil
	preview := c.output
	if !e.Success && !strings.HasPrefix(preview, "Error: ") {
		preview = "Error: " + preview
	}
	preview = abridge.FirstChars(preview, MaxPreview)
	t.emit(out, Body{Event: EventToolEnd, Name: &c.name, ResultPreview: &preview, CallID: t.callID(e.CallID)})
}

// denied tells that a call does not run, once.
func (t *translator) denied(out *dialect.Out, c *toolCall, why string) {
	t.emit(out, Body{Event: EventPermissionDenied, Name: &c.name, Reason: &why})
}

// question asks for an approval, which the protocol cannot answer, and answers other
// questions at once.
func (t *translator) question(out *dialect.Out, s *send, e *contracts.ServerRequest) {
	id := strings.Clone(e.RequestID)
	if e.RequestType != contracts.RequestApproval {
		t.respond(out, &contracts.ServerRequestResponse{
			RequestID: id, RequestType: e.RequestType, IsError: e.RequestType != contracts.RequestToolRetry,
			Reason: "The client cannot answer questions",
		})
		return
	}
	t.announce(out, s, e.CallID, e.Tool, e.Args)
	if t.send != s || s.stopping != nil {
		return
	}
	name := t.tools.shown(e.Tool)
	body := Body{Event: EventPermissionRequest, Name: &name, CallID: t.callID(e.CallID)}
	if e.Reason != "" {
		body.Reason = &e.Reason
	}
	t.emit(out, body)
	switch {
	case !slices.ContainsFunc(*t.config.Tools, func(name string) bool { return agentTool(name) == e.Tool }): // H33
		t.answer(out, id, false, "The tool is not among the client's tools")
	case t.extension(ExtensionApproveAll):
		t.answer(out, id, true, "")
		if t.opts.ApprovalWait >= 0 && t.send.stopping == nil { // the call may need the votes of other clients
			s.approvals[id] = out.Now.Add(t.opts.ApprovalWait)
		}
	case t.extension(ExtensionDenyAll):
		t.answer(out, id, false, "The client denies all approvals")
	case t.opts.ApprovalWait < 0:
		t.answer(out, id, false, "No other client can approve the call")
	default:
		s.approvals[id] = out.Now.Add(t.opts.ApprovalWait)
	}
}

// answer answers an approval.
func (t *translator) answer(out *dialect.Out, id string, approved bool, why string) {
	delete(t.send.approvals, id)
	t.respond(out, &contracts.ServerRequestResponse{RequestID: id, RequestType: contracts.RequestApproval, Approved: &approved, Reason: why})
}

// respond answers a question. If another client controls the session by now, or has
// answered, the session refuses the answer, which changes nothing.
func (t *translator) respond(out *dialect.Out, cmd *contracts.ServerRequestResponse) {
	if _, err := t.do(out, cmd); err != nil {
		t.stop(out, &Error{Code: CodeToolError, Message: "A question of the agent cannot be answered"})
	}
}

func (t *translator) resolved(out *dialect.Out, s *send, e *contracts.ServerRequestResolved) {
	delete(s.approvals, e.RequestID)
	c := s.calls[e.CallID]
	if e.RequestType != contracts.RequestApproval || e.Resolution == contracts.VerdictApproved || c == nil {
		return
	}
	delete(s.calls, e.CallID)
	why := cmp.Or(e.Reason, "The approval was "+string(e.Resolution))
	s.failure.Permission = &Permission{Name: c.name, CallID: t.callID(e.CallID), Reason: why}
	t.denied(out, c, why)
}

// runFailed translates an error of the run. The run may go on.
func (t *translator) runFailed(out *dialect.Out, s *send, e *contracts.ErrorEvent) {
	if s.stopping != nil {
		return
	}
	why := &Error{Code: CodeProviderError, Message: strings.Clone(e.Message), Retryable: e.ErrorType == contracts.ErrorTransient}
	switch {
	case s.limited:
		why.Code = t.limitCode()
	case s.cause != nil:
		why = s.cause
	case e.ErrorType == contracts.ErrorTool:
		why.Code = CodeToolError
	case e.ErrorType == contracts.ErrorProtocol:
		why.Code = CodeProtocolError
	case e.ErrorType == contracts.ErrorCancelled:
		why.Code = CodeCancelled
	}
	s.failed, s.cause = why, nil
	t.showError(out, why)
}
