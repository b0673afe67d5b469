package hub

import (
	"errors"
	"reflect"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// stopPatience is how long a prompt that comes right after an interrupt waits
// for the old run to end, instead of being refused.
const stopPatience = 5 * time.Second

// command takes one command of a client: it decides under the lock and acts
// after it. id is that of a ws.send, nil for a bare message.
func (r *reader) command(id *string, cmd contracts.Command) {
	h, c := r.hub, r.conn
	if _, ok := cmd.(*contracts.Prompt); ok {
		h.awaitStopped()
	}
	unfit := h.unfit(cmd)
	var (
		earlier chan struct{} // the same ws.send is under way, from a socket before this one
		serve   bool          // a utility command was admitted
	)
	decide := func(s *state) {
		if earlier = nil; r.superseded(s) {
			return
		}
		if id != nil {
			if earlier = c.sends.doing[*id]; earlier != nil || r.repeated(s, *id) {
				return
			}
		}
		h.touch(s, c)
		var err error
		switch {
		case isUtility(cmd):
			if err = h.mayUse(s, c, cmd, origin{send: id}); err == nil {
				serve = true // outside the lock, and then it is answered
				if id != nil {
					c.sends.begin(*id)
				}
				return
			}
		case unfit != nil:
			if err = h.mayAct(s, c, cmd); err == nil {
				err = unfit
			}
		default:
			err = h.decide(s, c, cmd, origin{send: id})
		}
		r.conclude(s, id, err)
	}
	for h.update(decide); earlier != nil; h.update(decide) {
		<-earlier // utilityPatience at the most
	}
	if !serve {
		return
	}
	if id != nil {
		defer h.update(func(*state) { c.sends.end(*id) })
	}
	err := h.serveUtility(c.id, cmd)
	h.update(func(s *state) { r.conclude(s, id, err) })
}

// conclude remembers how a command ended, and tells the client.
func (r *reader) conclude(s *state, id *string, err error) {
	refusal := r.hub.refusal(err)
	if id != nil {
		r.hub.remember(s, r.conn, *id, refusal)
	}
	r.answer(s, id, refusal)
}

// unfit asks the agent whether it can serve a prompt, before anything changes.
func (h *Hub) unfit(cmd contracts.Command) error {
	prompt, ok := cmd.(*contracts.Prompt)
	if checker, can := h.opts.Agent.(Checker); ok && can {
		return checker.Check(prompt.Content)
	}
	return nil
}

// remember keeps the answer to a ws.send, unless it was to try again later: then
// the same frame may be.
func (h *Hub) remember(s *state, c *connection, id string, refusal *contracts.Error) {
	if refusal != nil && refusal.Code.Retryable() {
		return
	}
	answer := sent{cursor: h.head(s), err: refusal}
	c.sends.put(id, answer)
	h.keepAnswer(s, answer.cursor)
}

// repeated answers a ws.send that was answered before, as it was (A72).
func (r *reader) repeated(s *state, id string) bool {
	answer, known := r.conn.sends.get(id)
	switch {
	case !known:
	case answer.err != nil:
		r.answer(s, &id, answer.err)
	default:
		r.result(s, &id, answer.cursor)
	}
	return known
}

// decide admits or refuses a command. A refusal changes nothing.
func (h *Hub) decide(s *state, c *connection, cmd contracts.Command, from origin) error {
	if err := h.mayAct(s, c, cmd); err != nil {
		return err
	}
	h.opts.Observer.Accepted(cmd, from.trace, s.now)
	n := note{From: c.id, Send: from.send}
	switch cmd := cmd.(type) {
	case *contracts.Hello:
		return h.greetAgain(s, c, cmd)
	case *contracts.Init:
		h.claim(s, c)
		h.configure(s, cmd, n)
		return nil
	case *contracts.Prompt:
		return h.prompt(s, c, cmd, n)
	case *contracts.Interrupt, *contracts.Cancel:
		h.claim(s, c)
		h.interrupt(s, cmd, n)
		return nil
	case *contracts.Shutdown:
		h.claim(s, c)
		h.shutdown(s, cmd, n)
		return nil
	case *contracts.ToolResponse, *contracts.ClientToolResult, *contracts.ServerRequestResponse:
		return h.answerRequest(s, c, cmd, n)
	}
	return h.unprovided(cmd)
}

// unprovided refuses what this runtime does not offer.
func (h *Hub) unprovided(cmd contracts.Command) error {
	return &contracts.Error{
		Code: contracts.CodeUnsupportedCapability, Type: contracts.ErrorTool,
		Message: cmd.CommandType() + " is not provided by this runtime",
	}
}

// mayAct applies the checks in their fixed order: session, role, lease,
// capability. The lease is checked here, under the lock that moves it, so an
// action read before a take-over cannot take effect after it (D7).
func (h *Hub) mayAct(s *state, c *connection, cmd contracts.Command) error {
	_, hello := cmd.(*contracts.Hello)
	switch {
	case s.phase == phaseEnded || s.conns[c.id] != c || s.phase == phaseClosing && !hello:
		return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "Headless runtime is no longer available"}
	case s.phase == phaseUnready, s.frozen:
		return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not ready"}
	case s.phase == phaseDraining && !hello:
		return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is draining"}
	case hello:
		return nil
	case c.role == contracts.RoleViewer:
		return errViewerSends
	}
	if err := h.mayDrive(s, c); err != nil {
		return err
	}
	if cmd == nil { // nothing is known of the command yet
		return nil
	}
	return handshake.Require(cmd, c.terms)
}

// greetAgain renegotiates everything but the role (R29). A hello that changes
// nothing is answered, and nobody else hears of it.
func (h *Hub) greetAgain(s *state, c *connection, hello *contracts.Hello) error {
	offer := handshake.Offer{Networked: !c.bare}
	if c.greeted || !c.bare {
		offer.Established = c.role
	}
	terms, err := handshake.Negotiate(hello, offer)
	if err != nil {
		return err
	}
	if offer.Established != "" && reflect.DeepEqual(terms, c.terms) {
		h.confide(s, c, h.note(s, note{}), h.helloOK(s, c))
		return nil
	}
	c.apply(terms)
	c.greeted = true
	s.events.ApplyCommand(hello)
	if c.role == contracts.RoleViewer && s.lease.Release(c.id) { // the local client turned out to be a viewer
		h.opts.Observer.LeaseMoved(contracts.LeaseReleased)
		h.noteLease(s)
	}
	h.acknowledge(s, c)
	h.showChange(s, c.id)
	h.reportMismatch(s, c)
	return nil
}

// configure applies init: the fields in their order, a status that names them,
// and the waiting approvals that a new mode decides (R33, R65).
func (h *Hub) configure(s *state, cmd *contracts.Init, n note) {
	h.noteCommand(s, cmd, n)
	h.publish(s, &contracts.Status{Message: initialized(cmd)})
	if cmd.ApprovalMode != "" {
		s.mode = cmd.ApprovalMode
		for _, res := range s.table.PolicyAll(s.mode, s.now) {
			h.resolve(s, res)
		}
	}
	s.then(func() { h.opts.Agent.Configure(cmd) })
}

func initialized(cmd *contracts.Init) string {
	text := ""
	add := func(given bool, name string) {
		if !given {
			return
		}
		if text != "" {
			text += ", "
		}
		text += name
	}
	add(cmd.SystemPrompt != nil, "system_prompt")
	add(cmd.AppendSystemPrompt != nil, "append_system_prompt")
	add(cmd.ThinkingLevel != "", "thinking_level")
	add(cmd.ApprovalMode != "", "approval_mode")
	if text == "" {
		return "Init received with no changes"
	}
	return "Initialized: " + text
}

// interrupt stops the run and cancels what it waits for, then shows the state
// that leaves (A69). With nothing active it says nothing (R68).
func (h *Hub) interrupt(s *state, cmd contracts.Command, n note) {
	if s.run == nil && s.table.Len() == 0 && !h.utilitiesActive(s) {
		return
	}
	why := stopInterrupted
	if _, ok := cmd.(*contracts.Cancel); ok {
		why = stopCancelled
	}
	for _, res := range s.table.CancelAll(why.requests, s.now) {
		h.resolve(s, res)
	}
	h.noteCommand(s, cmd, n)
	h.publishSnapshot(s)
	h.stopRun(s, why)
	h.stopUtilities(s, why.utilities)
}

// shutdown ends the runtime for everybody.
func (h *Hub) shutdown(s *state, cmd contracts.Command, n note) {
	h.windDown(s, cmd, n)
	s.then(func() { go h.finishShutdown() }) // ends with the session; Close waits for it
}

// windDown takes no more commands and ends what is under way.
func (h *Hub) windDown(s *state, cmd contracts.Command, n note) {
	for _, res := range s.table.CancelAll(stopShutdown.requests, s.now) {
		h.resolve(s, res)
	}
	h.noteCommand(s, cmd, n)
	s.phase = phaseClosing
	h.stopRun(s, stopShutdown)
}

// answerRequest ends a pending request with a client's answer. The first answer
// wins (D8).
func (h *Hub) answerRequest(s *state, c *connection, cmd contracts.Command, n note) error {
	if response, ok := cmd.(*contracts.ServerRequestResponse); ok && h.info.Echoes {
		h.echo(s, c, response)
		return nil
	}
	res, err := s.table.Answer(cmd, c.id, s.now, c.bare)
	if err != nil {
		if c.bare && s.mode != contracts.ApprovalPrompt && answersApproval(cmd) && errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}) {
			h.publish(s, &contracts.Status{Message: "Tool response ignored (auto-approval mode)"})
			return nil
		}
		return err
	}
	h.claim(s, c)
	if n.Send != nil {
		h.note(s, n)
	}
	s.events.ApplyCommand(cmd)
	h.resolve(s, res)
	return nil
}

// echo shows an answer as the resolution of the request that it names, without a
// look at what waits (see [contracts.AgentInfo]).
func (h *Hub) echo(s *state, c *connection, cmd *contracts.ServerRequestResponse) {
	h.claim(s, c)
	reason := cmd.Reason
	if reason == "" && cmd.Result != nil {
		reason = cmd.Result.Error
	}
	verdict := map[contracts.RequestType]contracts.Verdict{
		contracts.RequestApproval: contracts.VerdictDenied, contracts.RequestClientTool: contracts.VerdictCompleted,
		contracts.RequestMCPElicitation: contracts.VerdictAnswered, contracts.RequestUserInput: contracts.VerdictAnswered,
		contracts.RequestToolRetry: contracts.VerdictRetried,
	}[cmd.RequestType]
	if cmd.RequestType == contracts.RequestApproval && cmd.Approved != nil && *cmd.Approved {
		verdict = contracts.VerdictApproved
	}
	s.events.ApplyCommand(cmd)
	if res, waiting := s.table.Withdraw(cmd.RequestID, verdict, reason, contracts.ResolvedByUser, s.now); waiting {
		h.resolve(s, res)
		return
	}
	h.publish(s, &contracts.ServerRequestResolved{
		RequestID: cmd.RequestID, RequestType: cmd.RequestType, CallID: cmd.RequestID,
		Resolution: verdict, Reason: reason, ResolvedBy: contracts.ResolvedByUser,
	})
}

func answersApproval(cmd contracts.Command) bool {
	switch c := cmd.(type) {
	case *contracts.ToolResponse:
		return true
	case *contracts.ServerRequestResponse:
		return c.RequestType == contracts.RequestApproval
	}
	return false
}
