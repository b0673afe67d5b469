package hub

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// execute admits and executes a command. A refused command changes nothing. A utility
// command is only admitted.
func (tx *tx) execute(call *call) error {
	c := call.conn
	if err := tx.checkCommand(call); err != nil {
		return err
	}
	if op, _ := handshake.Operation(call.cmd); op != "" && !slices.Contains(tx.opts.Utilities.Operations(), op) {
		return tx.unsupported(call.cmd)
	}
	n := note{From: c.id, Send: call.key}
	if prompt, ok := call.cmd.(*contracts.Prompt); ok && mayWait(prompt) {
		return tx.enqueue(c, prompt, n)
	}
	tx.opts.Observer.Accepted(call.cmd, call.trace, tx.now)
	if isUtility(call.cmd) {
		tx.claim(c)
		return nil
	}
	switch cmd := call.cmd.(type) {
	case *contracts.Hello:
		return tx.renegotiate(c, cmd)
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
		return tx.answerRequest(call, n)
	case *contracts.QueueEdit, *contracts.QueueMove, *contracts.QueueCancel, *contracts.QueueResume:
		return tx.changeQueue(c, cmd, n)
	}
	return tx.unsupported(call.cmd)
}

func (h *Hub) unsupported(cmd contracts.Command) error {
	return &contracts.Error{
		Code: contracts.CodeUnsupportedCapability, Type: contracts.ErrorTool,
		Message: cmd.CommandType() + " is not provided by this runtime",
	}
}

// checkCommand checks, in this order: session and connection, role, lease,
// capability. A hello passes after the first check. An approver needs no lease.
// checkCommand runs in the transaction that executes the command, so a command that
// was read before a takeover is checked against the new holder (D7).
func (tx *tx) checkCommand(call *call) error {
	c, cmd := call.conn, call.cmd
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
	case op == opHello && (c.role != contracts.RoleController || !call.fromApprover()):
		return nil
	case c.role == contracts.RoleViewer:
		return errViewerSends
	case call.fromApprover():
		if !isAnswer(cmd) {
			return handshake.ErrApproverSends
		}
		return nil
	}
	if err := tx.checkLease(c); err != nil {
		return err
	}
	if cmd == nil { // the text could not be decoded
		return nil
	}
	return handshake.Require(cmd, c.terms)
}

// renegotiate handles a further hello. It renegotiates everything except an
// established role (R29). A hello that changes nothing is answered, and other
// clients see nothing.
func (tx *tx) renegotiate(c *connection, hello *contracts.Hello) error {
	offer := handshake.Offer{}
	if c.greeted || !c.bare {
		offer.Established = c.role
	}
	terms, err := handshake.Negotiate(hello, offer)
	if err != nil {
		return err
	}
	if offer.Established != "" && reflect.DeepEqual(terms, c.terms) {
		tx.sendPrivateEvent(c, tx.note(note{}), tx.helloOK(c))
		return nil
	}
	if offer.Established != "" && !c.countChange(tx.now) {
		return errChangesOften
	}
	c.apply(terms, false)
	c.greeted = true
	tx.log.events.ApplyCommand(hello)
	if c.role != contracts.RoleController && tx.clients.lease.Release(c.id) { // the local client says that it is no controller
		tx.opts.Observer.LeaseMoved(contracts.LeaseReleased)
		tx.noteLease(tx.controlChanged(c, nil, contracts.LeaseReleased))
	}
	tx.sendHelloOK(c)
	tx.showChange(c)
	tx.reportMismatch(c)
	return nil
}

// configure executes init. It publishes a status that names the changed fields, and
// decides the pending approvals by the new approval mode (R33, R65).
func (tx *tx) configure(cmd *contracts.Init, n note) {
	tx.noteCommand(cmd, n, nil)
	tx.publish(&contracts.Status{Message: initialized(cmd)})
	if cmd.ApprovalMode != "" {
		tx.work.mode = cmd.ApprovalMode
		tx.resolve(tx.work.table.PolicyAll(tx.work.mode, tx.now)...)
	}
	tx.then(func(h *Hub) { h.configureAgent(cmd) })
}

func initialized(cmd *contracts.Init) string {
	var changed []string
	for _, field := range []struct {
		given bool
		name  string
	}{
		{cmd.SystemPrompt != nil, "system_prompt"},
		{cmd.AppendSystemPrompt != nil, "append_system_prompt"},
		{cmd.ThinkingLevel != "", "thinking_level"},
		{cmd.ApprovalMode != "", "approval_mode"},
	} {
		if field.given {
			changed = append(changed, field.name)
		}
	}
	if changed == nil {
		return "Init received with no changes"
	}
	return "Initialized: " + strings.Join(changed, ", ")
}

// interrupt stops the run, cancels the open questions and publishes a snapshot
// (A69). If nothing is active, it publishes nothing (R68).
func (tx *tx) interrupt(cmd contracts.Command, n note) {
	if tx.work.run == nil && tx.work.table.Len() == 0 && !tx.log.events.UtilitiesActive() {
		return
	}
	why := stopInterrupted
	if _, ok := cmd.(*contracts.Cancel); ok {
		why = stopCancelled
	}
	tx.holdQueue()
	tx.resolve(tx.work.table.CancelAll(why.requests, tx.now)...)
	tx.noteCommand(cmd, n, nil)
	tx.publishSnapshot()
	tx.stopRun(why)
	tx.then(func(h *Hub) {
		h.wg.Go(func() { h.stopUtilities(context.Background(), why.utilities) }) // ends within runTimeout
	})
}

func (tx *tx) shutdown(cmd contracts.Command, n note) {
	tx.beginShutdown(cmd, n)
	tx.leaveSoon(true)
}

// beginShutdown cancels the questions, stops the run and refuses further commands.
func (tx *tx) beginShutdown(cmd contracts.Command, n note) {
	tx.holdQueue()
	tx.resolve(tx.work.table.CancelAll(stopShutdown.requests, tx.now)...)
	tx.noteCommand(cmd, n, nil)
	tx.life.phase = phaseClosing
	tx.stopRun(stopShutdown)
}

// answerRequest ends a pending request with a client's answer, or counts its vote. Of
// the answers that decide, the first is used (D8).
func (tx *tx) answerRequest(call *call, n note) error {
	c, cmd := call.conn, call.cmd
	approver := call.fromApprover()
	if tx.answering = senderOf(c); call.http != nil {
		tx.answering.Principal = call.http.by.Principal // with the credential of this request
	}
	row, answer, err := tx.work.table.Target(cmd, c.bare)
	free := err != nil || row.Needed < 2 && !tx.opts.RequireDigest && answer.Digest == ""
	if response, ok := cmd.(*contracts.ServerRequestResponse); ok && tx.info.Echoes && !approver && free {
		tx.echo(c, response)
		return nil
	}
	if err != nil {
		if c.bare && tx.work.mode != contracts.ApprovalPrompt && answersApproval(cmd) && errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}) {
			tx.publish(&contracts.Status{Message: "Tool response ignored (auto-approval mode)"})
			return nil
		}
		return err
	}
	if approver && !handshake.ApproverAnswers(row.Request.RequestType) {
		return handshake.ErrApproverSends
	}
	if err := tx.checkAnswer(row, &answer); err != nil {
		return err
	}
	if !approver {
		tx.claim(c)
	}
	if n.Send != nil {
		tx.note(n)
	}
	_, err = tx.endByAnswer(row, &answer, cmd, c.author())
	return err
}

// isAnswer reports whether a command answers a question. A nil command, whose text
// could not be decoded, passes: its refusal says so.
func isAnswer(cmd contracts.Command) bool {
	switch cmd.(type) {
	case nil, *contracts.ToolResponse, *contracts.ClientToolResult, *contracts.ServerRequestResponse:
		return true
	}
	return false
}

// echo publishes an answer as the resolution of the request it names, even if no
// such request is pending (see [contracts.AgentInfo]).
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
		tx.resolveBy(c.author(), res)
		return
	}
	resolved := &contracts.ServerRequestResolved{
		RequestID: cmd.RequestID, RequestType: cmd.RequestType, CallID: cmd.RequestID,
		Resolution: verdict, Reason: reason, ResolvedBy: contracts.ResolvedByUser,
	}
	tx.publishWith(resolved, tx.withAuthor(resolved, c.author()), note{})
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
