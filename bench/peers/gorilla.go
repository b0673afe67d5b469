package main

import (
	"net"
	"net/http"

	"github.com/gorilla/websocket"

	"github.com/seed-028515a8/maestro/bench/control"
)

// startGorilla is gorilla/websocket with the PreparedMessage its documentation
// advises for sending one payload to many, in the shape of its chat example: a
// channel, a writer and a reader for each connection, and 1 KiB buffers. The
// example's write deadline and its dropping of slow clients are left out.
func startGorilla(ln net.Listener, _ int) (*control.Server, error) {
	hub := &channels[*websocket.PreparedMessage]{}
	upgrader := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024}
	serveHTTP(ln, func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // Upgrade has answered
		}
		leave := hub.join(conn.WritePreparedMessage)
		go func() { // ends with the connection
			defer leave()
			defer func() { _ = conn.Close() }()
			for {
				if _, _, err := conn.NextReader(); err != nil {
					return
				}
			}
		}()
	})
	return &control.Server{
		Addr: ln.Addr().String(),
		Publish: func(text []byte) error {
			m, err := websocket.NewPreparedMessage(websocket.TextMessage, control.Envelope(text))
			if err != nil {
				return err
			}
			hub.publish(m)
			return nil
		},
		Viewers: hub.viewers,
	}, nil
}
