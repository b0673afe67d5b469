package acpserver

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// SocketOptions configures [ServeSocket]. All fields are required.
type SocketOptions struct {
	Heartbeat time.Duration // between pings; see [contracts.SilentHeartbeats]
	Handshake time.Duration // for the client to send initialize
}

var (
	errLate   = &contracts.Error{Code: contracts.CodeTimeout, Message: "the client has not sent initialize"}
	errSilent = &contracts.Error{Code: contracts.CodeTimeout, Message: "the client does not answer pings"}
	errSlow   = &contracts.Error{Code: contracts.CodeSlowConsumer, Message: "the client does not read"}
)

// ServeSocket is [Serve] for a client on a connection with one message in each frame, which
// it closes. If the cause of ctx's end is a *contracts.Error, it is the reason of the close.
func ServeSocket(ctx context.Context, conn contracts.Conn, o SocketOptions, opts Options) error {
	var p *peer
	var writing sync.Mutex
	write := func(frames []byte) error {
		writing.Lock()
		defer writing.Unlock()
		err := conn.Write(frames)
		if err != nil {
			p.stop(errSlow)
		}
		return err
	}
	p = newPeer(ctx, func(line []byte) error {
		return write(conn.Form().AppendControl(nil, bytes.TrimSuffix(line, []byte("\n"))))
	}, opts)
	end := func() { // once p.ctx has ended
		why, _ := errors.AsType[*contracts.Error](context.Cause(p.ctx))
		conn.Close(why)
	}
	defer context.AfterFunc(p.ctx, end)() // also unblocks a write
	var work sync.WaitGroup
	work.Go(func() { // ends with p.ctx
		defer p.contain()
		p.beat(conn, o.Heartbeat, write)
	})
	defer time.AfterFunc(o.Handshake, func() {
		p.gate.Lock()
		defer p.gate.Unlock()
		if !p.greeted {
			p.stop(errLate)
		}
	}).Stop()
	read := make(chan struct{})
	err := p.serve(func(c *rpc.Conn) error {
		defer close(read)
		return c.ReadTexts(conn.ReadFrame)
	})
	end()
	<-read // ends because conn is closed
	work.Wait()
	return err
}

// beat pings the client until p.ctx ends. It ends p.ctx if the client is silent.
func (p *peer) beat(conn contracts.Conn, every time.Duration, write func([]byte) error) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-p.ctx.Done():
			return
		}
		if time.Since(conn.LastSeen()) > contracts.SilentHeartbeats*every {
			p.stop(errSilent)
			return
		}
		_ = write(conn.Form().AppendHeartbeat(nil, 0, true)) // an error ends p.ctx
	}
}
