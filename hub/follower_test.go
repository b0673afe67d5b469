package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/session"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A follower is a client that folds what it receives into a state and holds
// every frame against the journal: no hole, no repetition, no other bytes.
type follower struct {
	peer    *memconn.Peer
	journal *ledger
	optOuts []string // message types that it does not get
	people  bool     // it negotiated people
	resumes bool     // it presented a cursor that the journal still has

	cursor  uint64 // last entry applied
	state   *session.State
	merged  int               // frames that stood for several entries
	greeted int               // answers to hello
	opened  bool              // the stream has begun
	control []contracts.Frame // not yet looked at
	ended   bool              // the connection is over; nothing more is read
}

func newFollower(peer *memconn.Peer, l *ledger, optOuts ...string) *follower {
	return &follower{peer: peer, journal: l, optOuts: append(optOuts, "raw_agent_event"), state: session.New()}
}

// read takes everything that has arrived.
func (f *follower) read() error {
	now, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	for !f.ended {
		text, err := f.peer.Next(now)
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err == io.EOF:
			f.ended = true
			return nil
		case err != nil:
			return err
		}
		if err := f.take(text); err != nil {
			return fmt.Errorf("%w\nin frame %s", err, text)
		}
	}
	return nil
}

func (f *follower) take(text string) error {
	switch {
	case text == memconn.Opening && !f.opened:
		f.opened = true
		return nil
	case text == memconn.Comment:
		return nil
	}
	f.opened = true
	frame, err := (&contracts.Decoder{}).ServerFrame([]byte(text))
	if err != nil {
		return err
	}
	switch frame := frame.(type) {
	case *contracts.MessageEnvelope:
		return f.takeMessage(frame.Cursor, frame.Message)
	case *contracts.SnapshotEnvelope:
		return f.takeSnapshot(frame.Snapshot, f.cursor == 0)
	case *contracts.ResetEnvelope:
		if f.resumes {
			return fmt.Errorf("got a reset at cursor %d, want a replay", f.cursor)
		}
		return f.takeSnapshot(frame.Snapshot, true)
	case *contracts.HeartbeatEnvelope:
		if frame.Cursor < f.cursor {
			return fmt.Errorf("heartbeat: got cursor %d, want at least %d", frame.Cursor, f.cursor)
		}
	case *contracts.Attached:
		if f.resumes && frame.Resume != "replay" {
			return fmt.Errorf("attached at cursor %d: got %s, want replay", f.cursor, frame.Resume)
		}
		f.control = append(f.control, frame)
	default:
		f.control = append(f.control, frame)
	}
	return nil
}

func (f *follower) takeMessage(cursor uint64, body []byte) error {
	if cursor <= f.cursor {
		return fmt.Errorf("got cursor %d after %d, want a larger one", cursor, f.cursor)
	}
	ev, err := (&contracts.Decoder{}).Event(body)
	if err != nil {
		return err
	}
	if err := f.journal.covers(f, cursor, body); err != nil {
		return err
	}
	if err := f.advance(cursor); err != nil {
		return err
	}
	f.state.Apply(ev)
	if _, ok := ev.(*contracts.HelloOK); ok {
		f.greeted++
	}
	return nil
}

// advance applies the accepted commands up to cursor, which the server folds
// and does not repeat to clients.
func (f *follower) advance(cursor uint64) error {
	for _, e := range f.journal.between(f.cursor, cursor) {
		cmd, err := commandIn(e)
		if err != nil {
			return err
		}
		if cmd != nil {
			f.state.ApplyCommand(cmd)
		}
	}
	f.cursor = cursor
	return nil
}

// takeSnapshot takes the state, either to start from or as an entry.
func (f *follower) takeSnapshot(body []byte, start bool) error {
	snap, err := (&contracts.Decoder{}).Snapshot(body)
	if err != nil {
		return err
	}
	if !start {
		if snap.Cursor <= f.cursor {
			return fmt.Errorf("got a snapshot at cursor %d after %d, want a larger one", snap.Cursor, f.cursor)
		}
		if err := f.journal.covers(f, snap.Cursor, body); err != nil {
			return err
		}
	}
	folded, err := f.journal.fold(snap.Cursor)
	if err != nil {
		return err
	}
	want := folded.Snapshot(snap.Cursor)
	var people *contracts.People // what is published for all has none
	if start && f.people {
		people = folded.People()
	}
	if got := snap.State.People; !reflect.DeepEqual(got, people) {
		return fmt.Errorf("people at cursor %d:\n got %+v\nwant %+v", snap.Cursor, got, people)
	}
	if last := snap.State.LastStatus; last != nil && strings.HasPrefix(*last, "Drain") { // the one that ends a drain
		want.State.IsReady, want.State.LastStatus = false, last
	}
	if got, want := shown(snap, false), shown(want, false); got != want {
		return fmt.Errorf("snapshot at cursor %d:\n got %s\nwant %s", snap.Cursor, got, want)
	}
	f.cursor = snap.Cursor
	f.state.Restore(snap)
	return nil
}

// caughtUp returns an error unless f has all there is and the state that live
// shows.
func (f *follower) caughtUp(live *contracts.Snapshot) error {
	for _, e := range f.journal.between(f.cursor, live.Cursor) {
		if e, seen := f.seen(e); seen {
			return fmt.Errorf("stopped at cursor %d, want entry %d: %s", f.cursor, e.Cursor, e.Body)
		}
	}
	if err := f.advance(live.Cursor); err != nil {
		return err
	}
	if f.people {
		folded, err := f.journal.fold(live.Cursor)
		if err != nil {
			return err
		}
		if got, want := f.state.People(), folded.People(); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("people at cursor %d:\n got %+v\nwant %+v", live.Cursor, got, want)
		}
	}
	got, want := f.state.Snapshot(live.Cursor), *live
	if f.misses("status") {
		got.State.LastStatus, want.State.LastStatus = nil, nil
	}
	if got, want := shown(got, !f.misses("connection_info")), shown(&want, !f.misses("connection_info")); got != want {
		return fmt.Errorf("state at cursor %d:\n got %s\nwant %s", live.Cursor, got, want)
	}
	return nil
}

func (f *follower) misses(kind string) bool {
	for _, out := range f.optOuts {
		if out == kind {
			return true
		}
	}
	return false
}

// seen returns an entry as f sees it, and whether it is meant for f.
func (f *follower) seen(e journal.Entry) (journal.Entry, bool) {
	if e.Kind == journal.Joint {
		p := e.Parts()
		e.Kind, e.Body, e.TextStart, e.TextEnd = journal.Message, p.Open, 0, 0
		if f.people && len(p.Inner) > 0 {
			e.Body = p.Inner
		}
	}
	switch e.Kind {
	case journal.Snapshot:
		return e, true
	case journal.Message:
		kind := typeOf(e.Body)
		return e, len(e.Body) > 0 && !f.misses(kind) && (f.people || !aboutPeople(kind))
	}
	return e, false
}

func aboutPeople(kind string) bool {
	return slices.Contains([]string{"prompt_accepted", "control_changed", "request_shown", "request_voted"}, kind)
}

func typeOf(body []byte) string {
	var m struct{ Type string }
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	return m.Type
}

// shown encodes a snapshot without what a fold cannot know: when leases
// run out, and the fields that describe one connection chosen by the server.
// The list of connections is compared only on demand: a snapshot to start from
// shows its reader before an entry does.
func shown(snap *contracts.Snapshot, connections bool) string {
	s := *snap
	st := &s.State
	st.ClientProtocolVersion, st.ClientInfo, st.Capabilities, st.OptOutNotifications, st.ConnectionRole = "", nil, nil, nil, ""
	st.SubscriberCount, st.ControllerSubscriptionID = 0, contracts.NullString{}
	s.SessionID, st.People = "", nil // who did what is compared apart
	list := st.Connections
	st.Connections = []contracts.ConnectionState{}
	if connections {
		for _, c := range list {
			c.LeaseExpiresAt = contracts.NullString{}
			if s.State.ConnectionCount > 8 { // in a crowd only who is there is told
				c.SubscriptionCount, c.AttachedSubscriptionCount = 0, 0
			}
			st.Connections = append(st.Connections, c)
		}
	} else {
		st.ConnectionCount, st.ControllerConnectionID = 0, contracts.NullString{}
	}
	text, err := contracts.EncodeSnapshot(&s, 0)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A ledger is a reader of the store under a hub: what was really recorded.
type ledger struct {
	store   journal.Store
	base    uint64              // the cursor before the first entry
	start   *contracts.Snapshot // the state there; nil: nothing
	entries []journal.Entry     // all, from base + 1

	transient map[uint64]string // what followers got that the store does not keep, by cursor
}

// head is the cursor of the last entry that was read.
func (l *ledger) head() uint64 { return l.base + uint64(len(l.entries)) }

// refresh reads what was added.
func (l *ledger) refresh() error {
	_, last := l.store.Bounds()
	if last == 0 || last == l.head() {
		return nil
	}
	return l.store.Read(l.head(), func(e journal.Entry) bool {
		e.Body = []byte(string(e.Body))
		l.entries = append(l.entries, e)
		return true
	})
}

// between returns the entries after one cursor up to and including another.
func (l *ledger) between(after, until uint64) []journal.Entry {
	place := func(cursor uint64) uint64 { return max(l.base, min(cursor, l.head())) - l.base }
	return l.entries[place(after):place(until)]
}

// covers returns an error unless a frame at cursor with body is what f should
// get next: the one entry since, or the only ones since, merged (D5).
func (l *ledger) covers(f *follower, cursor uint64, body []byte) error {
	if cursor > l.head() || cursor <= l.base {
		return fmt.Errorf("got cursor %d, want one after %d and up to %d, the last in the store", cursor, l.base, l.head())
	}
	var want []journal.Entry
	for _, e := range l.between(f.cursor, cursor) {
		if e, seen := f.seen(e); seen {
			want = append(want, e)
		}
	}
	last := l.entries[cursor-l.base-1]
	kind := typeOf(body)
	private := last.Kind == journal.Note && (kind == "hello_ok" || kind == "connection_info" && string(last.Body) == "{}") // its cursor is a note's
	transient := last.Kind == journal.Note && len(last.Body) == 0 && (kind == "connection_info" || kind == "")             // a snapshot has no type
	if private || transient {
		if len(want) > 0 {
			return fmt.Errorf("got %s at cursor %d, want entry %d first: %s", kind, cursor, want[0].Cursor, want[0].Body)
		}
		if seen, ok := l.transient[cursor]; ok && transient && seen != string(body) {
			return fmt.Errorf("got %s at cursor %d, want what others got: %s", body, cursor, seen)
		}
		if transient {
			l.transient[cursor] = string(body)
		}
		return nil
	}
	if len(want) == 0 || want[len(want)-1].Cursor != cursor {
		return fmt.Errorf("got a frame at cursor %d, where the journal has %s", cursor, last.Body)
	}
	if text := mergedText(want); string(body) != text {
		return fmt.Errorf("frame at cursor %d after %d: got %s, want %s", cursor, f.cursor, body, text)
	}
	if len(want) > 1 {
		f.merged++
	}
	return nil
}

// mergedText is the body of entries as one. If they may not be merged, it is
// one that no frame has.
func mergedText(entries []journal.Entry) string {
	first := entries[0]
	before, after := first.Body[:first.TextStart], first.Body[first.TextEnd:]
	text := first.Body[first.TextStart:first.TextEnd]
	for _, e := range entries[1:] {
		if len(text) == 0 || string(e.Body[:e.TextStart]) != string(before) || string(e.Body[e.TextEnd:]) != string(after) {
			return "a hole: " + string(first.Body)
		}
		text = append(text[:len(text):len(text)], e.Body[e.TextStart:e.TextEnd]...)
	}
	return string(before) + string(text) + string(after)
}

// everybody is a follower that is sent everything.
var everybody = &follower{people: true}

// fold returns the state as of a cursor.
func (l *ledger) fold(cursor uint64) (*session.State, error) {
	s := session.New()
	if l.start != nil {
		s.Restore(l.start)
	}
	for _, e := range l.between(l.base, cursor) {
		if e, seen := everybody.seen(e); seen && e.Kind == journal.Message {
			ev, err := (&contracts.Decoder{}).Event(e.Body)
			if err != nil {
				return nil, err
			}
			s.Apply(ev)
		}
		cmd, err := commandIn(e)
		if err != nil {
			return nil, err
		}
		if cmd != nil {
			s.ApplyCommand(cmd)
		}
	}
	return s, nil
}

// events returns the public events recorded so far.
func (l *ledger) events() (all []contracts.Event, err error) {
	for _, e := range l.entries {
		e, seen := everybody.seen(e)
		if !seen || e.Kind != journal.Message {
			continue
		}
		ev, err := (&contracts.Decoder{}).Event(e.Body)
		if err != nil {
			return nil, err
		}
		all = append(all, ev)
	}
	return all, nil
}

// commandIn returns the accepted command that a note keeps, or nil.
func commandIn(e journal.Entry) (contracts.Command, error) {
	if e.Kind != journal.Note && e.Kind != journal.Joint || !strings.Contains(string(e.Parts().Hidden), `"command"`) {
		return nil, nil
	}
	var n struct{ Command json.RawMessage }
	if err := json.Unmarshal(e.Parts().Hidden, &n); err != nil {
		return nil, err
	}
	if n.Command == nil {
		return nil, nil
	}
	return (&contracts.Decoder{}).Command(n.Command)
}

// copyStore returns a store with the same entries, as after a crash.
func copyStore(from journal.Store) (*journal.Memory, error) {
	to := journal.NewMemory(journal.MemoryOptions{Epoch: from.Epoch()})
	var entries []journal.Entry
	first, _ := from.Bounds()
	if first == 0 {
		return to, nil
	}
	err := from.Read(first-1, func(e journal.Entry) bool {
		e.Body = []byte(string(e.Body))
		entries = append(entries, e)
		return true
	})
	if err != nil {
		return nil, err
	}
	return to, to.Append(entries)
}
