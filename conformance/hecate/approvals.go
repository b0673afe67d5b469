package hecate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// approvalLimit bounds how long an approval may wait that nobody decides.
const approvalLimit = 2 * time.Minute

// approvals judges decisions: E29 to E34, and the resources of section 7.
func (u *suite) approvals() []conformance.Scenario {
	return []conformance.Scenario{
		u.onPending("approval/approve", "E29", "A tool waits for its approval and starts after it", func(s *play, p *pending) {
			s.pause() // a tool that does not wait may start meanwhile
			p.decide("E29", "approve", http.StatusOK)
			p.awaitDecision("E29", "approved")
			for _, e := range p.events[:p.pos] {
				s.failIf(p.starts(e), "E29", "expected the tool to wait for the approval %q, got %s", p.id, e)
			}
			s.failIf(p.await("E29", "tool.invoked", p.starts) == nil, "E29", "expected the tool to start after the approval %q, but the run ended without", p.id)
		}),
		u.onPending("approval/reject", "E30", "A tool that was rejected is never invoked", func(s *play, p *pending) {
			p.decide("E30", "reject", http.StatusOK)
			p.awaitDecision("E30", "rejected")
			p.end("E30")
			for _, e := range p.events {
				s.failIf(p.starts(e), "E30", "expected the tool not to start after its rejection, got %s", e)
			}
		}),
		u.onPending("approval/second", "E31", "A second decision is refused with 409 and changes nothing", func(s *play, p *pending) {
			p.decide("E31", "approve", http.StatusOK)
			p.awaitDecision("E31", "approved")
			p.decide("E31", "reject", http.StatusConflict)
			p.resolvedOnce("E31")
		}),
		u.onPending("approval/race", "E31", "Of two decisions at once one is taken, and the other refused with 409", func(s *play, p *pending) {
			statuses := make(chan int, 2)
			for range cap(statuses) {
				go func() { // ends with its request
					a, err := p.post("approve")
					if err != nil {
						statuses <- 0
						return
					}
					statuses <- a.status
				}()
			}
			got := []int{<-statuses, <-statuses}
			slices.Sort(got)
			s.failIf(!slices.Equal(got, []int{http.StatusOK, http.StatusConflict}), "E31", "two decisions at once: expected the statuses 200 and 409, got %v", got)
			p.awaitDecision("E31", "approved")
			p.resolvedOnce("E31")
		}),
		u.onPending("approval/invalid", "E32", "An unknown decision is refused with 400, an unknown approval with 404", func(s *play, p *pending) {
			for _, body := range []string{`{"decision":"maybe"}`, `{}`, `{`} {
				s.refused("E32", http.StatusBadRequest, http.MethodPost, p.path()+"/resolve", []byte(body))
			}
			s.refused("E32", http.StatusNotFound, http.MethodPost, p.approvals()+"/conformance-unknown/resolve", []byte(`{"decision":"approve"}`))
			s.pause()
			p.update("E32")
			for _, e := range p.events { // others may come at any time
				s.failIf(p.decided(e) || p.starts(e), "E32", "expected decisions that were refused to change nothing, got %s", e)
			}
			p.decide("E32", "reject", http.StatusOK)
		}),
		u.onPending("approval/cancel", "E33", "Cancelling a run cancels its approval", func(s *play, p *pending) {
			s.cancelRun("E33", p.ref)
			p.awaitDecision("E33", "cancelled")
			end := p.end("E33")
			s.failIf(end.kind != "run.cancelled", "E33", "expected run.cancelled, got %s", end)
			p.decide("E33", "approve", http.StatusConflict)
			p.resolvedOnce("E33")
		}),
		slow(needs(u.onPending("approval/timeout", "E34", "An approval that nobody decides times out", func(s *play, p *pending) {
			e := p.await("E34", "approval.timed_out", p.decided)
			s.failIf(e == nil || e.kind != "approval.timed_out", "E34", "expected approval.timed_out after %s, got %v", s.config.ApprovalTimeout, e)
			p.decide("E34", "approve", http.StatusConflict)
			p.resolvedOnce("E34")
		}), func(c *conformance.Config) bool { return c.ApprovalTimeout > 0 }, "needs to know when the server gives up an approval"), approvalLimit),
		u.onPending("approval/resource", "7", "An approval can be listed and read, and shows its status", func(s *play, p *pending) {
			for _, status := range []string{"pending", "rejected"} {
				if status != "pending" {
					p.decide("7", "reject", http.StatusOK)
				}
				var all struct {
					Data []map[string]any `json:"data"`
				}
				a := s.call("7", http.MethodGet, p.approvals(), nil)
				s.failIf(a.status != http.StatusOK || json.Unmarshal(a.body, &all) != nil, "7", "%s: expected a list, got %d %s", a.what, a.status, short(a.body))
				at := slices.IndexFunc(all.Data, func(r map[string]any) bool { return r["id"] == p.id })
				s.failIf(at < 0, "7", "%s: expected the approval %q, got %s", a.what, p.id, short(a.body))
				a = s.call("7", http.MethodGet, p.path(), nil)
				one := map[string]any{}
				s.failIf(a.status != http.StatusOK || json.Unmarshal(a.body, &one) != nil, "7", "%s: expected the approval, got %d %s", a.what, a.status, short(a.body))
				if inner, wrapped := one["data"].(map[string]any); wrapped {
					one = inner
				}
				for _, r := range []map[string]any{all.Data[at], one} {
					s.failIf(r["id"] != p.id || r["task_id"] != p.task || r["run_id"] != p.ref.run || r["status"] != status, "7",
						"expected the approval to show its id, task_id, run_id and the status %s, got %s", status, strings.TrimSpace(fmt.Sprint(show(r))))
				}
			}
		}),
	}
}

// A pending is a run that waits for an approval.
type pending struct {
	*follower
	request *event
	id      string
}

// onPending returns a scenario that begins with a run that waits for an approval.
func (u *suite) onPending(name, rule, title string, judge func(*play, *pending)) conformance.Scenario {
	return u.scenario(name, rule, title, func(s *play) {
		f := s.follow(s.drive(ask))
		e := f.await(rule, "approval.requested", kind("approval.requested"))
		if e == nil {
			s.skip("the run asked for no approval; name a prompt that leads to one")
		}
		id := e.str("approval_id")
		s.failIf(id == "", rule, "expected approval.requested to have an approval_id, got %s", short(e.raw))
		judge(s, &pending{f, e, id})
	})
}

func (r ref) approvals() string { return "/hecate/v1/tasks/" + r.task + "/approvals" }

func (p *pending) path() string { return p.approvals() + "/" + p.id }

// post decides and returns the answer.
func (p *pending) post(decision string) (*answer, error) {
	return p.s.send(http.MethodPost, p.path()+"/resolve", []byte(`{"decision":"`+decision+`","note":"conformance"}`))
}

// decide posts a decision that must get a status.
func (p *pending) decide(rule, decision string, status int) {
	a, err := p.post(decision)
	p.s.failIf(err != nil, rule, "the decision %s: expected an answer, got: %v", decision, err)
	p.s.failIf(a.status != status, rule, "%s with the decision %s: expected %d, got %d %s", a.what, decision, status, a.status, short(a.body))
	if status != http.StatusOK {
		p.s.errorBody(rule, a)
	}
}

// decided accepts the events that end the approval.
func (p *pending) decided(e *event) bool {
	return kind("approval.resolved", "approval.timed_out")(e) && e.str("approval_id") == p.id
}

// awaitDecision waits for the event that ends the approval.
func (p *pending) awaitDecision(rule, decision string) {
	e := p.await(rule, "approval.resolved", p.decided)
	p.s.failIf(e == nil, rule, "expected approval.resolved with the decision %s, but the run ended without", decision)
	p.s.failIf(e.str("decision") != decision, rule, "expected the decision %s, got %s", decision, short(e.raw))
}

// resolvedOnce fails unless exactly one event ends the approval until the run ends. If the run goes
// on for longer than the patience, later events are not judged.
func (p *pending) resolvedOnce(rule string) {
	for limit := time.Now().Add(p.s.config.Patience); p.run.end() == nil && time.Now().Before(limit); p.s.pause() {
		p.update(rule)
	}
	n := len(p.of(p.decided))
	p.s.failIf(n != 1, rule, "expected one event that ends the approval %q, got %d", p.id, n)
}

// starts accepts the events that show that the tool of the approval was started.
func (p *pending) starts(e *event) bool {
	call := p.request.str("tool_call_id")
	return kind("tool.invoked", "tool.started")(e) && (e.str("tool_call_id") == call || call == "" && e.sequence > p.request.sequence)
}
