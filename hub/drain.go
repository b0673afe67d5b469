package hub

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// last_status after a drain.
const (
	statusDrained     = "Drained"
	statusInterrupted = "Drain interrupted before runtime flush completed"
)

// drainedStreamTime is how long streams stay open after the final snapshot.
const drainedStreamTime = 5 * time.Second

// A Flusher is an agent that has data of its own to write to disk when the session
// is drained.
type Flusher interface {
	Flush(ctx context.Context) error
}

// Quiesce stops the session's work for a drain. It refuses new attachments and
// commands, publishes a status, stops what runs, flushes to disk and freezes the
// cursor, all within ctx. Heartbeats, disconnects and streams continue.
//
// Questions that the agent can act on later stay open and are in the result. Other
// questions are cancelled; with Options.DrainCancels all are (D8).
//
// Quiesce may be called again. After a drain that was concluded as drained it
// returns the same result, otherwise it tries to flush again. Calls must not
// overlap.
func (h *Hub) Quiesce(ctx context.Context, reason string) (q contracts.Quiesced) {
	done := false
	h.update(func(tx *tx) {
		switch {
		case tx.life.quiesced != nil && tx.life.status != nil && tx.life.status.LastStatus == statusDrained:
			q, done = *tx.life.quiesced, true
		case tx.life.phase >= phaseClosing: // a client has ended the session: nothing to flush
			q, done = contracts.Quiesced{Cursor: tx.head()}, true
			q.Snapshot = tx.finalSnapshot(q)
		case tx.life.phase == phaseOpen:
			tx.beginDrain(reason)
		}
	})
	if done {
		return q
	}
	failure := h.awaitQuiet(ctx)
	if failure == nil {
		failure = h.flushAll(ctx)
	}
	h.update(func(tx *tx) { q = tx.freeze(failure) })
	return q
}

// beginDrain refuses further attachments and commands and begins to stop what runs.
func (tx *tx) beginDrain(reason string) {
	st := tx.log.events.Snapshot(0).State
	tx.life.counted = contracts.Quiesced{
		ActiveTools: len(st.ActiveTools), TrackedTools: len(st.TrackedTools), PendingRequests: tx.work.table.Len(),
	}
	tx.life.counted.Active = tx.head() > tx.readyCursor || tx.restored || tx.life.origin != nil
	status := &contracts.Status{Message: "Hosted runner is draining: " + cmp.Or(reason, "platform_requested_drain")}
	record := AuditRecord{What: AuditDrain, Reason: abridge.Bytes(reason, 500)}
	tx.publishWith(status, status, note{Audit: tx.audit(record, nil)})
	tx.life.phase = phaseDraining
	why := stopDrained
	if tx.keepsRequests() {
		why = stopDrainedKeeping
	} else {
		tx.resolve(tx.work.table.CancelAll(why.requests, tx.now)...)
	}
	tx.stopRun(why)
}

// keepsRequests reports whether questions stay open when the session moves to
// another process: the agent must be able to act on their answers there.
func (h *Hub) keepsRequests() bool {
	_, can := h.opts.Agent.(Resumer)
	return can && !h.opts.DrainCancels
}

// awaitQuiet waits until the run and the utilities have ended. The error names what
// did not stop.
func (h *Hub) awaitQuiet(ctx context.Context) error {
	r := h.activeRun()
	if err := h.opts.Utilities.Stop(ctx, stopDrained.utilities); err != nil {
		return markTimeout(ctx, err)
	}
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return markTimeout(ctx, errors.New("the agent did not stop"))
	}
}

func (h *Hub) flushAll(ctx context.Context) error {
	if f, ok := h.opts.Agent.(Flusher); ok {
		if err := f.Flush(ctx); err != nil {
			return markTimeout(ctx, err)
		}
	}
	return h.opts.Store.Sync()
}

// markTimeout prefixes err with drain_timeout if ctx has ended.
func markTimeout(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("drain_timeout: " + err.Error())
	}
	return err
}

// freeze fixes the cursor of the final snapshot. Nothing is published afterwards,
// so no client sees a greater cursor (A100).
func (tx *tx) freeze(failure error) contracts.Quiesced {
	if failure == nil {
		failure = tx.life.failed
	}
	if !tx.life.frozen && tx.checkpointDue() {
		tx.checkpoint() // commit adds no checkpoint once frozen
	}
	tx.life.frozen = true
	q := tx.life.counted
	q.Cursor = tx.head() + 1
	if failure != nil {
		q.FlushError = failure.Error()
	}
	q.Requests, q.Queue = tx.work.table.Pending(), tx.work.queue
	q.Snapshot = tx.finalSnapshot(q)
	tx.life.quiesced = &q
	return q
}

// finalSnapshot returns the state without clients and with nothing running.
func (tx *tx) finalSnapshot(q contracts.Quiesced) *contracts.Snapshot {
	snap := tx.log.events.Snapshot(q.Cursor)
	snap.ProtocolVersion, snap.SessionID = contracts.ProtocolVersion, tx.opts.SessionID
	st := &snap.State
	st.ConnectionCount, st.SubscriberCount, st.Connections = 0, 0, []contracts.ConnectionState{}
	st.ClientProtocolVersion, st.ClientInfo, st.Capabilities, st.OptOutNotifications, st.ConnectionRole = "", nil, nil, nil, ""
	st.ControllerConnectionID, st.ControllerSubscriptionID = contracts.Null(), contracts.Null()
	if st.People != nil {
		st.People.Controller = nil
	}
	if tx.opts.Profile == contracts.ProfilePublic { // its schema of a manifest is closed
		st.People = nil
	}
	st.CurrentResponse, st.ActiveTools = nil, []contracts.ActiveTool{}
	st.ActiveUtilityCommands, st.ActiveFileWatches = []contracts.ActiveCommand{}, []contracts.ActiveWatch{}
	st.TrackedTools = slices.DeleteFunc(st.TrackedTools, func(tool contracts.PendingEntry) bool { // keep those whose question stays open
		return !slices.ContainsFunc(q.Requests, func(k contracts.KeptRequest) bool { return k.Request.CallID == tool.CallID })
	})
	st.IsResponding, st.IsReady = false, q.FlushError == "" && q.Active
	status := statusDrained
	if q.FlushError != "" {
		status = statusInterrupted
	}
	st.LastStatus = &status
	return snap
}

// Conclude publishes the final state of a quiesced session under the frozen cursor.
// If drained, the streams end drainedStreamTime later. drained is false if the
// drain was interrupted.
func (h *Hub) Conclude(drained bool) {
	h.update(func(tx *tx) {
		if tx.life.quiesced == nil || tx.life.phase == phaseEnded || tx.life.status != nil && tx.life.status.LastStatus == statusDrained {
			return
		}
		tx.life.status = &contracts.Restored{LastStatus: statusInterrupted}
		if drained {
			tx.life.status.LastStatus = statusDrained
		}
		tx.life.frozen = false
		tx.appendSnapshot(false) // stored, so that a later process on this store sets wasDrained
		tx.life.frozen = true
		if drained {
			tx.life.endAt = tx.now.Add(drainedStreamTime)
		}
	})
}
