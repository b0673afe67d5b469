package handshake

import (
	"cmp"

	"github.com/seed-028515a8/maestro/contracts"
)

// Require returns an unsupported_capability error if cmd needs an operation that t
// does not allow (R81), or people that t does not have, otherwise nil. Commands without
// an operation pass, among them those that stop a command or a watch (R82). Require does
// not check the lease.
func Require(cmd contracts.Command, t Terms) error {
	op, id := Operation(cmd)
	needs := string(op)
	if usesQueue(cmd) && !t.People() {
		needs = "people"
	} else if op == "" || t.CanUse(op) {
		return nil
	}
	return &contracts.Error{
		Code:      contracts.CodeUnsupportedCapability,
		Message:   cmd.CommandType() + " requires " + needs + " capability",
		Type:      contracts.ErrorTool,
		RequestID: id,
	}
}

// usesQueue reports whether cmd is about the queue of prompts. A client without people
// cannot see the queue.
func usesQueue(cmd contracts.Command) bool {
	switch c := cmd.(type) {
	case *contracts.Prompt:
		return c.When != ""
	case *contracts.QueueEdit, *contracts.QueueMove, *contracts.QueueCancel, *contracts.QueueResume:
		return true
	}
	return false
}

// Operation returns the utility operation that cmd needs, and the id by which the client
// recognizes the refusal. Stopping a command or a watch needs none.
func Operation(cmd contracts.Command) (op contracts.UtilityOperation, id string) {
	switch c := cmd.(type) {
	case *contracts.UtilityCommandStart:
		return contracts.OperationCommandExec, c.CommandID
	case *contracts.UtilityCommandStdin:
		return contracts.OperationCommandExec, c.CommandID
	case *contracts.UtilityCommandResize:
		return contracts.OperationCommandExec, c.CommandID
	case *contracts.UtilityFileSearch:
		return contracts.OperationFileSearch, c.SearchID
	case *contracts.UtilityFileRead:
		return contracts.OperationFileRead, c.ReadID
	case *contracts.UtilityFileWatchStart:
		return contracts.OperationFileWatch, c.WatchID
	}
	return "", ""
}

// MayAnswer refuses a caller without a connection that may not answer questions of a type.
// An empty type stands for approvals.
func MayAnswer(by contracts.Caller, kind contracts.RequestType) error {
	role := cmp.Or(by.Principal.Role, contracts.RoleController)
	if by.Role != "" && by.Role != contracts.RoleController {
		role = by.Role
	}
	if err := by.Principal.CheckRole(role); err != nil {
		return err
	}
	switch {
	case role == contracts.RoleViewer:
		return errViewerAnswers
	case role == contracts.RoleApprover && kind != "" && !ApproverAnswers(kind):
		return ErrApproverSends
	}
	return nil
}

// ErrApproverSends refuses an approver that sends anything but the answers it may give.
var ErrApproverSends = refuse(contracts.CodeAccessDenied,
	"Approver headless connections can only answer approvals and user input")

var errViewerAnswers = refuse(contracts.CodeAccessDenied, "viewers answer no questions")
