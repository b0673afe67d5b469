package hub_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// plan returns a command, how it should be answered and, if it is accepted,
// what it does.
func (w *world) plan(d deed, id string) (text string, want contracts.Code, effect func()) {
	want = w.mayDrive(id)
	switch d.Do {
	case "prompt", "again":
		if want == "" && w.running {
			want = contracts.CodeRuntimeBusy
		}
		return `{"type":"prompt","content":"go"}`, want, func() {
			w.running = true
			w.prompters = append(w.prompters, id)
		}
	case "interrupt":
		return `{"type":"` + []string{"interrupt", "cancel"}[d.How%2] + `"}`, want, w.interrupt
	case "init":
		mode := []contracts.ApprovalMode{contracts.ApprovalPrompt, contracts.ApprovalAuto, contracts.ApprovalFail}[d.How%3]
		return fmt.Sprintf(`{"type":"init","approval_mode":%q}`, mode), want, func() { w.setMode(mode) }
	}
	return w.planAnswer(d, id, want)
}

// planAnswer answers a question rightly, with a wrong type or id, or too late.
func (w *world) planAnswer(d deed, by string, want contracts.Code) (string, contracts.Code, func()) {
	if len(w.pending) == 0 || d.How == 0 {
		id := "none"
		for past := range w.resolved { // one that was answered before, if there is
			id = past
		}
		if want == "" {
			want = contracts.CodeRequestNotFound
		}
		return fmt.Sprintf(`{"type":"server_request_response","request_type":"approval","request_id":%q,"approved":true}`, id), want, nil
	}
	q := w.pending[d.Whom%len(w.pending)]
	kind, id := q.req.RequestType, q.req.RequestID
	if d.How == 1 {
		other := contracts.RequestApproval
		if kind == other {
			other = contracts.RequestUserInput
		}
		if want == "" {
			want = contracts.CodeRequestTypeMismatch
		}
		return fmt.Sprintf(`{"type":"server_request_response","request_type":%q,"request_id":%q}`, other, id), want, nil
	}
	yes := d.How%2 == 0
	verdict := map[bool]contracts.Verdict{true: contracts.VerdictAnswered, false: contracts.VerdictFailed}[yes]
	text := fmt.Sprintf(`{"type":"server_request_response","request_type":%q,"request_id":%q,"content":[],"is_error":%t}`, kind, id, !yes)
	switch kind {
	case contracts.RequestApproval:
		verdict = map[bool]contracts.Verdict{true: contracts.VerdictApproved, false: contracts.VerdictDenied}[yes]
		text = fmt.Sprintf(`{"type":"server_request_response","request_type":%q,"request_id":%q,"approved":%t}`, kind, id, yes)
		if d.How > 3 {
			text = fmt.Sprintf(`{"type":"tool_response","call_id":%q,"approved":%t}`, q.req.CallID, yes)
		}
	case contracts.RequestToolRetry:
		verdict = map[bool]contracts.Verdict{true: contracts.VerdictRetried, false: contracts.VerdictAborted}[yes]
		text = fmt.Sprintf(`{"type":"server_request_response","request_type":%q,"request_id":%q}`, kind, id)
		if yes {
			text = fmt.Sprintf(`{"type":"server_request_response","request_type":%q,"request_id":%q,"decision_action":"retry"}`, kind, id)
		}
	case contracts.RequestClientTool:
		if yes {
			verdict = contracts.VerdictCompleted
		}
		if d.How > 3 {
			text = fmt.Sprintf(`{"type":"client_tool_result","call_id":%q,"content":[],"is_error":%t}`, q.req.CallID, !yes)
		}
	}
	c := w.conns[by]
	principal := cmp.Or(c.guest, c.member)
	if want == "" && verdict == contracts.VerdictApproved {
		want, _ = q.approve(principal)
	}
	return text, want, func() { w.answer(q, verdict, principal, by) }
}

// steer sends a frame about the lease.
func (w *world) steer(d deed, m *member) error {
	c := w.conns[m.id]
	other := w.members[d.Whom]
	whom := "conn_nobody"
	if other != nil && other.id != "" {
		whom = other.id
	}
	asks := w.conns[whom] != nil && w.conns[whom].asks > 0 && w.conns[whom].attached()
	want, frame, effect := contracts.Code(""), "", func() {}
	switch d.Do {
	case "take":
		frame, effect = `{"type":"ws.take_control"}`, func() {
			if w.holder != m.id {
				w.grant(m.id)
			}
		}
	case "release":
		frame, effect = `{"type":"ws.release_control"}`, w.free
	case "ask control":
		w.pass(time.Millisecond) // so that no two ask at once
		frame, effect = `{"type":"ws.ask_control"}`, func() {
			switch w.holder {
			case m.id:
			case "":
				w.grant(m.id)
			default:
				w.turn++
				c.asks = w.turn
			}
		}
	case "grant":
		frame, effect = fmt.Sprintf(`{"type":"ws.grant_control","connection_id":%q}`, whom), func() { w.grant(whom) }
	case "deny":
		frame, effect = fmt.Sprintf(`{"type":"ws.deny_control","connection_id":%q}`, whom), func() {
			w.conns[whom].asks = 0
			other.denied = w.conns[whom].attached()
		}
	}
	answers := d.Do == "grant" || d.Do == "deny"
	switch {
	case c.role == contracts.RoleViewer:
		want = contracts.CodeAccessDenied
		c.denials = append(c.denials, w.now)
	case (answers || d.Do == "release") && w.holder != "" && w.holder != m.id:
		want = contracts.CodeControllerLeaseHeld
	case d.Do == "release" && w.holder == "": // it is free already
	case answers && !asks:
		want = contracts.CodeRequestNotFound
	default:
		effect()
	}
	if err := w.answered(m, frame, want); err != nil {
		return err
	}
	if c.tooMany() {
		w.detach(m.id, "")
	}
	return nil
}
