package main

import (
	"net"
	"net/http"
	"sync"

	"github.com/lxzan/gws"

	"github.com/seed-028515a8/maestro/bench/control"
)

// gwsHub keeps the connections that lxzan/gws has opened.
type gwsHub struct {
	gws.BuiltinEventHandler

	mu    sync.RWMutex
	conns map[*gws.Conn]struct{}
}

// OnOpen registers a viewer.
func (h *gwsHub) OnOpen(c *gws.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[c] = struct{}{}
}

// OnClose forgets it.
func (h *gwsHub) OnClose(c *gws.Conn, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// publish is the broadcast of its README: one Broadcaster for each message. Its
// queue for each connection has no bound, so nothing is dropped and the
// publisher never waits.
func (h *gwsHub) publish(m []byte) error {
	b := gws.NewBroadcaster(gws.OpcodeText, m)
	defer func() { _ = b.Close() }()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for c := range h.conns {
		if err := b.Broadcast(c); err != nil {
			return err
		}
	}
	return nil
}

func (h *gwsHub) viewers() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.conns)
}

// startGWS is lxzan/gws with its Broadcaster. The read loop runs in a goroutine
// of its own, as its README advises where net/http is used.
func startGWS(ln net.Listener, _ int) (*control.Server, error) {
	hub := &gwsHub{conns: map[*gws.Conn]struct{}{}}
	upgrader := gws.NewUpgrader(hub, nil)
	serveHTTP(ln, func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r)
		if err != nil {
			return // Upgrade has closed the connection
		}
		go conn.ReadLoop() // ends with the connection
	})
	return &control.Server{
		Addr:    ln.Addr().String(),
		Publish: func(text []byte) error { return hub.publish(control.Envelope(text)) },
		Viewers: hub.viewers,
	}, nil
}
