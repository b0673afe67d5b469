package serverreq

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Answer ends the request that cmd answers. cmd is a *ToolResponse, a
// *ClientToolResult or a *ServerRequestResponse; from is the connection it came
// from; bare chooses the texts of stdio, which name the kind of request that
// was looked for.
//
// A request that is still here when its deadline has passed can be answered:
// nobody was told yet that it timed out. The legacy commands carry no request
// type and name a call; the id of a request wins over that of a call.
//
// Refusals are *contracts.Error and change nothing: request_not_found, whose
// Metadata says how the request ended if it ended recently (R53, R61), and
// request_type_mismatch (R60).
func (t *Table) Answer(cmd contracts.Command, from string, now time.Time, bare bool) (Resolution, error) {
	var (
		i      int
		answer contracts.ServerRequestResponse
	)
	switch c := cmd.(type) {
	case *contracts.ToolResponse:
		if i = t.findLegacy(c.CallID, contracts.RequestApproval); i < 0 {
			return Resolution{}, t.notFound("No pending approval found for call_id: ", c.CallID, contracts.RequestApproval)
		}
		answer = contracts.ServerRequestResponse{Approved: &c.Approved, Result: c.Result}
	case *contracts.ClientToolResult:
		if i = t.findLegacy(c.CallID, contentTypes...); i < 0 {
			return Resolution{}, t.notFound("No pending client tool request found for call_id: ", c.CallID, contentTypes...)
		}
		answer = contracts.ServerRequestResponse{Content: c.Content, IsError: c.IsError}
	case *contracts.ServerRequestResponse:
		if i = t.find(c.RequestID); i < 0 {
			return Resolution{}, t.notFound(missing(c.RequestType, bare), c.RequestID)
		}
		if actual := t.rows[i].Request.RequestType; actual != c.RequestType {
			return Resolution{}, refuse(contracts.CodeRequestTypeMismatch, c.RequestID,
				"Pending request "+c.RequestID+" is "+string(actual)+", not "+string(c.RequestType))
		}
		answer = *c
	default:
		return Resolution{}, refuse(contracts.CodeBadRequest, "", cmd.CommandType()+" answers no server request")
	}
	return t.endOne(i, answered(t.rows[i].Request.RequestType, &answer), from, now), nil
}

// findLegacy returns the row that a legacy answer to one of kinds means, or -1.
func (t *Table) findLegacy(id string, kinds ...contracts.RequestType) int {
	if i := t.find(id); i >= 0 && slices.Contains(kinds, t.rows[i].Request.RequestType) {
		return i
	}
	return t.findCall(id, kinds...)
}

// notFound is the refusal of an answer to a request that is not pending. kinds
// are what a legacy answer could have meant; none means that id is the id of a
// request.
func (t *Table) notFound(text, id string, kinds ...contracts.RequestType) *contracts.Error {
	err := refuse(contracts.CodeRequestNotFound, id, text+id)
	err.Metadata = t.recent.describe(id, kinds)
	return err
}

// missing is the text for a request id that is not pending.
func missing(kind contracts.RequestType, bare bool) string {
	switch {
	case !bare:
		return "No pending server request found for request_id: "
	case kind == contracts.RequestApproval:
		return "No pending approval found for request_id: "
	case kind == contracts.RequestToolRetry:
		return "No pending tool retry request found for request_id: "
	}
	return "No pending client tool request found for request_id: "
}
