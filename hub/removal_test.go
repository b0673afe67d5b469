package hub_test

import (
	"context"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// doDrain drains the session, holds that against the model, and goes on with the
// next start of the same runner or in another.
func (w *world) doDrain(d deed) error {
	waiting := len(w.pending)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q := w.Quiesce(ctx, "moving")
	if q.FlushError != "" || q.PendingRequests != waiting {
		return fmt.Errorf("quiesce: got %+v, want it done with %d questions", q, waiting)
	}
	w.model.drain(w.resumes && !w.setting.cancels)
	if err := w.check(w.holder); err != nil {
		return fmt.Errorf("drained: %w", err)
	}
	if err := w.refusedAll(); err != nil {
		return err
	}
	if q.Cursor != w.Cursor()+1 || len(q.Requests) != len(w.pending) {
		return fmt.Errorf("quiesce: got %+v at %d, want the next cursor and %d questions", q, w.Cursor(), len(w.pending))
	}
	w.Conclude(true)
	if err := w.settle(); err != nil {
		return err
	}
	for _, f := range w.everybody() {
		st := f.state.Snapshot(f.cursor).State
		if f.cursor != q.Cursor || st.IsReady || *st.LastStatus != "Drained" {
			return fmt.Errorf("final snapshot: got cursor %d, %+v, want it drained at %d", f.cursor, st, q.Cursor)
		}
	}
	if d.How < 3 {
		return w.restart(false)
	}
	return w.move(q)
}

// everybody returns the followers that are attached.
func (w *world) everybody() (list []*follower) {
	for _, m := range w.members {
		if m != nil && !m.ended {
			list = append(list, m.follower)
		}
	}
	for _, g := range w.guests {
		for _, f := range g.streams {
			if !f.ended {
				list = append(list, f)
			}
		}
	}
	return list
}

// refusedAll returns an error unless nobody can do anything.
func (w *world) refusedAll() error {
	for _, g := range w.guests {
		_, err := w.Send([]byte(`{"type":"init"}`), "", g.by)
		if err := w.ends(err, contracts.CodeRuntimeNotReady, nil); err != nil {
			return err
		}
		_, _, err = w.Connect(&contracts.AttachRequest{}, g.by)
		if err := w.ends(err, contracts.CodeRuntimeNotReady, nil); err != nil {
			return err
		}
	}
	for _, m := range w.members {
		if m == nil || m.ended {
			continue
		}
		if err := w.answered(m, `{"type":"init"}`, contracts.CodeRuntimeNotReady); err != nil {
			return err
		}
	}
	return nil
}

// move goes on in another runner, which has nothing but what was drained.
func (w *world) move(q contracts.Quiesced) (err error) {
	if err := w.Suspend(context.Background()); err != nil {
		return err
	}
	if err := w.retire(w.agent); err != nil {
		return err
	}
	if w.past, err = w.events(); err != nil {
		return err
	}
	for i, m := range w.members {
		if m == nil {
			continue
		}
		m.peer.Close()
		if err := m.read(); err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
		w.members[i] = nil
	}
	for _, g := range w.guests {
		if err := g.cutOff(false); err != nil {
			return err
		}
		g.places = map[string]*place{}
	}
	w.closeOffice()
	w.desk = &desk{}
	synctest.Wait()
	w.model.move()
	w.grants, w.newest = 0, 0 // a lease of its own
	w.store, w.origin, w.start, w.moments = journal.NewMemory(journal.MemoryOptions{}), &q, nil, nil
	if err := w.open(); err != nil {
		return err
	}
	if w.Cursor() != q.Cursor {
		return fmt.Errorf("restored: got cursor %d, want %d", w.Cursor(), q.Cursor)
	}
	w.start = w.Snapshot()
	w.ledger.start = w.start
	return nil
}
