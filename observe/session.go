package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// How far a session is, for maestro_sessions.
const (
	stateIdle    = "idle"
	stateRunning = "running"
	stateWaiting = "waiting" // a question is open
)

// How a run ended, for maestro_runs_total.
const (
	runCompleted  = "completed"
	runFailed     = "failed"     // its last word was an error
	runCancelled  = "cancelled"  // somebody stopped it
	runUnfinished = "unfinished" // its session was closed first
)

// maxQuestions and maxTools bound what is followed of one session at a time;
// what is beyond is counted in maestro_untracked_total.
const (
	maxQuestions = 1024
	maxTools     = 1024

	trackedQuestion = "question"
	trackedTool     = "tool"
)

// A Session is told by the hub what happens in one session. Its methods are
// those of the hub's observer; they may be called from any goroutine, but
// events in their order. After Close they do nothing but count.
type Session struct {
	// Static after Observer.Session.
	observer *Observer
	meters   *meters

	gauges  atomic.Pointer[Gauges] // nil until Watch
	running atomic.Bool
	waiting atomic.Int32 // len(questions)
	erred   atomic.Bool  // lastError is not empty

	mu        sync.Mutex
	attached  map[place]int
	questions map[string]question // open; by request id, at most maxQuestions
	asked     bool                // a prompt was admitted that has not begun, which came
	trace     string              // with this traceparent
	lastError contracts.ErrorType // of the running prompt, unless it has gone on since
	tracker   *tracker            // its spans; nil: tracing is off
	closed    bool
}

// A place is where a connection attaches.
type place struct{ role, transport string }

// A question is a server request without a resolution.
type question struct {
	kind string
	at   time.Time // zero: asked before this process had the session
}

// Watch says where to look for what the session does not say by itself, and
// what was open before it was watched; snap may be nil. It is called once, after
// the hub was made and before it is started.
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

// Close ends the spans that are open, and the session's part in the metrics.
// The second call does nothing.
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

// Attached counts a socket or stream in.
func (s *Session) Attached(role contracts.Role, transport string) {
	p := place{label(role, roles), label(transport, transports)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached[p]++
	s.meters.connections.WithLabelValues(p.role, p.transport).Inc()
}

// Detached counts it out again. A client on standard streams may have changed
// its role meanwhile: then it is taken from where it was counted.
func (s *Session) Detached(role contracts.Role, transport string) {
	p := place{label(role, roles), label(transport, transports)}
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
		s.asked, s.trace = false, "" // the prompt that was admitted does not begin
	}
}

// Reset counts a client that had to start over.
func (s *Session) Reset(why contracts.ResetReason) {
	s.meters.resets.WithLabelValues(label(why, resetReasons)).Inc()
}

// LeaseMoved counts a change of the holder.
func (s *Session) LeaseMoved(why contracts.LeaseReason) {
	s.meters.leases.WithLabelValues(label(why, leaseReasons)).Inc()
}

// Appended counts a batch of entries.
func (s *Session) Appended(entries, bytes int, took time.Duration) {
	s.meters.appends.Observe(took.Seconds())
	s.meters.entries.Add(float64(entries))
	s.meters.bytes.Add(float64(bytes))
}
