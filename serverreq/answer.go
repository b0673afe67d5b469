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
	i, answer, err := t.find(cmd, bare)
	if err != nil {
		return Resolution{}, err
	}
	return t.endOne(i, answerEnding(t.rows[i].Request.RequestType, &answer), from, now), nil
}

// Target returns the request that Answer would end and the answer in its newest form,
// or the refusal of Answer. It changes nothing.
func (t *Table) Target(cmd contracts.Command, bare bool) (row contracts.KeptRequest, answer contracts.ServerRequestResponse, err error) {
	i, answer, err := t.find(cmd, bare)
	if err != nil {
		return contracts.KeptRequest{}, answer, err
	}
	return t.rows[i], answer, nil
}

// Vote counts an approval of the request id by a principal and returns the number of
// votes. The request stays pending, also if it has all votes that it needs: the caller
// then ends it with Answer. Vote refuses a second vote of a principal with
// already_voted, and an unknown id with request_not_found.
func (t *Table) Vote(id, principal string) (votes int, err error) {
	i := t.findRow(id)
	switch {
	case i < 0:
		return 0, t.notFound(notFoundText(contracts.RequestApproval, false), id)
	case slices.Contains(t.rows[i].Votes, principal):
		return len(t.rows[i].Votes), refuse(contracts.CodeAlreadyVoted, id, "this principal has approved "+id+" already")
	}
	t.rows[i].Votes = append(slices.Clip(t.rows[i].Votes), principal)
	return len(t.rows[i].Votes), nil
}

// find returns the row that cmd answers, and the answer in its newest form.
func (t *Table) find(cmd contracts.Command, bare bool) (i int, answer contracts.ServerRequestResponse, err error) {
	switch c := cmd.(type) {
	case *contracts.ToolResponse:
		if i = t.findLegacy(c.CallID, contracts.RequestApproval); i < 0 {
			return i, answer, t.notFound("No pending approval found for call_id: ", c.CallID, contracts.RequestApproval)
		}
		answer = contracts.ServerRequestResponse{Approved: &c.Approved, Result: c.Result}
	case *contracts.ClientToolResult:
		if i = t.findLegacy(c.CallID, contentTypes...); i < 0 {
			return i, answer, t.notFound("No pending client tool request found for call_id: ", c.CallID, contentTypes...)
		}
		answer = contracts.ServerRequestResponse{Content: c.Content, IsError: c.IsError}
	case *contracts.ServerRequestResponse:
		if i = t.findRow(c.RequestID); i < 0 {
			return i, answer, t.notFound(notFoundText(c.RequestType, bare), c.RequestID)
		}
		if actual := t.rows[i].Request.RequestType; actual != c.RequestType {
			return i, answer, refuse(contracts.CodeRequestTypeMismatch, c.RequestID,
				"Pending request "+c.RequestID+" is "+string(actual)+", not "+string(c.RequestType))
		}
		answer = *c
	default:
		return -1, answer, refuse(contracts.CodeBadRequest, "", cmd.CommandType()+" answers no server request")
	}
	return i, answer, nil
}

// findLegacy returns the row that a legacy answer to one of kinds names, or -1.
func (t *Table) findLegacy(id string, kinds ...contracts.RequestType) int {
	if i := t.findRow(id); i >= 0 && slices.Contains(kinds, t.rows[i].Request.RequestType) {
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
