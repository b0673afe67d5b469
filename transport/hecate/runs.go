package hecate

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// listTasks lists the sessions, so that a consumer can find their ids.
func (v *Server) listTasks(c *call) (any, error) {
	type task struct {
		ID      string `json:"id"`
		Chat    string `json:"session_id"`
		Session string `json:"maestro_session_id"`
		Runs    int    `json:"run_count"`
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	all := []task{}
	for _, s := range c.log.index.Sessions {
		if s.Task != "" && (c.by.SessionID == "" || c.by.SessionID == s.ID) {
			all = append(all, task{s.Task, s.Chat, s.ID, len(s.Runs)})
		}
	}
	slices.SortFunc(all, func(a, b task) int { return strings.Compare(a.ID, b.ID) })
	return list{"tasks", all}, nil
}

// A runResource describes a run.
type runResource struct {
	ID     string `json:"id"`
	Task   string `json:"task_id"`
	Status string `json:"status"` // running, completed, failed or cancelled
	Began  string `json:"started_at"`
	First  uint64 `json:"first_available_sequence"`
	Last   uint64 `json:"last_sequence"`
}

var runStatuses = map[string]string{"": "running", "run.finished": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}

func (r *run) resource() runResource {
	return runResource{r.ID, r.Task, runStatuses[r.Terminal], r.Began.UTC().Format(time.RFC3339Nano), r.firstSequence(), r.Next - 1}
}

// listRuns lists the newest runs of a task, the newest first.
func (v *Server) listRuns(c *call) (any, error) {
	limit, err := c.limit(maxPage)
	if err != nil {
		return nil, err
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	runs := []runResource{}
	for _, id := range newest(s.Runs, limit) {
		runs = append(runs, c.log.index.Runs[id].resource())
	}
	return list{"task_runs", runs}, nil
}

// cancel interrupts a run and waits for its end.
func (v *Server) cancel(c *call) (any, error) {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := c.body(&body, true); err != nil {
		return nil, err
	}
	c.log.mu.Lock()
	s, r, err := c.run()
	over := err == nil && r.Terminal != ""
	c.log.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if over {
		return nil, conflict("the run has ended")
	}
	src, err := v.source(c, s)
	if err != nil {
		return nil, err
	}
	if err := c.log.stopRun(s, src, r.ID, body.Reason); err != nil {
		return nil, err
	}
	if err := c.await(func() bool { return r.Terminal != "" }); err != nil {
		return nil, err
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return list{"task_run", r.resource()}, nil
}

// stopRun interrupts a run of the session if it is the open one.
func (l *scopeLog) stopRun(s *session, src Source, runID, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.revive(l.opts); err != nil {
		return err
	}
	if s.live.RunID() != runID {
		return conflict("the run has ended")
	}
	stopped, err := src.Stop(s.seen.Load())
	if err == nil && !stopped {
		err = conflict("the run has ended")
	}
	if err == nil {
		s.live.Stopping("operator", reason)
	}
	return err
}

// source opens a session for a client that may control it.
func (v *Server) source(c *call, s *session) (Source, error) {
	if c.by.Role == contracts.RoleViewer {
		return nil, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential allows viewing only"}
	}
	return v.opts.Find(c.r.Context(), c.by, s.ID)
}

// newest returns at most n of the ids, the newest first.
func newest(ids []string, n int) []string {
	list := slices.Clone(ids[max(len(ids)-n, 0):])
	slices.Reverse(list)
	return list
}
