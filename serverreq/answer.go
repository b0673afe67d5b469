package serverreq

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Answer ends the request that cmd answers. cmd is a *ToolResponse, a
// *ClientToolResult or a *ServerRequestResponse. from is the connection that
// answers. bare selects the error texts of stdio, which name the kind of request.
//
// A request whose deadline has passed can be answered until Expire ends it. The
// legacy commands have no request type and name a call. If their id matches a
// request id and a call id, the request id is used.
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
			return Resolution{}, t.notFound(notFoundText(c.RequestType, bare), c.RequestID)
		}
		if actual := t.rows[i].Request.RequestType; actual != c.RequestType {
			return Resolution{}, refuse(contracts.CodeRequestTypeMismatch, c.RequestID,
				"Pending request "+c.RequestID+" is "+string(actual)+", not "+string(c.RequestType))
		}
		answer = *c
	default:
		return Resolution{}, refuse(contracts.CodeBadRequest, "", cmd.CommandType()+" answers no server request")
	}
	return t.endOne(i, answerEnding(t.rows[i].Request.RequestType, &answer), from, now), nil
}

// findLegacy returns the row that a legacy answer to one of kinds names, or -1.
func (t *Table) findLegacy(id string, kinds ...contracts.RequestType) int {
	if i := t.find(id); i >= 0 && slices.Contains(kinds, t.rows[i].Request.RequestType) {
		return i
	}
	return t.findCall(id, kinds...)
}

// notFound returns the refusal of an answer to a request that is not pending. kinds
// are the types that a legacy answer may name; without kinds, id is a request id.
func (t *Table) notFound(text, id string, kinds ...contracts.RequestType) *contracts.Error {
	err := refuse(contracts.CodeRequestNotFound, id, text+id)
	err.Metadata = t.recent.describe(id, kinds)
	return err
}

// notFoundText returns the error text for a request id that is not pending.
func notFoundText(kind contracts.RequestType, bare bool) string {
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
