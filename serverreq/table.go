package serverreq

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Table holds the pending requests of one session. It is not safe for concurrent
// use. Its zero value is empty and ready to use.
//
// Among pending requests an id is unique. So is a call id among approvals, among
// retries, and among requests answered with content: a legacy answer names only the
// call, and the runtime state lists pending requests by call.
type Table struct {
	limit  int                     // of rows; zero means defaultMax
	rows   []contracts.KeptRequest // in the order opened
	recent history
}

const defaultMax = 256 // pending requests

// A Resolution is the end of a request: Event is what clients see, and Content what
// the agent gets.
type Resolution struct {
	Request *contracts.ServerRequest
	Event   contracts.ServerRequestResolved
	// Content is the result of a client tool, elicitation or user input. If no client
	// answered it, the only block is the reason. For an approval, Content is additional
	// content of the answer.
	Content []contracts.ContentBlock
	From    string // connection that answered; empty if none did
	At      time.Time
	Digest  string // of the request; see [Table.Bind]
}

// New returns an empty table for at most limit pending requests; zero means 256. It
// refuses further ones with the code overloaded.
func New(limit int) *Table { return &Table{limit: limit} }

// Open adds a request that expires at deadline; a zero deadline means never. req
// must not change afterwards. Open refuses a request without ids, of an unknown
// type, or whose id or call is pending with bad_request, and any request with
// overloaded if the table is full.
func (t *Table) Open(req *contracts.ServerRequest, opened, deadline time.Time) error {
	if err := t.check(req); err != nil {
		return err
	}
	t.rows = append(t.rows, contracts.KeptRequest{Request: req, Opened: opened, Deadline: deadline})
	return nil
}

// Restore adds the rows of an earlier process, in their order. It stops at the
// first row that Open would refuse.
func (t *Table) Restore(rows []contracts.KeptRequest) error {
	for _, row := range rows {
		if row.Request == nil {
			return refuse(contracts.CodeBadRequest, "", "pending request is missing")
		}
		if err := t.check(row.Request); err != nil {
			return err
		}
		t.rows = append(t.rows, row)
	}
	return nil
}

// Bind sets the digest of a pending request and the approvals that it needs; zero
// means that one answer decides.
func (t *Table) Bind(id, digest string, needed int) {
	if i := t.findRow(id); i >= 0 {
		t.rows[i].Digest, t.rows[i].Needed = digest, needed
	}
}

// TypeOf returns the type of a pending request, or "".
func (t *Table) TypeOf(id string) contracts.RequestType {
	if i := t.findRow(id); i >= 0 {
		return t.rows[i].Request.RequestType
	}
	return ""
}

// Len returns how many requests are pending.
func (t *Table) Len() int { return len(t.rows) }

// Pending returns the pending requests in order of opening. The caller owns the
// slice.
func (t *Table) Pending() []contracts.KeptRequest { return slices.Clone(t.rows) }

// Next returns the earliest deadline, when Expire is due.
func (t *Table) Next() (time.Time, bool) {
	var next time.Time
	for i := range t.rows {
		d := t.rows[i].Deadline
		if !d.IsZero() && (next.IsZero() || d.Before(next)) {
			next = d
		}
	}
	return next, !next.IsZero()
}

// Expire ends the requests whose deadline has passed, earliest first, with the
// default verdict of their type (R62).
func (t *Table) Expire(now time.Time) []Resolution {
	due := t.removeRows(func(r contracts.KeptRequest) bool { return !r.Deadline.IsZero() && !now.Before(r.Deadline) })
	slices.SortStableFunc(due, func(a, b contracts.KeptRequest) int { return a.Deadline.Compare(b.Deadline) })
	return t.endAll(due, func(of contracts.RequestType) contracts.Outcome { return kinds[of].expired }, now)
}

// CancelAll cancels every request, by type in canonical order, and oldest first
// within a type (R66, R71).
func (t *Table) CancelAll(reason string, now time.Time) []Resolution {
	return t.CancelIf(func(string) bool { return true }, reason, now)
}

// CancelIf cancels the requests whose ids match, in the order of CancelAll.
func (t *Table) CancelIf(match func(id string) bool, reason string, now time.Time) []Resolution {
	rows := t.removeRows(func(r contracts.KeptRequest) bool { return match(r.Request.RequestID) })
	class := contracts.RequestTypes()
	slices.SortStableFunc(rows, func(a, b contracts.KeptRequest) int {
		return cmp.Compare(slices.Index(class, a.Request.RequestType), slices.Index(class, b.Request.RequestType))
	})
	return t.endAll(rows, func(contracts.RequestType) contracts.Outcome {
		return end(contracts.VerdictCancelled, contracts.ResolvedByRuntime, reason)
	}, now)
}

// PolicyAll decides the pending approvals by mode, oldest first (R65). In prompt
// mode they stay pending. Mode auto does not replace the votes that a request needs.
func (t *Table) PolicyAll(mode contracts.ApprovalMode, now time.Time) []Resolution {
	out, decided := Policy(mode)
	if !decided {
		return nil
	}
	decides := func(r contracts.KeptRequest) bool {
		return r.Request.RequestType == contracts.RequestApproval && (r.Needed < 2 || out.Verdict != contracts.VerdictApproved)
	}
	return t.endAll(t.removeRows(decides), func(contracts.RequestType) contracts.Outcome { return out }, now)
}

// Cancel cancels one request and reports whether it was pending.
func (t *Table) Cancel(id, reason string, now time.Time) (Resolution, bool) {
	return t.Withdraw(id, contracts.VerdictCancelled, reason, contracts.ResolvedByRuntime, now)
}

// Withdraw ends one request with the given verdict. It returns false and does
// nothing if the request is not pending or may not end this way; see [Legal].
func (t *Table) Withdraw(id string, verdict contracts.Verdict, reason string, by contracts.Resolver, now time.Time) (Resolution, bool) {
	i := t.findRow(id)
	if i < 0 || !Legal(t.rows[i].Request.RequestType, verdict, by) {
		return Resolution{}, false
	}
	return t.endOne(i, end(verdict, by, reason), "", now), true
}

func (t *Table) check(req *contracts.ServerRequest) error {
	id, kind := req.RequestID, req.RequestType
	switch {
	case id == "" || req.CallID == "":
		return refuse(contracts.CodeBadRequest, id, "server request has no id")
	case !slices.Contains(contracts.RequestTypes(), kind):
		return refuse(contracts.CodeBadRequest, id, "unknown server request type: "+string(kind))
	case t.findRow(id) >= 0:
		return refuse(contracts.CodeBadRequest, id, "server request already pending: "+id)
	case t.findCall(req.CallID, legacyTypes(kind)...) >= 0:
		return refuse(contracts.CodeBadRequest, id, "server request already pending for call: "+req.CallID)
	case len(t.rows) >= cmp.Or(t.limit, defaultMax):
		return refuse(contracts.CodeOverloaded, id, "too many pending server requests")
	}
	return nil
}

// findRow returns the row of a request id, or -1.
func (t *Table) findRow(id string) int {
	return slices.IndexFunc(t.rows, func(r contracts.KeptRequest) bool { return r.Request.RequestID == id })
}

// findCall returns the oldest row of a call with one of the types, or -1.
func (t *Table) findCall(call string, kinds ...contracts.RequestType) int {
	return slices.IndexFunc(t.rows, func(r contracts.KeptRequest) bool {
		return r.Request.CallID == call && slices.Contains(kinds, r.Request.RequestType)
	})
}

// removeRows removes the rows that match and returns them in order of opening.
func (t *Table) removeRows(match func(contracts.KeptRequest) bool) (removed []contracts.KeptRequest) {
	t.rows = slices.DeleteFunc(t.rows, func(r contracts.KeptRequest) bool {
		if match(r) {
			removed = append(removed, r)
			return true
		}
		return false
	})
	return removed
}

// endAll resolves removed rows, with the ending that how returns for their type.
func (t *Table) endAll(
	rows []contracts.KeptRequest, how func(contracts.RequestType) contracts.Outcome, now time.Time,
) (all []Resolution) {
	for _, row := range rows {
		all = append(all, t.resolve(row, how(row.Request.RequestType), "", now))
	}
	return all
}

// endOne ends the row at i.
func (t *Table) endOne(i int, e contracts.Outcome, from string, now time.Time) Resolution {
	row := t.rows[i]
	t.rows = slices.Delete(t.rows, i, i+1)
	return t.resolve(row, e, from, now)
}

func refuse(code contracts.Code, id, message string) *contracts.Error {
	return &contracts.Error{Code: code, Message: message, Type: contracts.ErrorTool, RequestID: id}
}
