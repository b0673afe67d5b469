package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/seed-028515a8/maestro/bench/control"
)

// frameSize is a message and the four-byte header of its WebSocket frame.
const frameSize = control.MessageSize + 4

// rawLog is the floor: every frame of the run in one byte slice, from which
// viewers write runs of frames straight to their sockets. There is no handshake,
// nothing is read and nothing is locked.
type rawLog struct {
	log     []byte // full length; bytes below end never change
	end     atomic.Int64
	gate    atomic.Pointer[chan struct{}] // closed when the log has grown
	kick    chan struct{}                 // 1-buffered; a token means "log grew"; never closed
	viewers atomic.Int64
}

// startRaw sends at most batch messages with one write.
func startRaw(ln net.Listener, messages int, batch int64) *control.Server {
	l := &rawLog{log: make([]byte, messages*frameSize), kick: make(chan struct{}, 1)}
	gate := make(chan struct{})
	l.gate.Store(&gate)
	go l.wake()                      // ends with the process
	go l.accept(ln, batch*frameSize) // ends with the process
	return &control.Server{
		Addr:    ln.Addr().String(),
		Publish: l.publish,
		Viewers: func() int { return int(l.viewers.Load()) },
	}
}

// wake turns any number of publishes into one broadcast, so that a publish does
// not pay for waking every viewer.
func (l *rawLog) wake() {
	for range l.kick {
		next := make(chan struct{})
		close(*l.gate.Swap(&next))
	}
}

func (l *rawLog) publish(text []byte) error {
	end := l.end.Load()
	if end+frameSize > int64(len(l.log)) {
		return errors.New("more messages than announced")
	}
	m := control.Envelope(text)
	frame := append(l.log[end:end], 0x81, 126, byte(len(m)>>8), byte(len(m)))
	l.end.Add(int64(len(append(frame, m...))))
	select {
	case l.kick <- struct{}{}:
	default:
	}
	return nil
}

func (l *rawLog) accept(ln net.Listener, limit int64) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "peers: accept:", err)
			return
		}
		from := l.end.Load()
		l.viewers.Add(1)
		go l.follow(conn, from, limit) // ends with the connection
	}
}

// follow writes the log to conn from a position on, at most limit bytes a write.
func (l *rawLog) follow(conn net.Conn, from, limit int64) {
	defer func() { _ = conn.Close() }()
	defer l.viewers.Add(-1)
	for {
		end := l.wait(from)
		n, err := conn.Write(l.log[from:min(end, from+limit)])
		if err != nil {
			return
		}
		from += int64(n)
	}
}

// wait returns the end of the log once that is beyond from.
func (l *rawLog) wait(from int64) int64 {
	for {
		gate := l.gate.Load() // before looking at end, or a wake-up is lost
		if end := l.end.Load(); end > from {
			return end
		}
		<-*gate
	}
}
