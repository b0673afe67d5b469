package hub

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// lifecycle is how far the session has come.
type lifecycle struct {
	phase     phase
	suspended bool                // suspended, to go on in another hub
	failed    error               // why the session cannot go on: nothing more is shown
	deadline  time.Time           // what the clock is armed for
	counted   contracts.Quiesced  // what was going on when a drain began
	quiesced  *contracts.Quiesced // set once the session stands still
	frozen    bool                // nothing more is published
	endAt     time.Time           // when the streams of a drained session end; zero: not

	// Of the process before.
	origin     *uint64         // the cursor a session restored from elsewhere began with; nil for others
	status     *restoredStatus // nil: the events say how the session stands
	wasDrained bool            // the last snapshot of the previous process said that it was drained
}

// A phase is a part of a session's life. Phases follow each other in this order; a
// session skips most of them.
type phase int

const (
	phaseStarting phase = iota
	phaseOpen
	phaseUnready  // restored from an incomplete manifest: for inspection only, for good
	phaseDraining // no new attachments or commands; events still flow; the next process goes on
	phaseClosing  // the same, but nobody goes on: the session is being ended for good
	phaseEnded

	// Only refuse uses these: it derives them from other fields of the lifecycle.
	phaseFrozen // draining, and frozen
	phaseFailed // ended by a failure
)

// An operation is a kind of request that a client makes of a session.
type operation int

const (
	opAttach  operation = iota // a connection, a subscription or a socket
	opHello                    // another hello on a socket
	opCommand                  // any other command on a socket
	opMessage                  // a message over HTTP
	opRequest                  // any other request over HTTP
)

// ErrUnknownSession means that a session neither is open nor was kept.
var ErrUnknownSession = &contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}

var (
	errNoAttachments = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not accepting new attachments"}
	errUnready       = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is not ready"}
	errDraining      = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "hosted runner is draining"}
	errGone          = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "Headless runtime is no longer available"}
	errFailed        = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session has failed and is being closed"}
)

// refusals are the operations that a session refuses, by phase.
var refusals = map[phase]map[operation]error{
	phaseStarting: {opAttach: errNoAttachments},
	phaseUnready:  {opAttach: errNoAttachments, opHello: errUnready, opCommand: errUnready, opMessage: errUnready},
	phaseDraining: {opAttach: errNoAttachments, opCommand: errDraining, opMessage: errDraining},
	phaseFrozen:   {opAttach: errNoAttachments, opHello: errUnready, opCommand: errUnready, opMessage: errDraining},
	phaseClosing:  {opAttach: ErrUnknownSession, opCommand: errGone, opMessage: ErrUnknownSession, opRequest: ErrUnknownSession},
	phaseEnded:    {opAttach: ErrUnknownSession, opHello: errGone, opCommand: errGone, opMessage: ErrUnknownSession, opRequest: ErrUnknownSession},
	// The session can be opened again, so most refusals invite a retry.
	phaseFailed: {opAttach: errFailed, opHello: errGone, opCommand: errGone, opMessage: errFailed, opRequest: errFailed},
}

// refuse returns why the session does not take an operation now, nil if it does.
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

// rests reports whether the session is going to sleep, to be opened again.
func (l *lifecycle) isSuspending() bool { return l.suspended && l.failed == nil }

// over reports whether the session was ended for good, and not just put to rest
// or broken.
func (l *lifecycle) endedForGood() bool { return !l.suspended && l.failed == nil }

// lifeNow returns a copy of the lifecycle. It locks Hub.mu.
func (h *Hub) lifeNow() *lifecycle {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.state.life
	return &l
}

// Draining reports whether the session takes no more attachments because it is
// being drained, or was.
func (h *Hub) Draining() bool { return h.lifeNow().phase == phaseDraining }

// Ready reports whether the session takes attachments.
func (h *Hub) Ready() bool { return h.lifeNow().refuse(opAttach) == nil }
