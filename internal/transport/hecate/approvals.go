package hecate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
)

// An approval is the resource of one approval. It consists of what the log says.
type approval struct {
	ID          string   `json:"id"`
	TaskID      string   `json:"task_id"`
	RunID       string   `json:"run_id"`
	Kind        string   `json:"kind"`
	Status      string   `json:"status"` // pending, approved, rejected or cancelled
	Reason      string   `json:"reason,omitempty"`
	Summary     []string `json:"action_summary,omitempty"`
	Incomplete  bool     `json:"action_summary_incomplete,omitempty"`
	ToolCallID  string   `json:"tool_call_id,omitempty"`
	RequestedBy string   `json:"requested_by,omitempty"`
	ResolvedBy  string   `json:"resolved_by,omitempty"`
	Note        string   `json:"resolution_note,omitempty"`
	CreatedAt   string   `json:"created_at,omitempty"`
	ResolvedAt  string   `json:"resolved_at,omitempty"`
}

const pending = "pending"

// Bounds of a summary.
const (
	summaryLines     = 16
	summaryLineBytes = 512
	summaryBytes     = 4 << 10
)

// summarize cuts a text to the bounds of a summary.
func (a *approval) summarize(text string) {
	size := 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		cut := contracts.SplitText(line, summaryLineBytes)
		if len(cut) == 0 {
			continue
		}
		if len(a.Summary) == summaryLines || size+len(cut[0]) > summaryBytes {
			a.Incomplete = true
			return
		}
		a.Incomplete = a.Incomplete || len(cut) > 1
		a.Summary = append(a.Summary, cut[0])
		size += len(cut[0])
	}
}

// applyApproval updates the approvals from an event of the log.
func (s *session) applyApproval(r *run, ev *wire.Event) {
	var data struct {
		ID       string `json:"approval_id"`
		Call     string `json:"tool_call_id"`
		Kind     string `json:"kind"`
		Summary  string `json:"summary"`
		Policy   string `json:"policy_reason"`
		Decision string `json:"decision"`
		By       string `json:"by"`
		Comment  string `json:"comment"`
	}
	if json.Unmarshal(ev.Data, &data) != nil {
		return
	}
	at := ev.OccurredAt.UTC().Format(time.RFC3339Nano)
	if ev.Type == "approval.requested" {
		a := &approval{
			ID: data.ID, TaskID: r.Task, RunID: r.ID, Kind: data.Kind, Status: pending, Reason: data.Policy,
			ToolCallID: data.Call, RequestedBy: "agent", CreatedAt: at,
		}
		a.summarize(data.Summary)
		s.Approvals = append(s.Approvals, a)
		s.Approvals = s.Approvals[max(len(s.Approvals)-maxApprovals, 0):]
		return
	}
	a := s.approval(data.ID)
	if a == nil || a.Status != pending {
		return
	}
	a.Status, a.ResolvedBy, a.Note, a.ResolvedAt = data.Decision, data.By, data.Comment, at
	if ev.Type == "approval.timed_out" {
		a.Status, a.ResolvedBy, a.Note = "cancelled", "runtime", "timed out"
	}
}

// approval returns the newest approval with an id, or nil.
func (s *session) approval(id string) *approval {
	for i := len(s.Approvals) - 1; i >= 0; i-- {
		if s.Approvals[i].ID == id {
			return s.Approvals[i]
		}
	}
	return nil
}

// listApprovals lists the newest approvals of a task, the oldest first.
func (v *Server) listApprovals(c *call) (any, error) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	all := []approval{}
	for _, a := range s.Approvals {
		all = append(all, *a)
	}
	return list{Object: "task_approvals", Data: all}, nil
}

func (v *Server) showApproval(c *call) (any, error) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	_, a, err := c.approval()
	if err != nil {
		return nil, err
	}
	return list{Object: "task_approval", Data: *a}, nil
}

// approval returns the approval in the path and its session. The caller holds
// scopeLog.mu.
func (c *call) approval() (*session, *approval, error) {
	s, err := c.session()
	if err != nil {
		return nil, nil, err
	}
	a := s.approval(c.r.PathValue("approval"))
	if a == nil {
		return nil, nil, notFound("unknown approval")
	}
	return s, a, nil
}

var errDecided = conflict("the approval is not pending any more")

// pendingApproval returns the approval in the path, which must be pending, and its session.
func (c *call) pendingApproval() (*session, *approval, error) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	s, a, err := c.approval()
	if err == nil && a.Status != pending {
		err = errDecided
	}
	return s, a, err
}

var decisions = map[string]bool{"approve": true, "approved": true, "reject": false, "rejected": false, "deny": false, "denied": false}

// resolve decides an approval. It answers when the decision is in the log.
func (v *Server) resolve(c *call) (any, error) {
	var body struct {
		Decision string `json:"decision"`
		Note     string `json:"note"`
		Digest   string `json:"digest"`
	}
	if err := c.body(&body, false); err != nil {
		return nil, err
	}
	approved, known := decisions[strings.ToLower(body.Decision)]
	if !known {
		return nil, badRequest("decision is approve or reject")
	}
	s, a, err := c.pendingApproval()
	if err != nil {
		return nil, err
	}
	src, err := v.source(c, s, contracts.RoleApprover)
	if err != nil {
		return nil, err
	}
	cursor, ended, err := src.Decide(a.ID, approved, body.Note, body.Digest, c.by)
	if errors.Is(err, errDecided) {
		return nil, errDecided
	}
	if err == nil {
		err = c.await(func() bool { return a.Status != pending || s.seen.Load() >= cursor })
	}
	if err != nil {
		return nil, err
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	shown := *a
	if ended && shown.Status == pending { // a run that goes on with the answer will tell it
		shown.Status = map[bool]string{true: "approved", false: "rejected"}[approved]
	}
	return list{Object: "task_approval", Data: shown}, nil
}

// decisionPatience bounds how long a request waits until what it did is in the log.
const decisionPatience = 10 * time.Second

// await waits until the log shows what the request did. The answer comes without it after
// decisionPatience, because the session has done it.
func (c *call) await(done func() bool) error {
	ctx, stop := context.WithTimeout(c.r.Context(), decisionPatience)
	defer stop()
	err := c.log.await(ctx, done)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
