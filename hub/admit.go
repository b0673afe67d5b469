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

// unfit asks the agent whether it can serve a prompt, before anything changes.
func (h *Hub) unfit(cmd contracts.Command) error {
	prompt, ok := cmd.(*contracts.Prompt)
	if checker, can := h.opts.Agent.(Checker); ok && can {
		return checker.Check(prompt.Content)
	}
	return nil
}

// execute admits and carries out a command, or refuses it. A refusal changes nothing.
func (tx *tx) execute(call *call) error {
	c := call.conn
	if err := tx.mayAct(c, call.cmd); err != nil {
		return err
	}
	tx.opts.Observer.Accepted(call.cmd, call.trace, tx.now)
	n := note{From: c.id, Send: call.key}
	switch cmd := call.cmd.(type) {
	case *contracts.Hello:
		return tx.greetAgain(c, cmd)
	case *contracts.Init:
		tx.claim(c)
		tx.configure(cmd, n)
		return nil
	case *contracts.Prompt:
		return tx.prompt(c, cmd, call.prompt, n)
	case *contracts.Interrupt, *contracts.Cancel:
		tx.claim(c)
		tx.interrupt(cmd, n)
		return nil
	case *contracts.Shutdown:
		tx.claim(c)
		tx.shutdown(cmd, n)
		return nil
	case *contracts.ToolResponse, *contracts.ClientToolResult, *contracts.ServerRequestResponse:
		return tx.answerRequest(c, cmd, n)
	}
	return tx.unprovided(call.cmd)
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
func (tx *tx) mayAct(c *connection, cmd contracts.Command) error {
	op := opCommand
	if _, hello := cmd.(*contracts.Hello); hello {
		op = opHello
	}
	if err := tx.life.refuse(op); err != nil {
		return err
	}
	switch {
	case tx.clients.conns[c.id] != c:
		return errGone
	case op == opHello:
		return nil
	case c.role == contracts.RoleViewer:
		return errViewerSends
	}
	if err := tx.mayDrive(c); err != nil {
		return err
	}
	if cmd == nil { // nothing is known of the command yet
		return nil
	}
	return handshake.Require(cmd, c.terms)
}

// greetAgain renegotiates everything but the role (R29). A hello that changes
// nothing is answered, and nobody else hears of it.
func (tx *tx) greetAgain(c *connection, hello *contracts.Hello) error {
	offer := handshake.Offer{Networked: !c.bare}
	if c.greeted || !c.bare {
		offer.Established = c.role
	}
	terms, err := handshake.Negotiate(hello, offer)
	if err != nil {
		return err
	}
	if offer.Established != "" && reflect.DeepEqual(terms, c.terms) {
		tx.confide(c, tx.note(note{}), tx.helloOK(c))
		return nil
	}
	if offer.Established != "" && !c.mayChange(tx.now) {
		return errChangesOften
	}
	c.apply(terms)
	c.greeted = true
	tx.log.events.ApplyCommand(hello)
	if c.role == contracts.RoleViewer && tx.clients.lease.Release(c.id) { // the local client turned out to be a viewer
		tx.opts.Observer.LeaseMoved(contracts.LeaseReleased)
		tx.noteLease()
	}
	tx.acknowledge(c)
	tx.showChange(c.id)
	tx.reportMismatch(c)
	return nil
}

// configure applies init: the fields in their order, a status that names them,
// and the waiting approvals that a new mode decides (R33, R65).
func (tx *tx) configure(cmd *contracts.Init, n note) {
	h := tx.Hub
	tx.noteCommand(cmd, n)
	tx.publish(&contracts.Status{Message: initialized(cmd)})
	if cmd.ApprovalMode != "" {
		tx.work.mode = cmd.ApprovalMode
		for _, res := range tx.work.table.PolicyAll(tx.work.mode, tx.now) {
			tx.resolve(res)
		}
	}
	tx.then(func() { h.opts.Agent.Configure(cmd) })
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
func (tx *tx) interrupt(cmd contracts.Command, n note) {
	if tx.work.run == nil && tx.work.table.Len() == 0 && !tx.utilitiesActive() {
		return
	}
	why := stopInterrupted
	if _, ok := cmd.(*contracts.Cancel); ok {
		why = stopCancelled
	}
	for _, res := range tx.work.table.CancelAll(why.requests, tx.now) {
		tx.resolve(res)
	}
	tx.noteCommand(cmd, n)
	tx.publishSnapshot()
	tx.stopRun(why)
	tx.stopUtilities(why.utilities)
}

// shutdown ends the runtime for everybody.
func (tx *tx) shutdown(cmd contracts.Command, n note) {
	h := tx.Hub
	tx.windDown(cmd, n)
	tx.then(func() { go h.finishShutdown() }) // ends with the session; Close waits for it
}

// windDown takes no more commands and ends what is under way.
func (tx *tx) windDown(cmd contracts.Command, n note) {
	for _, res := range tx.work.table.CancelAll(stopShutdown.requests, tx.now) {
		tx.resolve(res)
	}
	tx.noteCommand(cmd, n)
	tx.life.phase = phaseClosing
	tx.stopRun(stopShutdown)
}

// answerRequest ends a pending request with a client's answer. The first answer
// wins (D8).
func (tx *tx) answerRequest(c *connection, cmd contracts.Command, n note) error {
	if response, ok := cmd.(*contracts.ServerRequestResponse); ok && tx.info.Echoes {
		tx.echo(c, response)
		return nil
	}
	res, err := tx.work.table.Answer(cmd, c.id, tx.now, c.bare)
	if err != nil {
		if c.bare && tx.work.mode != contracts.ApprovalPrompt && answersApproval(cmd) && errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}) {
			tx.publish(&contracts.Status{Message: "Tool response ignored (auto-approval mode)"})
			return nil
		}
		return err
	}
	tx.claim(c)
	if n.Send != nil {
		tx.note(n)
	}
	tx.log.events.ApplyCommand(cmd)
	tx.resolve(res)
	return nil
}

// echo shows an answer as the resolution of the request that it names, without a
// look at what waits (see [contracts.AgentInfo]).
func (tx *tx) echo(c *connection, cmd *contracts.ServerRequestResponse) {
	tx.claim(c)
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
	tx.log.events.ApplyCommand(cmd)
	if res, waiting := tx.work.table.Withdraw(cmd.RequestID, verdict, reason, contracts.ResolvedByUser, tx.now); waiting {
		tx.resolve(res)
		return
	}
	tx.publish(&contracts.ServerRequestResolved{
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
