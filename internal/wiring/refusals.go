package wiring

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// A refusalLog logs refused clients for operators: wrong credentials, hosts, origins
// and roles, and exceeded limits. It logs at most refusalLines in each refusalSpan, so
// that an attack does not fill the disk. No line has a credential.
type refusalLog struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	since  time.Time // when the span began
	lines  int       // in it
	hidden int       // refusals since the last line that were not logged
}

const (
	refusalLines = 10
	refusalSpan  = 10 * time.Second
	maxLogged    = 128 // bytes of a text that a client or the error of an embedding program has
)

func (l *refusalLog) request(r *http.Request, refusal *contracts.Error) {
	l.add(refusal, "remote", r.RemoteAddr, "method", abridge.Head(r.Method, maxLogged), "route", r.Pattern,
		"host", abridge.Head(r.Host, maxLogged), "origin", abridge.Head(r.Header.Get("Origin"), maxLogged))
}

// attachment logs the refusal of a client that has upgraded to a socket.
func (l *refusalLog) attachment(session, principal string, refusal *contracts.Error) {
	l.add(refusal, "session", session, "principal", principal)
}

// evicted logs that a TCP connection was closed to make room for another one.
func (l *refusalLog) evicted(remote string) {
	l.add(&contracts.Error{Code: contracts.CodeOverloaded, Message: "closed for a new connection: too many wait for a request"}, "remote", remote)
}

func (l *refusalLog) add(refusal *contracts.Error, who ...any) {
	switch refusal.Code {
	case contracts.CodeUnauthenticated, contracts.CodeAccessDenied, contracts.CodeRateLimited, contracts.CodeOverloaded:
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.since) >= refusalSpan {
		l.since, l.lines = now, 0
	}
	if l.lines++; l.lines > refusalLines {
		l.hidden++
		return
	}
	facts := append([]any{"code", refusal.Code, "reason", refusal.Message}, who...)
	if cause := refusal.Unwrap(); cause != nil {
		facts = append(facts, "cause", abridge.Head(cause.Error(), maxLogged))
	}
	if l.hidden > 0 {
		facts = append(facts, "more", l.hidden)
		l.hidden = 0
	}
	l.log.Info("refused", facts...)
}
