package ws

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// BenchmarkIdle reports the resident memory of the server per idle connection:
// 2000 of them, from a client process that holds the sockets alone, after a
// forced collection. Kernel buffers are not in it.
func BenchmarkIdle(b *testing.B) {
	const count = 2000
	if addr := os.Getenv("WS_IDLE_CLIENT"); addr != "" {
		holdIdle(b, addr, count)
		return
	}
	for b.Loop() {
		b.ReportMetric(idleMemory(b, count), "KB/conn")
	}
}

func idleMemory(b *testing.B, count int) float64 {
	attached := make(chan struct{}, count)
	h, err := New(Options{
		Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil },
		Open: func(context.Context, contracts.Attach) (Session, error) {
			return serveFunc(func(_ context.Context, c *Conn) error {
				attached <- struct{}{}
				_, err := c.ReadFrame()
				return err
			}), nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(ln) }() // ends with Close below
	defer func() { _ = srv.Close() }()

	before := resident(b)
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkIdle$", "-test.benchtime=1x")
	cmd.Env = append(os.Environ(), "WS_IDLE_CLIENT="+ln.Addr().String())
	hold, err := cmd.StdinPipe() // the client ends when it closes
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for range count {
		<-attached
	}
	after := resident(b)
	if err := h.opts.ConnLimit.Close(b.Context()); err != nil {
		b.Error(err)
	}
	_ = hold.Close()
	if err := cmd.Wait(); err != nil {
		b.Error("client:", err)
	}
	return (after - before) / float64(count)
}

// holdIdle opens count connections and keeps them until standard input ends.
func holdIdle(b *testing.B, addr string, count int) {
	for range count {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
			addr, contracts.Subprotocol)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// resident returns this process's resident memory in KB after a collection.
func resident(b *testing.B) float64 {
	for range 3 {
		runtime.GC()
		debug.FreeOSMemory()
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
