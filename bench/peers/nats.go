package main

import (
	"errors"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed-028515a8/maestro/bench/control"
)

// Subject is what viewers of the NATS design subscribe to.
const subject = "bench"

// startNATS embeds a nats-server with its WebSocket listener and publishes over
// an in-process connection, as its documentation does for embedding. Viewers
// speak the NATS protocol inside WebSocket frames.
//
// Its limits are left at their defaults; a viewer that would exceed them is cut
// off, which bench notices. It wants a host and port rather than a listener, so
// ln only finds a free port.
func startNATS(ln net.Listener, _ int) (*control.Server, error) {
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.New("not a TCP listener")
	}
	if err := ln.Close(); err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		DontListen:      true, // no plain NATS port
		NoLog:           true,
		NoSigs:          true,
		NoSystemAccount: true,
		PingInterval:    10 * time.Minute, // longer than any run: the viewers answer WebSocket pings only
		Websocket:       server.WebsocketOpts{Host: addr.IP.String(), Port: addr.Port, NoTLS: true},
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("not ready for connections after 10 s")
	}
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return nil, err
	}
	return &control.Server{
		Addr:    addr.String(),
		Publish: func(text []byte) error { return conn.Publish(subject, control.Envelope(text)) },
		Viewers: func() int { return int(s.NumSubscriptions()) },
		Dropped: s.NumSlowConsumers,
	}, nil
}
