package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/lease"
)

// A note is a hidden entry with state that events do not carry and the next process
// needs. At most one field is set beside From, Send, Answer and Audit. An empty note gives
// a private message its cursor.
type note struct {
	From     string                `json:"from,omitempty"`    // connection that caused it
	Send     *string               `json:"send,omitempty"`    // id of the accepted ws.send
	Answer   uint64                `json:"answer,omitempty"`  // cursor of its answer
	Command  json.RawMessage       `json:"command,omitempty"` // accepted command that changes state
	Attach   *savedConnection      `json:"attach,omitempty"`  // new or changed controller connection
	Gone     string                `json:"gone,omitempty"`    // id of a destroyed controller connection
	Lease    *savedLease           `json:"lease,omitempty"`
	Deadline *requestDeadline      `json:"deadline,omitempty"`
	Resumed  string                `json:"resumed,omitempty"` // id of an open call that belongs to the run
	RunEnded bool                  `json:"run_ended,omitempty"`
	Failed   bool                  `json:"failed,omitempty"` // with RunEnded: the run failed
	Audit    *savedAudit           `json:"audit,omitempty"`
	Queued   *contracts.KeptPrompt `json:"queued,omitempty"` // added to the queue, or edited
	Order    *queueOrder           `json:"order,omitempty"`
}

// A savedConnection is a controller connection, stored so that its client can use
// its id and lease after a restart of the server. Viewer connections are not
// stored.
type savedConnection struct {
	ID        string              `json:"id"`
	Subs      []string            `json:"subscriptions,omitempty"`
	Token     tokenHash           `json:"token_sha256"`
	Principal contracts.Principal `json:"principal"`
	Terms     handshake.Terms     `json:"terms"`
	Socket    bool                `json:"socket,omitempty"` // it had a WebSocket
	Since     time.Time           `json:"since,omitzero"`
	Sends     []savedSend         `json:"sends,omitempty"` // oldest first; in checkpoints only
}

type savedLease struct {
	Generation uint64 `json:"generation"`
	Holder     string `json:"holder,omitempty"`
}

type requestDeadline struct {
	ID string    `json:"id"`
	At time.Time `json:"at,omitzero"` // zero: never
}

// A savedSend is the answer to an accepted ws.send.
type savedSend struct {
	ID     string `json:"id"`
	Cursor uint64 `json:"cursor"`
}

// checkpointStart is how a checkpoint begins.
const checkpointStart = `{"snapshot":`

// A checkpoint is the whole state. Restore does not need the entries before it.
type checkpoint struct {
	Snapshot    json.RawMessage         `json:"snapshot"` // encoded by package contracts, which decodes it
	Mode        contracts.ApprovalMode  `json:"approval_mode"`
	Requests    []contracts.KeptRequest `json:"requests"`
	Lease       savedLease              `json:"lease"`
	Connections []*savedConnection      `json:"connections"`
	Run         *progress               `json:"run,omitempty"`
	Origin      *uint64                 `json:"origin,omitempty"` // lifecycle.origin
	Queue       *contracts.KeptQueue    `json:"queue,omitempty"`
	Digest      Digest                  `json:"digest,omitzero"`
	Audit       auditHead               `json:"audit"`
}

func saveConnection(c *connection) *savedConnection {
	subs := make([]string, len(c.subs))
	for i, sub := range c.subs {
		subs[i] = sub.id
	}
	return &savedConnection{
		ID: c.id, Subs: subs, Token: c.token, Principal: c.principal, Terms: c.terms, Socket: c.hadSocket, Since: c.since,
	}
}

// noteLease writes the lease to the journal and publishes shown, unless it is nil.
func (tx *tx) noteLease(shown contracts.Event) {
	saved := tx.clients.saveLease()
	record := AuditRecord{What: AuditLease, Generation: saved.Generation}
	tx.noteWith(note{Lease: &saved, Audit: tx.audit(record, senderOf(tx.clients.conns[saved.Holder]))}, shown)
}

func (cl *clients) saveLease() savedLease {
	holder, _ := cl.lease.Holder()
	return savedLease{Generation: cl.lease.Generation(), Holder: holder}
}

// noteCommand writes an accepted command to the journal and folds it into the
// state, so that the change survives the process. It publishes shown, unless it is nil.
func (tx *tx) noteCommand(cmd contracts.Command, n note, shown contracts.Event) {
	text, err := contracts.EncodeCommand(cmd)
	if err != nil {
		tx.logger.Error("encode command", "type", cmd.CommandType(), "err", err)
		return
	}
	n.Command = text
	tx.noteWith(n, shown)
	tx.log.events.ApplyCommand(cmd)
}

// checkpointDue reports whether a checkpoint is due, so that retention can drop
// older entries. A state that is larger than Options.CheckpointBytes is written
// less often, so that checkpoints are at most half of the written bytes.
func (tx *tx) checkpointDue() bool {
	return tx.log.sinceCheckpoint >= max(tx.opts.CheckpointBytes, tx.log.checkpointSize) ||
		tx.opts.CheckpointAge > 0 && tx.now.Sub(tx.log.checkpointedAt) >= tx.opts.CheckpointAge
}

// checkpoint adds the whole state to the transaction's entries. If that fails, the
// older entries still have everything, and the hub tries again when the next
// checkpoint is due.
func (tx *tx) checkpoint() {
	defer func() { tx.log.sinceCheckpoint, tx.log.checkpointedAt = 0, tx.now }()
	snapshot, err := contracts.EncodeSnapshot(tx.log.events.Snapshot(tx.head()), tx.log.checkpointSize)
	if err != nil {
		tx.logger.Error("encode checkpoint", "err", err)
		return
	}
	cp := checkpoint{
		Mode: tx.work.mode, Requests: tx.work.table.Pending(),
		Lease: tx.clients.saveLease(), Origin: tx.life.origin, Audit: tx.log.audit, Digest: tx.log.digest,
	}
	for _, id := range slices.Sorted(maps.Keys(tx.clients.conns)) {
		if c := tx.clients.conns[id]; c.role == contracts.RoleController && !c.bare {
			saved := saveConnection(c)
			saved.Sends = c.sends.accepted()
			cp.Connections = append(cp.Connections, saved)
		}
	}
	if len(tx.work.queue.Prompts) > 0 {
		cp.Queue = &tx.work.queue
	}
	if tx.work.run != nil {
		cp.Run = new(tx.work.run.progress)
		cp.Run.Calls = maps.Clone(cp.Run.Calls)
		for _, a := range tx.work.toResume {
			cp.Run.Calls[a.request.CallID] = a.request.Tool
		}
	}
	body, err := json.Marshal(cp)
	// The snapshot replaces its null here. json.Marshal would read and copy it again.
	rest, ok := bytes.CutPrefix(body, []byte(checkpointStart+"null"))
	body = slices.Concat([]byte(checkpointStart), snapshot, rest)
	if !ok || len(body) > journal.MaxBody {
		tx.logger.Error("checkpoint skipped", "bytes", len(body), "err", err)
		return
	}
	tx.append(journal.Entry{Kind: journal.Checkpoint, Body: body})
	tx.log.checkpointSize = len(body)
}

// restore folds the newest checkpoint and the entries after it.
func (tx *tx) restore() error {
	from, err := journal.RestorePoint(tx.opts.Store)
	if err != nil {
		return err
	}
	if from == 0 {
		if tx.Hub.restored { // the cursors begin after lost ones, which needs a checkpoint
			tx.log.sinceCheckpoint = tx.opts.CheckpointBytes
		}
		return nil
	}
	var bad error
	err = tx.opts.Store.Read(from-1, func(e journal.Entry) bool {
		if e.Kind == journal.Checkpoint {
			tx.log.checkpointSize, tx.log.checkpointedAt = len(e.Body), time.UnixMilli(e.Time)
		} else {
			tx.log.sinceCheckpoint += len(e.Body)
		}
		if bad = tx.replay(e); bad != nil {
			bad = fmt.Errorf("entry %d: %w", e.Cursor, bad)
		}
		return bad == nil
	})
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(tx.clients.conns)) { // their clients have the usual time to reconnect
		c := tx.clients.conns[id]
		c.seen = tx.now
		tx.clients.scheduleCredentialEnd(c.principal.Expires)
		if len(c.subs) == 0 {
			tx.startIdleTimer(c)
		}
		for _, sub := range c.subs {
			sub.state = subLost
			tx.startTimer(sub)
		}
	}
	if holder := tx.clients.restoredHolder; tx.clients.conns[holder] != nil {
		tx.clients.lease.Grant(holder, tx.now)
	}
	return nil
}

func (tx *tx) replay(e journal.Entry) error {
	switch e.Kind {
	case journal.Message, journal.Note, journal.Joint:
		return tx.replayParts(e)
	case journal.Checkpoint:
		var cp checkpoint
		if err := json.Unmarshal(e.Body, &cp); err != nil {
			return err
		}
		return tx.replayCheckpoint(&cp)
	case journal.Snapshot: // redundant, except for the final snapshot of a drain
		snap, err := (&contracts.Decoder{}).Snapshot(e.Body)
		tx.life.wasDrained = err == nil && !snap.State.IsReady
	}
	return nil
}

// replayParts replays a note, and the event beside it.
func (tx *tx) replayParts(e journal.Entry) error {
	if hidden := e.Parts().Hidden; len(hidden) > 0 { // a transient entry leaves a note without a body
		var n note
		if err := json.Unmarshal(hidden, &n); err != nil {
			return err
		}
		if err := tx.replayNote(n); err != nil {
			return err
		}
	}
	seen, ok := e.Seen(0)
	if !ok {
		return nil
	}
	ev, err := (&contracts.Decoder{}).Event(seen.Body)
	if seen.Class == classPeople && errors.Is(err, contracts.ErrUnknownType) {
		return nil // an event that only an earlier version had
	}
	if err != nil {
		return err
	}
	tx.life.wasDrained = false
	return tx.replayEvent(ev, time.UnixMilli(e.Time))
}

func (tx *tx) replayEvent(ev contracts.Event, at time.Time) error {
	tx.log.events.Apply(ev)
	tx.log.digest.apply(ev, at)
	if tx.work.unfinished != nil {
		tx.work.unfinished.track(ev, at)
	}
	switch ev := ev.(type) {
	case *contracts.ServerRequest:
		err := tx.work.table.Open(ev, at, tx.work.deadlines[ev.RequestID])
		tx.work.bindShown(ev.RequestID)
		return err
	case *contracts.PromptAccepted:
		tx.work.takePrompt(ev.PromptID)
	case *contracts.ServerRequestResolved:
		tx.work.table.Withdraw(ev.RequestID, ev.Resolution, ev.Reason, ev.ResolvedBy, at)
		delete(tx.work.deadlines, ev.RequestID)
	case *contracts.RequestShown:
		tx.work.lastShown = ev
		tx.work.bindShown(ev.RequestID) // sessions of an earlier version have the request first
	case *contracts.RequestVoted:
		if ev.Approved {
			_, err := tx.work.table.Vote(ev.RequestID, ev.Author.Principal)
			return err
		}
	}
	return nil
}

// bindShown binds a request to the digest that was shown with it, if that is the last.
func (w *work) bindShown(id string) {
	if s := w.lastShown; s != nil && s.RequestID == id {
		w.table.Bind(id, s.Digest, int(s.VotesNeeded))
	}
}

func (tx *tx) replayNote(n note) error {
	if c := tx.clients.conns[n.From]; c != nil && n.Send != nil {
		c.sends.put(*n.Send, n.Answer, nil)
	}
	tx.work.applyQueue(n)
	if n.Audit != nil {
		var r AuditRecord
		if err := json.Unmarshal(n.Audit.Record, &r); err != nil {
			return err
		}
		tx.log.audit = auditHead{N: r.N, Hash: n.Audit.Hash}
	}
	switch {
	case n.Command != nil:
		cmd, err := (&contracts.Decoder{}).Command(n.Command)
		if err != nil {
			return err
		}
		tx.log.events.ApplyCommand(cmd)
		switch cmd := cmd.(type) {
		case *contracts.Prompt:
			tx.work.unfinished = newRun()
		case *contracts.Init:
			if cmd.ApprovalMode != "" {
				tx.work.mode = cmd.ApprovalMode
			}
			tx.work.lastInit = cmd
		}
	case n.Attach != nil:
		tx.clients.restoreConnection(n.Attach)
	case n.Gone != "":
		if c := tx.clients.conns[n.Gone]; c != nil {
			for _, sub := range c.subs {
				delete(tx.clients.subs, sub.id)
			}
			tx.clients.removeConnection(c)
		}
	case n.Lease != nil:
		tx.replayLease(*n.Lease)
	case n.Deadline != nil:
		tx.work.deadlines[n.Deadline.ID] = n.Deadline.At
	case n.Resumed != "":
		if tx.work.unfinished == nil {
			tx.work.unfinished = newRun()
		}
		tx.work.unfinished.Calls[n.Resumed] = "" // the note does not have the tool
	case n.RunEnded:
		tx.work.unfinished = nil
		tx.log.digest.endRun(n.Failed)
	}
	return nil
}

func (tx *tx) replayLease(l savedLease) {
	tx.clients.lease, tx.clients.restoredHolder = lease.New(tx.opts.LeaseTTL, l.Generation), l.Holder
}

func (tx *tx) replayCheckpoint(cp *checkpoint) error {
	snapshot, err := (&contracts.Decoder{}).Snapshot(cp.Snapshot)
	if err != nil {
		return err
	}
	tx.log.events.Restore(snapshot)
	tx.log.digest = cp.Digest
	tx.work.mode = cp.Mode
	if snapshot.LastInit != nil {
		if cmd, err := (&contracts.Decoder{}).Command(snapshot.LastInit); err == nil {
			tx.work.lastInit, _ = cmd.(*contracts.Init)
		}
	}
	if err := tx.work.table.Restore(cp.Requests); err != nil {
		return err
	}
	tx.replayLease(cp.Lease)
	tx.life.origin, tx.log.audit = cp.Origin, cp.Audit
	if tx.work.queue = (contracts.KeptQueue{}); cp.Queue != nil {
		tx.work.queue = *cp.Queue
	}
	for _, c := range cp.Connections {
		tx.clients.restoreConnection(c)
	}
	if cp.Run != nil {
		tx.work.unfinished = newRun()
		maps.Copy(tx.work.unfinished.Calls, cp.Run.Calls)
		cp.Run.Calls = tx.work.unfinished.Calls
		tx.work.unfinished.progress = *cp.Run
	}
	return nil
}

func (cl *clients) restoreConnection(from *savedConnection) {
	c := cl.conns[from.ID]
	if c == nil {
		c = &connection{id: from.ID, principal: from.Principal, role: from.Terms.Role}
		cl.addConnection(c)
	}
	c.token, c.terms, c.role, c.hadSocket, c.since = from.Token, from.Terms, from.Terms.Role, from.Socket, from.Since
	for _, sub := range c.subs {
		delete(cl.subs, sub.id)
	}
	c.subs = nil
	for _, id := range from.Subs {
		cl.addSubscription(c, &subscription{id: id, conn: c, optOuts: c.terms.OptOuts})
	}
	for _, a := range from.Sends {
		c.sends.put(a.ID, a.Cursor, nil)
	}
}

// closeLeftovers ends what the previous process left: utilities, responses, tools,
// and with Options.NoReturn connections. Questions stay open, because they can
// still be answered (D8).
func (tx *tx) closeLeftovers() {
	clear(tx.work.deadlines)
	tx.work.lastShown = nil
	tx.closeUtilities()
	if tx.opts.NoReturn {
		for _, c := range tx.clients.conns {
			tx.destroy(c, contracts.LeaseExpired)
		}
	}
	if tx.clients.holder() != nil {
		tx.noteLease(nil) // restore raised the generation
	}
	if tx.work.lastInit != nil {
		init := tx.work.lastInit
		tx.then(func(h *Hub) { h.configureAgent(init) })
	}
	if tx.work.unfinished == nil {
		return
	}
	tx.work.run, tx.work.unfinished = tx.work.unfinished, nil
	goesOn := tx.canResumeRun(tx.work.run)
	var broken error
	if !goesOn {
		broken = &contracts.Error{
			Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTransient,
			Message: "The server restarted during the run",
		}
	}
	tx.endCalls(tx.work.run)
	tx.endResponses(tx.work.run, broken)
	if goesOn {
		tx.publish(&contracts.Status{Message: "The server restarted: the run goes on once its question is answered"})
	}
	tx.publish(rawEvent("agent_end", nil))
	tx.noteRunEnd(broken != nil)
}

// canResumeRun reports whether a run of an earlier process can continue: every open
// call has an open question, and the agent is a Resumer.
func (tx *tx) canResumeRun(r *run) bool {
	if _, resumes := tx.opts.Agent.(Resumer); !resumes || tx.info.Forgets || len(r.Calls) == 0 {
		return false
	}
	waiting := tx.work.waitingCalls()
	for id := range r.Calls {
		if !waiting[id] {
			return false
		}
	}
	return true
}

// closeUtilities publishes the end of the commands and watches of an earlier
// process.
func (tx *tx) closeUtilities() {
	gone := func(what string) string { return "Server restarted while " + what + " was still running" }
	left := tx.log.events.Snapshot(0).State
	for _, c := range left.ActiveUtilityCommands {
		tx.publish(&contracts.UtilityCommandExited{CommandID: c.CommandID, Reason: gone("utility command")})
	}
	for _, w := range left.ActiveFileWatches {
		tx.publish(&contracts.UtilityFileWatchStopped{WatchID: w.WatchID, Reason: gone("file watch")})
	}
}

// adopt sets the state of a session that was drained elsewhere. The first entries
// that are written include a checkpoint.
func (tx *tx) adopt(from *contracts.Restored) error {
	tx.log.events.Restore(from.Snapshot)
	tx.life.origin, tx.work.lastInit, tx.work.queue = &from.Cursor, from.LastInit, from.Queue
	tx.log.events.Apply(tx.work.shownQueue())
	tx.log.sinceCheckpoint = tx.opts.CheckpointBytes
	if from.LastInit != nil && from.LastInit.ApprovalMode != "" {
		tx.work.mode = from.LastInit.ApprovalMode
	}
	if !from.Ready {
		return nil
	}
	if err := tx.work.table.Restore(from.Requests); err != nil {
		return err
	}
	for _, row := range from.Requests {
		tx.showAdopted(row)
	}
	return nil
}
