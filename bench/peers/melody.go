package main

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/olahol/melody"

	"github.com/seed-028515a8/maestro/bench/control"
)

// startMelody is olahol/melody with Broadcast. A session whose buffer is full
// loses messages, so the buffer holds all that will be published; losses are
// counted all the same.
func startMelody(ln net.Listener, messages int) (*control.Server, error) {
	m := melody.New()
	m.Config.MessageBufferSize = messages
	var dropped atomic.Int64
	m.HandleError(func(_ *melody.Session, err error) {
		if errors.Is(err, melody.ErrMessageBufferFull) {
			dropped.Add(1)
		}
	})
	serveHTTP(ln, func(w http.ResponseWriter, r *http.Request) {
		// It returns when the connection ends; by then nobody can be told why.
		_ = m.HandleRequest(w, r)
	})
	return &control.Server{
		Addr:    ln.Addr().String(),
		Publish: func(text []byte) error { return m.Broadcast(control.Envelope(text)) },
		Viewers: m.Len,
		Dropped: dropped.Load,
	}, nil
}
