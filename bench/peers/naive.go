package main

import (
	"context"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/bench/control"
)

// startNaive is coder/websocket as its chat example has it, with one change in
// its favour: no context with a timeout per write, which costs it 2.8 times as
// much. CloseRead is what its documentation advises for write-only connections.
func startNaive(ln net.Listener, _ int) (*control.Server, error) {
	hub := &channels[[]byte]{}
	serveHTTP(ln, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered
		}
		gone := conn.CloseRead(context.Background())
		leave := hub.join(func(m []byte) error {
			return conn.Write(context.Background(), websocket.MessageText, m)
		})
		context.AfterFunc(gone, leave)
	})
	return &control.Server{
		Addr: ln.Addr().String(),
		Publish: func(text []byte) error {
			hub.publish(control.Envelope(text))
			return nil
		},
		Viewers: hub.viewers,
	}, nil
}
