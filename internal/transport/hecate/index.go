package hecate

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
)

const (
	maxRuns      = 50_000 // beyond it, the runs that ended first leave the index
	maxApprovals = 256    // of a session; beyond it, the oldest leave the index
	maxMarkers   = 64     // of a run
	markEvery    = 256    // events between two marks
)

// An index says where the events of each run are. Its JSON form is a checkpoint of the
// log: what follows is read entry by entry.
type index struct {
	Next     uint64 // number of the next event
	Sessions map[string]*session
	Runs     map[string]*run
	Ended    []string // ids of runs in the order of their end
	Marks    []mark   // ascending

	tasks map[string]*session // by task
}

// A mark says which entry has the event of a number.
type mark struct{ Number, Cursor uint64 }

// A run is the index of one run.
type run struct {
	ID        string
	Session   string
	Task      string
	Began     time.Time
	At        time.Time // of the last event
	Next      uint64    // sequence of the next event
	Terminal  string    // type of the event that ended it; empty while it is open
	Extents   extents   // entries that are stored
	Markers   []marker  // its gap.events_pruned events, which are kept when their entries are pruned
	Unpruned  uint64    // first sequence that no marker has named as pruned
	Abandoned bool      // left the index; readers that have it stop
}

type marker struct {
	Seq, Cursor, Number uint64
	Line                []byte
}

// extents are the entries with events of a run: each with its cursor and the sequence of
// its first event. Their JSON form has differences.
type extents []extent

type extent struct{ cursor, seq uint64 }

func (x extents) MarshalJSON() ([]byte, error) {
	var out []byte
	last := extent{}
	for _, e := range x {
		out = binary.AppendUvarint(out, e.cursor-last.cursor)
		out = binary.AppendUvarint(out, e.seq-last.seq)
		last = e
	}
	return json.Marshal(out)
}

func (x *extents) UnmarshalJSON(text []byte) error {
	var in []byte
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	r := bytes.NewReader(in)
	last := extent{}
	for r.Len() > 0 {
		cursor, err := binary.ReadUvarint(r)
		seq, err2 := binary.ReadUvarint(r)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		last = extent{last.cursor + cursor, last.seq + seq}
		*x = append(*x, last)
	}
	return nil
}

// from returns the extents from the one that has the event after a sequence, or that
// follow it. after is -1 for all.
func (x extents) from(after int64) extents {
	i := sort.Search(len(x), func(i int) bool { return int64(x[i].seq) > after+1 })
	return x[max(i-1, 0):]
}

// first returns the sequence of the first event that is stored in entries.
func (r *run) first() uint64 {
	if len(r.Extents) == 0 {
		return r.Next
	}
	return r.Extents[0].seq
}

// lost returns how many events were pruned that no marker names, not counting markers.
func (r *run) lost() (n int) {
	n = int(r.first()) - int(r.Unpruned)
	for _, m := range r.Markers {
		if m.Seq >= r.Unpruned && m.Seq < r.first() {
			n--
		}
	}
	return n
}

func newIndex() *index {
	return &index{Next: 1, Sessions: map[string]*session{}, Runs: map[string]*run{}, tasks: map[string]*session{}}
}

// restore reads a checkpoint.
func (x *index) restore(text []byte) error {
	*x = *newIndex()
	if err := json.Unmarshal(text, x); err != nil {
		return err
	}
	for _, s := range x.Sessions {
		if s.Task != "" {
			x.tasks[s.Task] = s
		}
	}
	x.Ended = slices.DeleteFunc(x.Ended, func(id string) bool { return x.Runs[id] == nil }) // earlier versions kept some
	return nil
}

func (x *index) session(id string) *session {
	s := x.Sessions[id]
	if s == nil {
		s = &session{ID: id}
		x.Sessions[id] = s
	}
	return s
}

// apply adds an entry of the log and keeps its state.
func (x *index) apply(cursor uint64, h header, events []wire.Event, state []byte) error {
	s := x.session(h.Session)
	if s.Task == "" || h.Epoch == "" {
		var ids struct {
			Task string `json:"task_id"`
			Chat string `json:"chat_id"`
		}
		if err := json.Unmarshal(state, &ids); err != nil {
			return err
		}
		if s.Task != "" && s.Task != ids.Task { // it had left the log, and came back as another task
			x.forget(s)
			s = x.session(h.Session)
		}
		s.Task, s.Chat = ids.Task, ids.Chat
		x.tasks[s.Task] = s
	}
	s.Epoch, s.Cursor, s.State, s.Moved = h.Epoch, h.Cursor, state, cursor
	if len(events) > 0 && (len(x.Marks) == 0 || h.First >= x.Marks[len(x.Marks)-1].Number+markEvery) {
		x.Marks = append(x.Marks, mark{h.First, cursor})
	}
	number := h.First
	for _, p := range h.Parts {
		r := x.Runs[p.Run]
		if r == nil {
			r = &run{ID: p.Run, Session: h.Session, Task: p.Task}
			x.Runs[p.Run] = r
			s.Runs = append(s.Runs, p.Run)
		}
		r.Extents = append(r.Extents, extent{cursor, p.Seq})
		for i := range events[:p.N] {
			x.applyEvent(s, r, &events[i], cursor, number)
			number++
		}
		events = events[p.N:]
	}
	x.Next = max(x.Next, number)
	if len(x.Runs) > maxRuns {
		x.evictRuns(maxRuns / 16)
	}
	return nil
}

func (x *index) applyEvent(s *session, r *run, ev *wire.Event, cursor, number uint64) {
	if r.Began.IsZero() {
		r.Began = ev.OccurredAt
	}
	r.At, r.Next = ev.OccurredAt, ev.Sequence+1
	switch ev.Type {
	case "run.finished", "run.failed", "run.cancelled":
		r.Terminal = ev.Type
		x.Ended = append(x.Ended, r.ID)
	case "gap.events_pruned":
		var data struct {
			Last uint64 `json:"last_pruned_sequence"`
		}
		if json.Unmarshal(ev.Data, &data) == nil {
			r.Unpruned = data.Last + 1
		}
		r.Markers = append(r.Markers, marker{Seq: ev.Sequence, Cursor: cursor, Number: number, Line: ev.Raw})
		r.Markers = r.Markers[max(len(r.Markers)-maxMarkers, 0):]
	default:
		if strings.HasPrefix(ev.Type, "approval.") {
			s.applyApproval(r, ev)
		}
	}
}

// evictRuns removes up to n runs, those that ended first. It returns how many it has removed.
func (x *index) evictRuns(n int) int {
	n = min(n, len(x.Ended))
	x.remove(x.Ended[:n]...)
	return n
}

// evictSessions removes up to n sessions: those without an open run that nobody follows,
// and of these the ones that moved longest ago. It returns how many it has removed.
func (x *index) evictSessions(n int) int {
	var closed []*session
	for _, s := range x.Sessions {
		if s.source == nil && !x.hasOpenRun(s) {
			closed = append(closed, s)
		}
	}
	slices.SortFunc(closed, func(a, b *session) int { return cmp.Compare(a.Moved, b.Moved) })
	closed = closed[:min(n, len(closed))]
	for _, s := range closed {
		x.forget(s)
	}
	return len(closed)
}

func (x *index) hasOpenRun(s *session) bool {
	n := len(s.Runs)
	return n > 0 && x.Runs[s.Runs[n-1]].Terminal == ""
}

// forget removes a session and its runs.
func (x *index) forget(s *session) {
	x.remove(s.Runs...)
	delete(x.Sessions, s.ID)
	delete(x.tasks, s.Task)
}

// remove removes runs by their ids, and their approvals that were decided.
func (x *index) remove(ids ...string) {
	if len(ids) == 0 {
		return
	}
	of := map[*session]bool{}
	for _, id := range ids {
		if r := x.Runs[id]; r != nil { // nil if it is named twice
			r.Abandoned = true
			of[x.Sessions[r.Session]] = true
			delete(x.Runs, id)
		}
	}
	gone := func(id string) bool { return x.Runs[id] == nil }
	for s := range of {
		s.Runs = slices.DeleteFunc(s.Runs, gone)
		s.Approvals = slices.DeleteFunc(s.Approvals, func(a *approval) bool { return gone(a.RunID) && a.Status != pending })
	}
	x.Ended = slices.DeleteFunc(x.Ended, gone)
}

// prune drops the entries before first, which the log has removed. It returns the runs
// that have lost events and stay.
func (x *index) prune(first uint64) (lost []*run) {
	i := sort.Search(len(x.Marks), func(i int) bool { return x.Marks[i].Cursor >= first })
	x.Marks = slices.Clone(x.Marks[i:])
	var empty []string
	for _, r := range x.Runs {
		i := sort.Search(len(r.Extents), func(i int) bool { return r.Extents[i].cursor >= first })
		r.Extents = slices.Clip(r.Extents[i:])
		switch {
		case r.lost() > 0:
			lost = append(lost, r)
		case len(r.Extents) == 0 && r.Terminal != "": // nothing is left but markers
			empty = append(empty, r.ID)
		}
	}
	x.remove(empty...)
	slices.SortFunc(lost, func(a, b *run) int { return cmp.Compare(a.ID, b.ID) })
	return lost
}

// seek returns the cursor of an entry at or before the one that has the event after a
// number, minus one.
func (x *index) seek(after uint64) uint64 {
	i := sort.Search(len(x.Marks), func(i int) bool { return x.Marks[i].Number > after+1 })
	if i == 0 {
		return 0
	}
	return x.Marks[i-1].Cursor - 1
}
