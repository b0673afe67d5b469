package hub

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/journal"
	"github.com/seed-028515a8/maestro/lease"
	"github.com/seed-028515a8/maestro/serverreq"
)

// A note is a hidden entry: what a later process needs to know and events do
// not say. At most one of the fields beside From, Send and Answer is set; an empty note
// only gives a private message its cursor.
type note struct {
	From     string           `json:"from,omitempty"`    // the connection that caused it
	Send     *string          `json:"send,omitempty"`    // the ws.send that was accepted
	Answer   uint64           `json:"answer,omitempty"`  // the cursor it was answered with
	Command  json.RawMessage  `json:"command,omitempty"` // an accepted command that changes state
	Attach   *saved           `json:"attach,omitempty"`
	Gone     string           `json:"gone,omitempty"`
	Lease    *savedLease      `json:"lease,omitempty"`
	Deadline *requestDeadline `json:"deadline,omitempty"`
	Resumed  string           `json:"resumed,omitempty"` // a call with whose answer a run begins
	RunEnded bool             `json:"run_ended,omitempty"`
}

// saved is a controller connection, kept so that its client finds its id and
// its lease again after a restart of the server. Viewers have nothing to lose.
type saved struct {
	ID        string              `json:"id"`
	Subs      []string            `json:"subscriptions,omitempty"`
	Token     string              `json:"token_sha256"`
	Principal contracts.Principal `json:"principal"`
	Terms     handshake.Terms     `json:"terms"`
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

type savedRun struct {
	Response string            `json:"response,omitempty"`
	Started  time.Time         `json:"started,omitzero"` // when the response opened
	First    time.Time         `json:"first,omitzero"`   // when its first chunk came
	Ended    int               `json:"ended,omitempty"`
	Calls    map[string]string `json:"calls,omitempty"` // tools by call id
}

// savedSend is the answer to an accepted ws.send.
type savedSend struct {
	ID     string `json:"id"`
	Cursor uint64 `json:"cursor"`
}

// A checkpoint is everything restore needs, so that older entries may go.
type checkpoint struct {
	Snapshot    json.RawMessage        `json:"snapshot"` // by contracts, which alone can read it back
	Mode        contracts.ApprovalMode `json:"approval_mode"`
	Requests    []serverreq.Row        `json:"requests"`
	Lease       savedLease             `json:"lease"`
	Connections []*saved               `json:"connections"`
	Run         *savedRun              `json:"run,omitempty"`
	Origin      *uint64                `json:"origin,omitempty"` // see state.origin
}

func savedConnection(c *connection) *saved {
	subs := make([]string, len(c.subs))
	for i, sub := range c.subs {
		subs[i] = sub.id
	}
	return &saved{ID: c.id, Subs: subs, Token: hex.EncodeToString(c.token[:]), Principal: c.principal, Terms: c.terms}
}

func (h *Hub) noteLease(s *state) {
	holder, _ := s.lease.Holder()
	h.note(s, note{Lease: &savedLease{Generation: s.lease.Generation(), Holder: holder}})
}

// noteCommand keeps an accepted command and folds it into the state: what
// changes state is either an entry or it is lost with the process.
func (h *Hub) noteCommand(s *state, cmd contracts.Command, n note) {
	text, err := contracts.EncodeCommand(cmd)
	if err != nil {
		h.log.Error("encode command", "type", cmd.CommandType(), "err", err)
		return
	}
	n.Command = text
	h.note(s, n)
	s.events.ApplyCommand(cmd)
}

// keepAnswer completes the running update's note of a ws.send with the cursor
// that answers it, which is known once everything the command caused is there.
func (h *Hub) keepAnswer(s *state, cursor uint64) {
	if s.sent == nil {
		return
	}
	s.sent.Answer = cursor
	s.out[s.sentAt].Body = encodeNote(*s.sent)
	s.sent = nil
}

// checkpointDue reports whether so much was published since the last checkpoint,
// or so long ago, that older entries should be allowed to go. A state that is
// large is written less often, so that checkpoints are at most half of what is
// written.
func (h *Hub) checkpointDue(s *state) bool {
	return s.sinceMark >= max(h.opts.CheckpointBytes, s.markSize) ||
		h.opts.CheckpointAge > 0 && s.now.Sub(s.markedAt) >= h.opts.CheckpointAge
}

// checkpoint adds the whole state to the running update's entries. If it cannot
// be made, the entries still tell everything, and the next is tried after as
// many more.
func (h *Hub) checkpoint(s *state) {
	defer func() { s.sinceMark, s.markedAt = 0, s.now }()
	snapshot, err := contracts.EncodeSnapshot(s.events.Snapshot(h.head(s)))
	if err != nil {
		h.log.Error("encode checkpoint", "err", err)
		return
	}
	holder, _ := s.lease.Holder()
	cp := checkpoint{
		Snapshot: snapshot, Mode: s.mode, Requests: s.table.Pending(),
		Lease: savedLease{Generation: s.lease.Generation(), Holder: holder}, Origin: s.origin,
	}
	for _, id := range slices.Sorted(maps.Keys(s.conns)) {
		if c := s.conns[id]; c.role == contracts.RoleController && !c.bare {
			kept := savedConnection(c)
			kept.Sends = c.sends.accepted()
			cp.Connections = append(cp.Connections, kept)
		}
	}
	if s.run != nil {
		cp.Run = &savedRun{Response: s.run.response, Started: s.run.started, First: s.run.first, Ended: s.run.ended, Calls: maps.Clone(s.run.calls)}
		for _, a := range s.answered {
			cp.Run.Calls[a.request.CallID] = a.request.Tool
		}
	}
	body, err := json.Marshal(cp)
	if err != nil || len(body) > journal.MaxBody {
		h.log.Error("checkpoint left out", "bytes", len(body), "err", err)
		return
	}
	h.append(s, journal.Entry{Kind: journal.Checkpoint, Body: body})
	s.markSize = len(body)
}

// restore folds what an earlier process left: the newest checkpoint and the
// entries after it.
func (h *Hub) restore() error {
	s := &h.state
	from, err := journal.RestorePoint(h.opts.Store)
	if err != nil || from == 0 {
		return err
	}
	holder := ""
	var bad error
	s.now = time.Now()
	err = h.opts.Store.Read(from-1, func(e journal.Entry) bool {
		if e.Kind == journal.Checkpoint {
			s.markSize, s.markedAt = len(e.Body), time.UnixMilli(e.Time)
		} else {
			s.sinceMark += len(e.Body)
		}
		if bad = h.replay(s, e, &holder); bad != nil {
			bad = fmt.Errorf("entry %d: %w", e.Cursor, bad)
		}
		return bad == nil
	})
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(s.conns)) { // they have the usual time to come back
		c := s.conns[id]
		c.seen = s.now
		s.credentialEnds(c.principal.Expires)
		if len(c.subs) == 0 {
			h.idle(s, c)
		}
		for _, sub := range c.subs {
			sub.lost = true
			h.wait(s, sub)
		}
	}
	if s.conns[holder] != nil {
		s.lease.TakeOver(holder, s.now)
	}
	return nil
}

// replay folds one entry.
func (h *Hub) replay(s *state, e journal.Entry, holder *string) error {
	switch e.Kind {
	case journal.Message:
		ev, err := (&contracts.Decoder{}).Event(e.Body)
		if err != nil {
			return err
		}
		s.wasDrained = false
		return h.replayEvent(s, ev, time.UnixMilli(e.Time))
	case journal.Note:
		if len(e.Body) == 0 { // the place of a transient entry
			return nil
		}
		var n note
		if err := json.Unmarshal(e.Body, &n); err != nil {
			return err
		}
		return h.replayNote(s, n, holder)
	case journal.Checkpoint:
		var cp checkpoint
		if err := json.Unmarshal(e.Body, &cp); err != nil {
			return err
		}
		return h.replayCheckpoint(s, &cp, holder)
	}
	if e.Kind == journal.Snapshot { // it says nothing that entries have not, but for the last one of a drain
		snap, err := (&contracts.Decoder{}).Snapshot(e.Body)
		s.wasDrained = err == nil && !snap.State.IsReady
	}
	return nil
}

func (h *Hub) replayEvent(s *state, ev contracts.Event, at time.Time) error {
	s.events.Apply(ev)
	if s.cut != nil {
		s.cut.track(ev, at)
	}
	switch ev := ev.(type) {
	case *contracts.ServerRequest:
		return s.table.Open(ev, at, s.deadlines[ev.RequestID])
	case *contracts.ServerRequestResolved:
		s.table.Withdraw(ev.RequestID, ev.Resolution, ev.Reason, ev.ResolvedBy, at)
		delete(s.deadlines, ev.RequestID)
	}
	return nil
}

func (h *Hub) replayNote(s *state, n note, holder *string) error {
	if c := s.conns[n.From]; c != nil && n.Send != nil {
		c.sends.put(*n.Send, sent{cursor: n.Answer})
	}
	switch {
	case n.Command != nil:
		cmd, err := (&contracts.Decoder{}).Command(n.Command)
		if err != nil {
			return err
		}
		s.events.ApplyCommand(cmd)
		switch cmd := cmd.(type) {
		case *contracts.Prompt:
			s.cut = &run{calls: map[string]string{}}
		case *contracts.Init:
			if cmd.ApprovalMode != "" {
				s.mode = cmd.ApprovalMode
			}
			s.lastInit = cmd
		}
	case n.Attach != nil:
		return h.bringBack(s, n.Attach)
	case n.Gone != "":
		if c := s.conns[n.Gone]; c != nil {
			for _, sub := range c.subs {
				delete(s.subs, sub.id)
			}
			s.removeConnection(c)
		}
	case n.Lease != nil:
		h.replayLease(s, *n.Lease, holder)
	case n.Deadline != nil:
		s.deadlines[n.Deadline.ID] = n.Deadline.At
	case n.Resumed != "":
		if s.cut == nil {
			s.cut = &run{calls: map[string]string{}}
		}
		s.cut.calls[n.Resumed] = "" // its tool is not known here, only that it is open
	case n.RunEnded:
		s.cut = nil
	}
	return nil
}

func (h *Hub) replayLease(s *state, l savedLease, holder *string) {
	s.lease, *holder = lease.Restore(h.opts.LeaseTTL, l.Generation), l.Holder
}

func (h *Hub) replayCheckpoint(s *state, cp *checkpoint, holder *string) error {
	snapshot, err := (&contracts.Decoder{}).Snapshot(cp.Snapshot)
	if err != nil {
		return err
	}
	s.events.Restore(snapshot)
	s.mode = cp.Mode
	if snapshot.LastInit != nil {
		if cmd, err := (&contracts.Decoder{}).Command(snapshot.LastInit); err == nil {
			s.lastInit, _ = cmd.(*contracts.Init)
		}
	}
	if err := s.table.Restore(cp.Requests); err != nil {
		return err
	}
	h.replayLease(s, cp.Lease, holder)
	s.origin = cp.Origin
	for _, c := range cp.Connections {
		if err := h.bringBack(s, c); err != nil {
			return err
		}
	}
	if cp.Run != nil {
		s.cut = &run{response: cp.Run.Response, started: cp.Run.Started, first: cp.Run.First, ended: cp.Run.Ended, calls: map[string]string{}}
		maps.Copy(s.cut.calls, cp.Run.Calls)
	}
	return nil
}

func (h *Hub) bringBack(s *state, from *saved) error {
	token, err := hex.DecodeString(from.Token)
	if err != nil {
		return fmt.Errorf("connection %s: %w", from.ID, err)
	}
	c := s.conns[from.ID]
	if c == nil {
		c = &connection{id: from.ID, principal: from.Principal, role: from.Terms.Role}
		s.addConnection(c)
	}
	copy(c.token[:], token)
	c.terms, c.role = from.Terms, from.Terms.Role
	for _, sub := range c.subs {
		delete(s.subs, sub.id)
	}
	c.subs = nil
	for _, id := range from.Subs {
		s.addSubscription(c, &subscription{id: id, conn: c, optOuts: c.terms.OptOuts})
	}
	for _, a := range from.Sends {
		c.sends.put(a.ID, sent{cursor: a.Cursor})
	}
	return nil
}

// closeLeftovers ends what the previous process could not: the responses and
// tools of its run. Questions wait on: they can still be answered (D8).
func (h *Hub) closeLeftovers(s *state) {
	clear(s.deadlines)
	h.closeUtilities(s)
	if h.opts.NoReturn {
		for _, c := range s.conns {
			h.destroy(s, c, contracts.LeaseExpired)
		}
	}
	if s.holder() != nil {
		h.noteLease(s) // bringing it back raised the generation
	}
	if s.lastInit != nil {
		init := s.lastInit
		s.then(func() { h.opts.Agent.Configure(init) })
	}
	if s.cut == nil {
		return
	}
	s.run, s.cut = s.cut, nil
	goesOn := h.goesOnWithAnswer(s, s.run)
	var broken error
	if !goesOn {
		broken = &contracts.Error{
			Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTransient,
			Message: "The server restarted during the run",
		}
	}
	h.endCalls(s, s.run)
	h.endResponses(s, s.run, broken)
	if goesOn {
		h.publish(s, &contracts.Status{Message: "The server restarted: the run goes on once its question is answered"})
	}
	h.publish(s, rawEvent("agent_end", nil))
	h.note(s, note{RunEnded: true})
	s.run = nil
}

// goesOnWithAnswer reports whether a run of an earlier process lost nothing: all
// its open calls wait for an answer, and the agent can act on that.
func (h *Hub) goesOnWithAnswer(s *state, r *run) bool {
	if _, resumes := h.opts.Agent.(Resumer); !resumes || h.info.Forgets || len(r.calls) == 0 {
		return false
	}
	waiting := s.waitingCalls()
	for id := range r.calls {
		if !waiting[id] {
			return false
		}
	}
	return true
}

// rawEvent is one of the hub's own events about a run.
func rawEvent(kind string, more map[string]any) *contracts.RawAgentEvent {
	body := map[string]any{"type": kind}
	maps.Copy(body, more)
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("hub: encode raw event: %v", err)) // strings and maps of strings
	}
	return &contracts.RawAgentEvent{EventKind: kind, Event: text}
}

// closeUtilities ends the commands and watches of an earlier process, which went
// with it.
func (h *Hub) closeUtilities(s *state) {
	const gone = "Server restarted while %s was still running"
	commands, watches := s.events.Utilities()
	for _, id := range commands {
		h.publish(s, &contracts.UtilityCommandExited{CommandID: id, Reason: fmt.Sprintf(gone, "utility command")})
	}
	for _, id := range watches {
		h.publish(s, &contracts.UtilityFileWatchStopped{WatchID: id, Reason: fmt.Sprintf(gone, "file watch")})
	}
}

// after is the cursor that a new journal goes on from.
func (o *Options) after() uint64 {
	if o.Restored == nil {
		return 0
	}
	return o.Restored.Cursor
}

// adopt begins the session where it was drained elsewhere. The first entries
// that are written bring the whole state with them.
func (h *Hub) adopt(from *contracts.Restored) error {
	s := &h.state
	s.now = time.Now()
	s.events.Restore(from.Snapshot)
	s.origin, s.lastInit = &from.Cursor, from.LastInit
	s.sinceMark = h.opts.CheckpointBytes
	if from.LastInit != nil && from.LastInit.ApprovalMode != "" {
		s.mode = from.LastInit.ApprovalMode
	}
	if !from.Ready {
		return nil
	}
	for _, k := range from.Requests {
		if err := s.table.Open(k.Request, k.Opened, k.Deadline); err != nil {
			return err
		}
	}
	return nil
}
