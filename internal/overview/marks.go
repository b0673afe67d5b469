package overview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// Update sets the title of a session, or whether it is archived. The holder of the
// lease may set the title too.
func (o *Overview) Update(key hub.Key, by contracts.Caller, u *contracts.SessionUpdate) (*contracts.SessionSummary, error) {
	r, err := o.editable(key, by, u.Archived == nil)
	if err != nil {
		return nil, err
	}
	return o.mark(r, func(m *marks) error {
		if !m.Deleted.IsZero() {
			return errDeleted
		}
		if u.Title != nil {
			m.Title = contracts.CleanTitle(*u.Title)
		}
		if u.Archived != nil {
			m.Archived = *u.Archived
		}
		return nil
	})
}

// Delete ends a session and removes it after Options.Undo, unless Restore comes
// before. Nobody can open the session meanwhile. Deleting it again changes nothing.
func (o *Overview) Delete(ctx context.Context, key hub.Key, by contracts.Caller) (*contracts.SessionSummary, error) {
	r, err := o.editable(key, by, false)
	if err != nil {
		return nil, err
	}
	sum, err := o.mark(r, func(m *marks) error {
		if m.Deleted.IsZero() {
			m.Deleted = time.Now()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	h := r.hub
	o.mu.Unlock()
	if h != nil {
		err = h.Suspend(context.WithoutCancel(ctx)) // a client that leaves does not stop it
	}
	return sum, err
}

// Restore undoes the deletion of a session that is not removed yet.
func (o *Overview) Restore(key hub.Key, by contracts.Caller) (*contracts.SessionSummary, error) {
	r, err := o.editable(key, by, false)
	if err != nil {
		return nil, err
	}
	return o.mark(r, func(m *marks) error { m.Deleted = time.Time{}; return nil })
}

// Deleted reports whether a session was deleted and is not removed yet.
func (o *Overview) Deleted(key hub.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.deleted[key]
}

// editable returns the row of a session that a client may change. holder says that the
// holder of the lease may.
func (o *Overview) editable(key hub.Key, by contracts.Caller, holder bool) (*row, error) {
	asked := contracts.Principal{Role: by.Role} // a request may limit itself by its header
	if err := cmp.Or(by.Principal.CheckRole(contracts.RoleController), asked.CheckRole(contracts.RoleController)); err != nil {
		return nil, err
	}
	if by.Principal.Confined() && !holder {
		return nil, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "a credential for one session does not allow this"}
	}
	r, err := o.find(key)
	if err != nil || !by.Principal.Confined() {
		return r, err
	}
	o.mu.Lock()
	h := r.hub
	o.mu.Unlock()
	if h == nil {
		return nil, errAtRest
	}
	return r, h.CheckHolder(by)
}

// mark changes the marks of a row with f. The change is on disk before anybody sees it.
func (o *Overview) mark(r *row, f func(*marks) error) (*contracts.SessionSummary, error) {
	o.saving.Lock()
	defer o.saving.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.rows[r.key]; now != nil { // r may have been removed meanwhile, and the session created again
		r = now
	}
	next := r.record
	if err := f(&next.Marks); err != nil {
		return nil, err
	}
	if next.Marks != r.Marks {
		o.mu.Unlock()
		err := o.write(r.key, next)
		o.mu.Lock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, hub.ErrUnknownSession
		case err != nil:
			o.opts.Log.Error("a change of a session is refused", "session", r.key.ID, "err", err)
			return nil, errUnstored
		}
		if o.rows[r.key] != r { // evicted meanwhile
			r = o.add(r.key, r.record)
		}
		o.change(r, func() { r.Marks = next.Marks })
		if delete(o.deleted, r.key); !r.Marks.Deleted.IsZero() {
			o.deleted[r.key] = true
		}
	}
	sum := o.summary(r)
	return &sum, nil
}

// errAtRest refuses what only the holder of the lease may do.
var errAtRest = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "nobody holds the lease of a session at rest"}

var errUnstored = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the change cannot be stored"}

// write stores a record. A record with marks is durable. The caller holds saving.
func (o *Overview) write(key hub.Key, rec record) error {
	rec.Questions = rec.Questions[:min(len(rec.Questions), maxStored)]
	text, err := json.Marshal(rec)
	if err == nil {
		err = o.opts.Store.Save(key, text, rec.Marks != marks{})
	}
	if err != nil {
		return fmt.Errorf("save a summary: %w", err)
	}
	return nil
}

// save saves the changed rows and removes the deleted sessions that are due.
func (o *Overview) save() {
	ticks := time.NewTicker(saveEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			o.saveRows(&o.unsaved)
			o.removeDue(time.Now())
		case <-o.hurry:
			o.saveRows(&o.asked)
		case <-o.ctx.Done():
			return
		}
	}
}

// saveEvery is the time between two writes of one summary. After a kill the lists show the
// stored summaries until the sessions open. So a summary is written at once when a question
// is asked or ends: otherwise nobody would learn of the question.
const saveEvery = 2 * time.Second

// saveRows saves the rows of a set, which is then empty.
func (o *Overview) saveRows(set *map[hub.Key]bool) {
	o.mu.Lock()
	keys := *set
	*set = map[hub.Key]bool{}
	for key := range keys {
		delete(o.unsaved, key)
		delete(o.asked, key)
	}
	o.mu.Unlock()
	for key := range keys {
		o.saveRow(key)
	}
}

func (o *Overview) saveRow(key hub.Key) {
	o.saving.Lock()
	defer o.saving.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.rows[key]
	if r == nil {
		return
	}
	rec := r.record
	o.mu.Unlock()
	err := o.write(key, rec)
	o.mu.Lock()
	switch {
	case errors.Is(err, fs.ErrNotExist): // an operator has removed it
		if o.rows[key] == r && r.hub == nil && !o.opening[key] {
			o.gone(r)
		}
	case err != nil:
		if !o.failing {
			o.opts.Log.Error("the summaries of sessions are not saved", "session", key.ID, "err", err)
		}
		o.failing = true
		o.unsaved[key] = true // try again
	default:
		o.failing = false
	}
}

// removeDue removes the deleted sessions whose undo period has ended.
func (o *Overview) removeDue(now time.Time) {
	var due []*row
	o.mu.Lock()
	for key := range o.deleted {
		if r := o.rows[key]; !now.Before(r.Marks.Deleted.Add(o.opts.Undo)) {
			due = append(due, r)
		}
	}
	o.mu.Unlock()
	for _, r := range due {
		o.remove(r)
	}
}

// remove removes a deleted session unless it was restored or has not ended yet.
func (o *Overview) remove(r *row) {
	o.saving.Lock() // until it is removed, so that nobody restores it
	defer o.saving.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.deleted[r.key] || r.hub != nil || o.opening[r.key] {
		return
	}
	o.mu.Unlock()
	err := o.opts.Store.Remove(r.key)
	o.mu.Lock()
	if err != nil { // the next round tries again
		o.opts.Log.Error("remove a deleted session", "session", r.key.ID, "err", err)
		return
	}
	o.opts.Log.Info("a deleted session was removed", "session", r.key.ID)
	o.gone(r)
}
