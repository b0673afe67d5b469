package hub

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// lifecycle holds the phase of the session, and facts about its drain, its end and
// its origin.
type lifecycle struct {
	phase     phase
	suspended bool                // ended here, to continue in another hub
	failed    error               // why the session failed; nothing more is published
	deadline  time.Time           // the clock's next deadline
	counted   contracts.Quiesced  // open work when the drain began
	quiesced  *contracts.Quiesced // result of the drain; nil before
	frozen    bool                // nothing more is published
	endAt     time.Time           // when the streams of a drained session end; zero: not scheduled

	// From an earlier process.
	origin     *uint64         // cursor at which a session restored from elsewhere began; nil for others
	status     *restoredStatus // overrides the status in snapshots; nil: the events have it
	wasDrained bool            // the last snapshot of the previous process said the session was drained
}

// A phase is a stage of a session's life. The phases are in order of time; a
// session skips most of them. docs/states.md has a diagram.
type phase int

const (
	phaseStarting phase = iota
	phaseOpen
	phaseUnready  // restored from an incomplete manifest: read-only until it ends
	phaseDraining // no new attachments or commands; events still flow; another process continues the session
	phaseClosing  // no new attachments or commands; the session ends for good
	phaseEnded

	// Only refuse uses these. It derives them from other fields of the lifecycle.
	phaseFrozen // draining, and frozen
	phaseFailed // ended by a failure
)

// An operation is a kind of client request.
type operation int

const (
	opAttach  operation = iota // a connection, a subscription or a socket
	opHello                    // another hello on a socket
	opCommand                  // any other command on a socket
	opMessage                  // a message over HTTP
	opRequest                  // any other request over HTTP
)

// ErrUnknownSession means that a session is neither open nor stored.
var ErrUnknownSession = &contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}

var (
	errNoAttachments = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not accepting new attachments"}
	errUnready       = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not ready"}
	errDraining      = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is draining"}
	errGone          = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "Headless runtime is no longer available"}
	errFailed        = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session has failed and is being closed"}
)

// refusals holds the error for each operation that a phase refuses.
var refusals = map[phase]map[operation]error{
	phaseStarting: {opAttach: errNoAttachments},
	phaseUnready:  {opAttach: errNoAttachments, opHello: errUnready, opCommand: errUnready, opMessage: errUnready},
	phaseDraining: {opAttach: errNoAttachments, opCommand: errDraining, opMessage: errDraining},
	phaseFrozen:   {opAttach: errNoAttachments, opHello: errUnready, opCommand: errUnready, opMessage: errDraining},
	phaseClosing:  {opAttach: ErrUnknownSession, opCommand: errGone, opMessage: ErrUnknownSession, opRequest: ErrUnknownSession},
	phaseEnded:    {opAttach: ErrUnknownSession, opHello: errGone, opCommand: errGone, opMessage: ErrUnknownSession, opRequest: ErrUnknownSession},
	// The session can be opened again, so most refusals are retryable.
	phaseFailed: {opAttach: errFailed, opHello: errGone, opCommand: errGone, opMessage: errFailed, opRequest: errFailed},
}

// refuse returns the error if the session refuses an operation now, otherwise nil.
func (l *lifecycle) refuse(op operation) error {
	phase := l.phase
	switch {
	case l.failed != nil:
		phase = phaseFailed
	case l.frozen && phase == phaseDraining:
		phase = phaseFrozen
	}
	return refusals[phase][op]
}

// isSuspending reports whether the session is suspended or about to be, and can be
// opened again.
func (l *lifecycle) isSuspending() bool { return l.suspended && l.failed == nil }

// endedForGood reports whether an ended session was neither suspended nor broken.
func (l *lifecycle) endedForGood() bool { return !l.suspended && l.failed == nil }

// lifeNow returns a copy of the lifecycle. It locks Hub.mu.
func (h *Hub) lifeNow() *lifecycle {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.state.life
	return &l
}

// Draining reports whether the session is in phaseDraining.
func (h *Hub) Draining() bool { return h.lifeNow().phase == phaseDraining }

// Ready reports whether the session takes attachments.
func (h *Hub) Ready() bool { return h.lifeNow().refuse(opAttach) == nil }
