package main

import (
	"slices"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A desk is what lies before the user: questions to answer, oldest first, and
// people who ask for control. It is owned by the goroutine that follows the
// session.
type desk struct {
	questions []question
	askers    []contracts.ControlRequest
	busy      map[string]bool // the run, open responses and tools, by kind and id
}

// Bounds of the desk; beyond them the oldest gives way.
const (
	maxQuestions = 256
	maxAskers    = 16
	maxBusy      = 1024
)

// awaited is a run that was asked for and has not begun, among what is busy.
const awaited = "prompt"

func newDesk() *desk { return &desk{busy: map[string]bool{}} }

// note follows an update. It returns the number of a new asker, or 0.
func (d *desk) note(u client.Update) int {
	switch u.Kind {
	case client.KindSnapshot, client.KindReset:
		d.restore(&u.Snapshot.State)
	case client.KindConnected:
		d.askers = nil // they ask a connection; this is another one
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
		d.drop(e.RequestID)
	case *contracts.RawAgentEvent:
		switch e.EventKind {
		case "agent_start":
			delete(d.busy, awaited)
			d.start("run")
		case "agent_end":
			delete(d.busy, "run")
		}
	case *contracts.ResponseStart:
		d.start("response " + e.ResponseID)
	case *contracts.ResponseEnd:
		delete(d.busy, "response "+e.ResponseID)
		delete(d.busy, awaited) // a server without raw events says no more of the run's end
	case *contracts.ToolCall:
		d.start("tool " + e.CallID)
	case *contracts.ToolEnd:
		delete(d.busy, "tool "+e.CallID)
	}
	return 0
}

// restore replaces what lies on the desk by a state.
func (d *desk) restore(st *contracts.State) {
	old := d.questions
	d.questions = nil
	for i := range st.PendingRequests {
		q := questionOf(&st.PendingRequests[i])
		if j := slices.IndexFunc(old, func(o question) bool { return o.id == q.id }); j >= 0 {
			q = old[j] // it may be half answered
		}
		d.put(q)
	}
	clear(d.busy)
	if st.CurrentResponse != nil {
		d.start("response " + st.CurrentResponse.ResponseID)
	}
	for _, t := range st.TrackedTools {
		d.start("tool " + t.CallID)
	}
}

// put adds a question; one with the same id is the same question.
func (d *desk) put(q question) {
	if slices.ContainsFunc(d.questions, func(o question) bool { return o.id == q.id }) {
		return
	}
	if len(d.questions) == maxQuestions {
		d.questions = slices.Delete(d.questions, 0, 1)
	}
	d.questions = append(d.questions, q)
}

func (d *desk) drop(id string) {
	d.questions = slices.DeleteFunc(d.questions, func(o question) bool { return o.id == id })
}

// start notes that something runs. What does not fit is not noted: then Ctrl-C
// may ask twice.
func (d *desk) start(id string) {
	if len(d.busy) < maxBusy {
		d.busy[id] = true
	}
}

// asked adds an asker, or finds it again, and returns its number.
func (d *desk) asked(f contracts.ControlRequest) int {
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

// takeAsker removes and returns the n-th asker.
func (d *desk) takeAsker(n int) (contracts.ControlRequest, bool) {
	if n < 1 || n > len(d.askers) {
		return contracts.ControlRequest{}, false
	}
	f := d.askers[n-1]
	d.askers = slices.Delete(d.askers, n-1, n)
	return f, true
}

// first returns the question to be answered next, or nil.
func (d *desk) first() *question {
	if len(d.questions) == 0 {
		return nil
	}
	return &d.questions[0]
}

// running reports whether there is something to interrupt.
func (d *desk) running() bool { return len(d.busy) > 0 || len(d.questions) > 0 }
