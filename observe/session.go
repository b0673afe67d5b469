package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// States of a session, for maestro_sessions.
const (
	stateIdle    = "idle"
	stateRunning = "running"
	stateWaiting = "waiting" // a question is open
)

// Outcomes of a run, for maestro_runs_total.
const (
	runCompleted  = "completed"
	runFailed     = "failed"     // its last event was an error
	runCancelled  = "cancelled"  // it was stopped
	runUnfinished = "unfinished" // its session was closed first
)

// maxQuestions and maxTools bound the questions and tools of one session that
// are followed at a time. Further ones are counted in maestro_untracked_total.
const (
	maxQuestions = 1024
	maxTools     = 1024

	trackedQuestion = "question"
	trackedTool     = "tool"
)

// A Session gets the events of one session from the hub. Its methods may be
// called from any goroutine, but events in their order. After Close they only
// count.
type Session struct {
	// Static after Observer.Session.
	observer *Observer
	meters   *meters

	gauges  atomic.Pointer[Gauges] // nil until Watch
	running atomic.Bool
	waiting atomic.Int32 // len(questions)
	erred   atomic.Bool  // lastError is not empty

	mu        sync.Mutex
	attached  map[connKind]int
	questions map[string]question // open; by request id; at most maxQuestions
	asked     bool                // a prompt was admitted whose run has not begun
	trace     string              // the traceparent of that prompt
	lastError contracts.ErrorType // of the running prompt, unless it has gone on since
	tracker   *tracker            // nil if tracing is off
	closed    bool
}

// A connKind is the role and transport of a connection.
type connKind struct{ role, transport string }

// A question is a server request without a resolution.
type question struct {
	kind string
	at   time.Time // zero if it was asked before this process had the session
}

// Watch sets the functions for values that the session keeps itself, and the
// questions that were open before; snap may be nil. Call it once, after the hub
// was made and before it starts.
func (s *Session) Watch(g Gauges, snap *contracts.Snapshot) {
	s.gauges.Store(&g)
	if snap == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range snap.State.PendingRequests {
		p := &snap.State.PendingRequests[i]
		s.open(p.ID, p.Kind, time.Time{})
	}
}

// Close ends the open spans, and removes the session from the metrics. The
// second call does nothing.
func (s *Session) Close() {
	s.observer.forget(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, q := range s.questions {
		s.meters.pending.WithLabelValues(q.kind).Dec()
	}
	clear(s.questions)
	if s.running.Swap(false) {
		s.meters.runs.WithLabelValues(runUnfinished).Inc()
	}
	if s.tracker != nil {
		s.tracker.abandon(time.Now())
	}
}

func (s *Session) state() string {
	switch {
	case s.waiting.Load() > 0:
		return stateWaiting
	case s.running.Load():
		return stateRunning
	}
	return stateIdle
}

func (s *Session) lag() Lag {
	if g := s.gauges.Load(); g != nil && g.Lag != nil {
		return g.Lag()
	}
	return Lag{}
}

func (s *Session) totals() Totals {
	if g := s.gauges.Load(); g != nil && g.Totals != nil {
		return g.Totals()
	}
	return Totals{}
}

// Attached counts a new socket or stream.
func (s *Session) Attached(role contracts.Role, transport string) {
	p := connKind{label(role, roles), label(transport, transports)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached[p]++
	s.meters.connections.WithLabelValues(p.role, p.transport).Inc()
}

// Detached counts its end. A client on standard streams may have changed its
// role meanwhile; then it is removed from the role under which it was counted.
func (s *Session) Detached(role contracts.Role, transport string) {
	p := connKind{label(role, roles), label(transport, transports)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached[p] == 0 {
		for have := range s.attached {
			if have.transport == p.transport {
				p = have
			}
		}
	}
	switch n := s.attached[p]; n {
	case 0:
		return
	case 1:
		delete(s.attached, p)
	default:
		s.attached[p] = n - 1
	}
	s.meters.connections.WithLabelValues(p.role, p.transport).Dec()
}

// Refused counts a refusal.
func (s *Session) Refused(code contracts.Code) {
	s.meters.refusals.WithLabelValues(label(code, refusalCodes)).Inc()
	if code == contracts.CodeRuntimeBusy {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked, s.trace = false, "" // the admitted prompt does not begin
	}
}

// Reset counts a client that had to start over.
func (s *Session) Reset(why contracts.ResetReason) {
	s.meters.resets.WithLabelValues(label(why, resetReasons)).Inc()
}

// LeaseMoved counts a change of the controller.
func (s *Session) LeaseMoved(why contracts.LeaseReason) {
	s.meters.leases.WithLabelValues(label(why, leaseReasons)).Inc()
}

// Appended counts a batch of entries.
func (s *Session) Appended(entries, bytes int, took time.Duration) {
	s.meters.appends.Observe(took.Seconds())
	s.meters.entries.Add(float64(entries))
	s.meters.bytes.Add(float64(bytes))
}
