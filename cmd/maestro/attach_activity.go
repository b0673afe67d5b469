package main

import (
	"maps"
	"slices"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// An activity is what goes on in the session: the open questions, oldest first, the
// clients that ask for control, and whether the agent works. The goroutine of the
// attachment owns it.
type activity struct {
	questions []question
	askers    []contracts.ControlRequest
	busy      map[string]bool // the run, open responses and tools, by kind and id
	answered  map[string]bool // questions answered here whose resolution has not arrived
	follows   bool            // every event since the last snapshot was seen
	epoch     string          // of the cursors
	accepted  *uint64         // the cursor at which the awaited prompt was accepted; nil until then
	run       runStatus       // from the latest snapshot
	own       bool            // a run that was started here has not ended
	erred     bool            // the last event of that run is an error
	broken    bool            // a run that was started here ended with an error
	ending    bool            // a script interrupted a run that asks, and sent no prompt since
}

// A runStatus is what a snapshot says about a prompt that was accepted before it.
type runStatus struct {
	cursor  uint64
	pending bool // the run of the prompt may not have begun yet
}

// Bounds of the activity. At a bound the oldest entry is dropped.
const (
	maxQuestions = 256
	maxAskers    = 16
	maxBusy      = 1024
)

// Keys of runs in busy.
const (
	awaited = "prompt" // sent here and not begun
	begun   = "run"
)

func newActivity() *activity { return &activity{busy: map[string]bool{}, answered: map[string]bool{}} }

// note handles an update. It returns the number of a new asker, or 0.
func (d *activity) note(u client.Update) int {
	switch u.Kind {
	case client.KindSnapshot, client.KindReset:
		seen := d.follows && u.Kind == client.KindSnapshot
		d.restore(&u.Snapshot.State, seen)
		d.follows = true
		d.run = runStatus{u.Cursor, seen && u.Snapshot.State.IsResponding}
		d.settle()
	case client.KindConnected:
		d.askers = nil // they asked the earlier connection
		d.follows = u.Attached.Resume == "replay"
		if u.Epoch != d.epoch {
			d.epoch = u.Epoch
			delete(d.busy, awaited) // no entry of the earlier epoch will come
		}
	}
	switch f := u.Control.(type) {
	case *contracts.ControlRequest:
		return d.asked(*f)
	case *contracts.LeaseChange:
		if !f.Granted {
			d.askers = nil
		}
	}
	switch e := u.Event.(type) {
	case *contracts.ServerRequest:
		d.put(requestOf(e))
	case *contracts.ServerRequestResolved:
		delete(d.answered, e.RequestID)
		d.drop(e.RequestID)
	case *contracts.RawAgentEvent:
		switch e.EventKind {
		case "agent_start":
			delete(d.busy, awaited)
			d.start(begun)
		case "agent_end":
			delete(d.busy, begun)
			d.broken = d.broke()
			d.own = false
		}
	case *contracts.ErrorEvent:
		d.erred = true
	case *contracts.ResponseStart:
		d.erred = false
		d.start("response " + e.ResponseID)
	case *contracts.ResponseEnd:
		delete(d.busy, "response "+e.ResponseID)
		delete(d.busy, awaited) // without raw events there is no other sign that the run ended
	case *contracts.ToolCall:
		d.erred = false
		d.start("tool " + e.CallID)
	case *contracts.ToolEnd:
		delete(d.busy, "tool "+e.CallID)
	}
	return 0
}

// restore replaces the activity by a state. The state may be older than the last order: a
// prompt is still awaited, and an answered question is not asked again. seen says that
// no event before the state is missing. Otherwise the run may have ended and another
// one begun.
func (d *activity) restore(st *contracts.State, seen bool) {
	old, answered := d.questions, d.answered
	d.questions, d.answered = nil, map[string]bool{}
	for i := range st.PendingRequests {
		q := questionOf(&st.PendingRequests[i])
		if answered[q.id] {
			d.answered[q.id] = true
			continue
		}
		if j := slices.IndexFunc(old, func(o question) bool { return o.id == q.id }); j >= 0 {
			q = old[j] // it may be answered in part
		}
		d.put(q)
	}
	maps.DeleteFunc(d.busy, func(what string, _ bool) bool {
		return what != awaited && (what != begun || !seen && !st.IsResponding)
	})
	if st.IsResponding && !seen {
		d.start(begun)
	}
	if st.CurrentResponse != nil {
		d.start("response " + st.CurrentResponse.ResponseID)
	}
	for _, t := range st.TrackedTools {
		d.start("tool " + t.CallID)
	}
}

// age marks the open questions as older than the lines of a script.
func (d *activity) age() {
	for i := range d.questions {
		d.questions[i].older = true
	}
}

// end notes that a script interrupts the run. If a question is open, the next line
// waits for the end of the run, because it is not an answer to the question.
func (d *activity) end() {
	if d.first() != nil {
		d.start(begun)
		d.ending = true
	}
}

// asks reports whether the next line of a script may answer a question.
func (d *activity) asks() bool { return d.first() != nil && !(d.ending && len(d.busy) > 0) }

// await notes that a prompt is being sent.
func (d *activity) await() {
	d.accepted, d.ending = nil, false
	d.broken = d.broke()
	d.own, d.erred = true, false
	d.start(awaited)
}

// accept notes that the awaited prompt was accepted at cursor.
func (d *activity) accept(cursor uint64) {
	d.accepted = &cursor
	d.settle()
}

// settle stops awaiting a run if a later state says that it has begun or ended: its
// events were missed.
func (d *activity) settle() {
	if d.accepted != nil && d.run.cursor > *d.accepted && !d.run.pending {
		delete(d.busy, awaited)
	}
}

// put adds a question, unless it is there.
func (d *activity) put(q question) {
	if d.holds(q.id) {
		return
	}
	if len(d.questions) == maxQuestions {
		d.questions = slices.Delete(d.questions, 0, 1)
	}
	d.questions = append(d.questions, q)
}

// answer removes a question that is being answered.
func (d *activity) answer(id string) {
	d.drop(id)
	if len(d.answered) < maxQuestions {
		d.answered[id] = true
	}
}

// reopen puts a question back whose answer was refused, unless the question has ended
// meanwhile.
func (d *activity) reopen(q question) {
	if !d.answered[q.id] {
		return
	}
	delete(d.answered, q.id)
	d.put(q)
}

// holds reports whether a question is open.
func (d *activity) holds(id string) bool {
	return slices.ContainsFunc(d.questions, func(o question) bool { return o.id == id })
}

// broke reports whether a run that was started here ended with an error, without an
// event after it.
func (d *activity) broke() bool { return d.broken || d.own && d.erred }

func (d *activity) drop(id string) {
	d.questions = slices.DeleteFunc(d.questions, func(o question) bool { return o.id == id })
}

// start notes that something runs. Beyond the bound it is not noted.
func (d *activity) start(id string) {
	if len(d.busy) < maxBusy {
		d.busy[id] = true
	}
}

// asked adds an asker, or finds it again, and returns its number.
func (d *activity) asked(f contracts.ControlRequest) int {
	same := func(o contracts.ControlRequest) bool { return o.ConnectionID == f.ConnectionID }
	if i := slices.IndexFunc(d.askers, same); i >= 0 {
		return i + 1
	}
	if len(d.askers) == maxAskers {
		d.askers = slices.Delete(d.askers, 0, 1)
	}
	d.askers = append(d.askers, f)
	return len(d.askers)
}

// first returns the question to be answered next, or nil.
func (d *activity) first() *question {
	if len(d.questions) == 0 {
		return nil
	}
	return &d.questions[0]
}

// running reports whether there is something to interrupt.
func (d *activity) running() bool { return len(d.busy) > 0 || len(d.questions) > 0 }
