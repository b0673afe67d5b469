package hecate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	maxRequests = 16  // open questions of a run, and of runs that ended; the oldest are forgotten
	maxBrief    = 500 // bytes of the summary of a question
)

// A request is an open question of the agent.
type request struct {
	ID       string                           `json:"id"` // empty once the decision was shown
	Kind     contracts.RequestType            `json:"kind"`
	CallID   string                           `json:"call_id"`
	Tool     string                           `json:"tool"`
	Asked    time.Time                        `json:"asked"`
	Decision *contracts.ServerRequestResolved `json:"decision,omitempty"` // of a kept request, not yet shown
}

func (s *Session) serverRequest(e *contracts.ServerRequest) {
	c := s.propose(e.CallID, e.Tool, e.Args)
	r := request{ID: e.RequestID, Kind: e.RequestType, CallID: e.CallID, Tool: c.Tool, Asked: s.At}
	if slices.ContainsFunc(s.Run.Requests, func(other request) bool { return other.ID == r.ID }) {
		return
	}
	s.Run.Requests = bounded(append(s.Run.Requests, r))
	summary := s.clean(cmp.Or(e.ActionDescription, e.SummaryLabel, e.DisplayName, c.Tool), maxBrief)
	if e.RequestType != contracts.RequestApproval {
		s.draft("maestro.request_pending", object{
			{"request_id", r.ID}, {"request_type", string(r.Kind)}, {"tool_call_id", r.CallID}, {"tool_name", r.Tool}, {"summary", summary},
		}.add("reason", e.Reason))
		return
	}
	s.draft("approval.requested", object{
		{"approval_id", r.ID}, {"tool_call_id", r.CallID}, {"kind", "agent_loop_tool_call"},
		{"summary", summary}, {"policy_reason", e.Reason}, {"status", "pending"},
	})
}

func bounded(list []request) []request { return list[max(len(list)-maxRequests, 0):] }

// resolved shows how a question ended. The decision of a kept question is kept until the
// agent acts on it, or ends a run that the agent will not continue.
func (s *Session) resolved(e *contracts.ServerRequestResolved) {
	has := func(r request) bool { return r.ID == e.RequestID && r.Decision == nil }
	if s.Run != nil {
		if i := slices.IndexFunc(s.Run.Requests, has); i >= 0 {
			r := s.Run.Requests[i]
			s.Run.Requests = slices.Delete(s.Run.Requests, i, i+1)
			s.decided(r, e)
			if e.Resolution == contracts.VerdictCancelled && s.onlyAsked() {
				if s.Run.Stop == nil {
					s.Run.Stop = &stop{runtime, s.clean(e.Reason, maxBrief)}
				}
				s.finish()
			}
			return
		}
	}
	i := slices.IndexFunc(s.Kept, has)
	switch {
	case i < 0:
	case s.Run != nil:
		s.decided(s.Kept[i], e)
		s.Kept[i].ID = ""
	default:
		decision := *e
		decision.Reason = s.clean(e.Reason, maxBrief).Text
		s.Kept[i].Decision = &decision
		if e.Resolution == contracts.VerdictCancelled { // no run goes on with it
			s.begin(true)
			s.decideKept()
			s.takeKept(s.Kept[i].CallID)
			s.Run.Stop = &stop{runtime, plain(decision.Reason)}
			s.finish()
		}
	}
}

// onlyAsked reports whether the open run was about questions that outlived their prompt,
// and all are decided: no agent works on it.
func (s *Session) onlyAsked() bool {
	invoked := func(c *call) bool { return c.Invoked }
	return !s.Working && s.Run.Turn == nil && len(s.Run.Requests) == 0 && !slices.ContainsFunc(s.Run.Calls, invoked)
}

// decided shows the decision on a question.
func (s *Session) decided(r request, e *contracts.ServerRequestResolved) {
	by := string(e.ResolvedBy)
	if e.ResolvedBy == contracts.ResolvedByUser {
		by = operator
	}
	if r.Kind != contracts.RequestApproval {
		s.draft("maestro.request_resolved", object{
			{"request_id", r.ID}, {"request_type", string(r.Kind)}, {"tool_call_id", r.CallID},
			{"resolution", string(e.Resolution)}, {"by", by}, {"comment", e.Reason},
		})
		return
	}
	if c := s.Run.call(r.CallID); c != nil {
		c.Refused = e.Resolution != contracts.VerdictApproved
	}
	if e.ResolvedBy != contracts.ResolvedByUser && strings.HasSuffix(e.Reason, "timed out") {
		s.draft("approval.timed_out", object{{"approval_id", r.ID}, {"after_seconds", int64(s.At.Sub(r.Asked).Seconds())}})
		return
	}
	decision := "cancelled"
	switch e.Resolution {
	case contracts.VerdictApproved:
		decision = "approved"
	case contracts.VerdictDenied:
		decision = "rejected"
	}
	s.draft("approval.resolved", object{{"approval_id", r.ID}, {"decision", decision}, {"by", by}, {"comment", e.Reason}})
}

// keep remembers the open questions of a run that has ended.
func (s *Session) keep(open []request) { s.Kept = bounded(append(s.Kept, open...)) }

// takeKept forgets a kept question of a call and returns it, or a zero one if there is none.
func (s *Session) takeKept(callID string) (r request) {
	if i := slices.IndexFunc(s.Kept, func(r request) bool { return r.CallID == callID }); i >= 0 {
		r = s.Kept[i]
		s.Kept = slices.Delete(s.Kept, i, i+1)
	}
	return r
}

// decideKept shows the decisions on kept questions in the run that begins, and forgets
// them but for the name of the tool, which an invocation needs.
func (s *Session) decideKept() {
	for i := range s.Kept {
		if e := s.Kept[i].Decision; e != nil {
			s.decided(s.Kept[i], e)
			s.Kept[i].Decision, s.Kept[i].ID = nil, ""
		}
	}
}

// lateEnd begins a run for the end of a call whose question outlived its run. It returns
// false if there is no such call.
func (s *Session) lateEnd(callID string) bool {
	if !slices.ContainsFunc(s.Kept, func(r request) bool { return r.CallID == callID && r.Decision != nil }) {
		return false
	}
	s.work()
	s.takeKept(callID)
	s.Run.Late = true
	return true
}
