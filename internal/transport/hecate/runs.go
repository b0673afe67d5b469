package hecate

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
)

// listTasks lists the sessions in the order of their ids, so that a consumer can find them.
func (v *Server) listTasks(c *call) (any, error) {
	type task struct {
		ID      string `json:"id"`
		Chat    string `json:"session_id"`
		Session string `json:"maestro_session_id"`
		Runs    int    `json:"run_count"`
		Unread  bool   `json:"unread,omitempty"` // its history is read when it is opened
	}
	limit, err := c.limit(maxPage)
	if err != nil {
		return nil, err
	}
	after := c.r.URL.Query().Get("after")
	if after != "" && !wire.ValidID("task", after) {
		return nil, badRequest("after is the id of a task")
	}
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	var ids []string
	for id, s := range c.log.index.tasks {
		if id > after && (c.by.SessionID == "" || c.by.SessionID == s.ID) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	page := list{Object: "tasks", More: len(ids) > limit}
	all := []task{}
	for _, id := range ids[:min(len(ids), limit)] {
		s := c.log.index.tasks[id]
		all = append(all, task{id, s.Chat, s.ID, len(s.Runs), s.Epoch == ""})
		page.Next = id
	}
	page.Data = all
	return page, nil
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
	return list{Object: "task_runs", Data: runs, More: len(s.Runs) > limit}, nil
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
	src, err := v.source(c, s, contracts.RoleController)
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
	return list{Object: "task_run", Data: r.resource()}, nil
}

// stopRun interrupts a run of the session if it is the open one.
func (l *scopeLog) stopRun(s *session, src Source, runID, reason string) error {
	return l.revived(s, func() error {
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
	})
}

// source opens a session for a client whose credential allows the role.
func (v *Server) source(c *call, s *session, role contracts.Role) (Source, error) {
	if err := c.by.CheckRole(role); err != nil {
		return nil, err
	}
	return v.opts.Find(c.r.Context(), c.by, s.ID)
}

// newest returns at most n of the ids, the newest first.
func newest(ids []string, n int) []string {
	list := slices.Clone(ids[max(len(ids)-n, 0):])
	slices.Reverse(list)
	return list
}
