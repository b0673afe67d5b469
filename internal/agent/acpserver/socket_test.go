package acpserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

var quick = SocketOptions{Heartbeat: 15 * time.Second, Handshake: 10 * time.Second}

// serveSocket serves a client on a connection in memory and returns the client.
func serveSocket(ctx context.Context, o memconn.Options) (*memconn.Peer, <-chan error) {
	conn, peer := memconn.New(o)
	ended := make(chan error, 1)
	go func() { // ends with the connection
		ended <- ServeSocket(ctx, conn, quick, Options{Open: func(_ context.Context, dir string) (Server, error) {
			if dir == "/panic" {
				panic("on demand")
			}
			return Server{}, errors.New("there is no server")
		}})
	}()
	return peer, ended
}

func TestFramesAreMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, ended := serveSocket(t.Context(), memconn.Options{})
		pretty := strings.ReplaceAll(hello, ",", ",\n  ")
		for _, tt := range [][2]string{{"[]", `"code":-32600`}, {pretty, `"id":0,"result":{`}, {`{`, `"code":-32700`}} {
			if err := peer.Send(tt[0]); err != nil {
				t.Fatal(err)
			}
			if got, err := peer.Next(t.Context()); err != nil || !strings.Contains(got, tt[1]) {
				t.Errorf("%s: got %s, %v, want %s", tt[0], got, err, tt[1])
			}
		}
		time.Sleep(time.Hour) // pings are answered
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("got the end %v, want a client that answers pings to stay", <-ended)
		}
		peer.Close()
		if err := <-ended; err != nil {
			t.Errorf("got %v, want an end without error", err)
		}
	})
}

func TestSocketEndsWithAReason(t *testing.T) {
	revoked := &contracts.Error{Code: contracts.CodeUnauthenticated}
	for _, tt := range []struct {
		name   string
		do     func(peer *memconn.Peer, end context.CancelCauseFunc)
		buffer int // 0 is 1 MiB
		within time.Duration
		want   contracts.Code
	}{
		{"no initialize", func(*memconn.Peer, context.CancelCauseFunc) {}, 0, 10 * time.Second, contracts.CodeTimeout},
		{"no pong", func(p *memconn.Peer, _ context.CancelCauseFunc) {
			_ = p.Send(hello)
			p.Mute()
		}, 0, 60 * time.Second, contracts.CodeTimeout},
		{"revoked", func(p *memconn.Peer, end context.CancelCauseFunc) {
			_ = p.Send(hello)
			end(revoked)
		}, 0, 0, contracts.CodeUnauthenticated},
		{"a panic", func(p *memconn.Peer, _ context.CancelCauseFunc) {
			_ = p.Send(hello)
			_ = p.Send(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/panic","mcpServers":[]}}`)
		}, 0, 0, contracts.CodeInternal},
		{"revoked while it does not read", func(p *memconn.Peer, end context.CancelCauseFunc) {
			p.Freeze()
			for range 30 {
				_ = p.Send(`7`)
			}
			synctest.Wait()
			end(revoked)
		}, 100, 0, contracts.CodeUnauthenticated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				peer, ended := serveSocket(ctx, memconn.Options{Buffer: tt.buffer})
				begun := time.Now()
				tt.do(peer, end)
				err := <-ended
				if after := time.Since(begun); !errors.Is(err, &contracts.Error{Code: tt.want}) || after > tt.within {
					t.Errorf("got %v after %v, want %s within %v", err, after, tt.want, tt.within)
				}
				if why, ok := peer.Closed(); !ok || why == nil || why.Code != tt.want {
					t.Errorf("got a close with %v, want %s", why, tt.want)
				}
				end(nil)
			})
		})
	}
}
