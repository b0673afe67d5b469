package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/session"
)

// StateAt returns the encoded state as of a cursor: the state of a client that has seen all
// entries up to the cursor. The journal does not store who was connected, so the state has
// no connections. Its cursor is that of the last entry in it. If retention has removed the
// entries before the cursor, StateAt returns the oldest state that is stored.
//
// It waits for other reads of the history, as [Hub.History] does.
func (h *Hub) StateAt(ctx context.Context, cursor uint64, by contracts.Caller) ([]byte, error) {
	var now *contracts.Snapshot
	err := h.request(opRequest, func(tx *tx) error {
		if !tx.credentialValid(by.Principal) {
			return ErrExpired
		}
		if cursor >= tx.head() {
			now = tx.snapshot()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if now != nil {
		err = h.awaitVisible(now.Cursor)
	} else {
		now, err = h.readState(ctx, cursor, by.Principal.ID)
	}
	if errors.Is(err, journal.ErrGap) {
		err = &contracts.Error{Code: contracts.CodeNotFound, Message: "the state of that cursor is not stored any more"}
	}
	if err != nil {
		return nil, h.refusedOr(err)
	}
	st := &now.State
	st.Connections, st.ConnectionCount, st.SubscriberCount = []contracts.ConnectionState{}, 0, 0
	st.ControllerConnectionID, st.ControllerSubscriptionID = contracts.Null(), contracts.Null()
	st.ClientProtocolVersion, st.ClientInfo, st.Capabilities, st.OptOutNotifications, st.ConnectionRole = "", nil, nil, nil, ""
	text, err := contracts.EncodeSnapshot(now, 0)
	return text, h.refusedOr(err)
}

// readState folds the state as of a cursor. It takes no lock: the entries are immutable.
func (h *Hub) readState(ctx context.Context, cursor uint64, principal string) (*contracts.Snapshot, error) {
	leave, ok := h.opts.Memory.historyReads.enter(principal, ctx.Done(), h.done)
	if !ok {
		return nil, errGone
	}
	defer leave()
	past := pastState{events: session.New()}
	if err := h.journal.Replay(ctx, cursor, past.add); err != nil {
		return nil, err
	}
	if err := past.flush(); err != nil {
		return nil, err
	}
	snap := cmp.Or(past.final, past.events.Snapshot(0))
	snap.ProtocolVersion, snap.SessionID, snap.Cursor = contracts.ProtocolVersion, h.opts.SessionID, past.cursor
	snap.State.People = past.events.People()
	return snap, nil
}

// A pastState folds the entries of a journal as the hub did when they were new.
type pastState struct {
	events  *session.State
	cursor  uint64
	final   *contracts.Snapshot // of a drain, if nothing came after it
	decoder contracts.Decoder

	// The last entry with a text, to which the next one may add. A response of
	// thousands of pieces is thereby decoded once.
	held journal.Entry
	body []byte // of held, up to the end of its text
	rest []byte // of held, after its text
}

func (p *pastState) add(e journal.Entry) error {
	p.cursor = e.Cursor
	switch e.Kind {
	case journal.Checkpoint:
		if err := p.flush(); err != nil {
			return err
		}
		var cp checkpoint
		if err := json.Unmarshal(e.Body, &cp); err != nil {
			return err
		}
		snapshot, err := p.decoder.Snapshot(bytes.Clone(cp.Snapshot))
		if err == nil {
			p.events.Restore(snapshot)
		}
		return err
	case journal.Snapshot: // the store has only that of a drain
		snapshot, err := p.decoder.Snapshot(bytes.Clone(e.Body))
		p.final = snapshot
		return err
	}
	if err := p.addNote(e.Parts().Hidden); err != nil {
		return err
	}
	seen, ok := e.Seen(0)
	if !ok {
		return nil
	}
	p.final = nil
	if seen.Class == classRaw { // raw events change no state
		return nil
	}
	if p.joins(&seen) {
		p.body = append(p.body, seen.Body[seen.TextStart:seen.TextEnd]...)
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.held = seen
	end := uint32(len(seen.Body))
	if seen.TextEnd > seen.TextStart {
		end = seen.TextEnd
	}
	p.body, p.rest = append(p.body[:0], seen.Body[:end]...), append(p.rest[:0], seen.Body[end:]...)
	p.held.Body = p.body
	return nil
}

// joins reports whether the text of an entry continues that of the held one.
func (p *pastState) joins(e *journal.Entry) bool {
	h := &p.held
	return e.TextEnd > e.TextStart && h.TextEnd > h.TextStart && e.Kind == h.Kind && e.Class == h.Class &&
		len(p.body) < journal.MaxMergedText &&
		bytes.Equal(e.Body[:e.TextStart], p.body[:h.TextStart]) && bytes.Equal(e.Body[e.TextEnd:], p.rest)
}

// addNote folds the command in a note.
func (p *pastState) addNote(hidden []byte) error {
	if len(hidden) == 0 {
		return nil
	}
	var n struct {
		Command json.RawMessage `json:"command"`
	}
	if err := json.Unmarshal(hidden, &n); err != nil || n.Command == nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	cmd, err := p.decoder.Command(n.Command)
	if err == nil {
		p.events.ApplyCommand(cmd)
	}
	return err
}

// flush folds the held entry.
func (p *pastState) flush() error {
	if p.held.Body == nil {
		return nil
	}
	class := p.held.Class
	p.held = journal.Entry{}
	ev, err := p.decoder.Event(append(bytes.Clone(p.body), p.rest...)) // a copy, because the state keeps parts of it
	switch {
	case err == nil:
		p.events.Apply(ev)
	case class == classPeople && errors.Is(err, contracts.ErrUnknownType):
		return nil // an event that only an earlier version had
	}
	return err
}
