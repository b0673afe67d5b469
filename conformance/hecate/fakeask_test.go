package hecate

import (
	"strings"
	"time"
)

func (f *fake) ask(r *fakeRun) {
	f.mu.Lock()
	a := &fakeApproval{id: "appr-" + r.id, status: "pending", decided: make(chan string, 1)}
	r.approval = a
	f.append(r, "assistant.tool_call_proposed", map[string]any{"turn_index": 1, "tool_call_id": "call-1", "tool_name": "bash", "input": map[string]any{}})
	request := map[string]any{"approval_id": a.id, "tool_call_id": "call-1", "kind": "agent_loop_tool_call"}
	if f.fault == otherWays {
		delete(request, "tool_call_id")
	}
	f.append(r, "approval.requested", request)
	f.mu.Unlock()
	if f.fault == "eager" {
		f.tool(r, "call-1", nil)
	}
	var status string
	select {
	case status = <-a.decided:
	case <-r.cancelled:
		status = "cancelled"
	case <-f.closed:
		return
	case <-time.After(f.approvalTime()):
		status = "timed_out"
	}
	f.mu.Lock()
	a.status = status
	f.mu.Unlock()
	f.afterDecision(r, a, status)
}

// approvalTime is long unless the test is about it.
func (f *fake) approvalTime() time.Duration {
	if strings.HasPrefix(f.fault, "timeout") {
		return fakeTimeout
	}
	return time.Minute
}

func (f *fake) afterDecision(r *fakeRun, a *fakeApproval, status string) {
	if status == "timed_out" && f.fault != "timeout-resolves" {
		f.says(r, "approval.timed_out", map[string]any{"approval_id": a.id, "after_seconds": 1})
	} else if status != "cancelled" || f.fault != "orphan" {
		decision := status
		if f.fault == "unknown-decision" {
			decision = "allowed"
		}
		f.says(r, "approval.resolved", map[string]any{"approval_id": a.id, "decision": decision, "by": "operator", "comment": ""})
		if f.fault == "resolved-twice" {
			f.says(r, "approval.resolved", map[string]any{"approval_id": a.id, "decision": "rejected", "by": "operator", "comment": ""})
		}
	}
	if status == "approved" && f.fault != "eager" && f.fault != "never-starts" || f.fault == "runs-anyway" {
		f.tool(r, "call-1", [][]byte{[]byte("x")})
	}
	if status == "cancelled" && f.fault != "cancel-finishes" {
		f.says(r, "run.cancelled", map[string]any{"by": "operator", "reason": "conformance"})
		return
	}
	f.finish(r)
}
