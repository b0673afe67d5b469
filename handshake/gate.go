package handshake

import "github.com/seed-028515a8/maestro/contracts"

// Require returns nil if t allows cmd to use the operation it needs, and else
// an unsupported_capability error (R81). What needs no capability passes,
// stopping a command or a watch included (R82). Whether the client may drive at
// all is not asked here.
func Require(cmd contracts.Command, t Terms) error {
	op, id := operation(cmd)
	if op == "" || t.CanUse(op) {
		return nil
	}
	return &contracts.Error{
		Code:      contracts.CodeUnsupportedCapability,
		Message:   cmd.CommandType() + " requires " + string(op) + " capability",
		Type:      contracts.ErrorTool,
		RequestID: id,
	}
}

// operation returns the operation cmd needs, or "" if none, and the id by which
// the client will know the refusal.
func operation(cmd contracts.Command) (op contracts.UtilityOperation, id string) {
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

// Operation returns the utility operation that cmd needs, or "". Ending a
// command or a watch needs none.
func Operation(cmd contracts.Command) contracts.UtilityOperation {
	op, _ := operation(cmd)
	return op
}
