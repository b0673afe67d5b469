//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
)

// patience bounds what a test waits for; it only matters when something hangs.
const patience = 30 * time.Second

// A screenful is what one client has read, to wait for a text in it.
type screenful struct {
	t    *testing.T
	name string
	next func(context.Context) (client.Update, error)
}

// until reads until an update's text contains want, and returns all it read.
func (s screenful) until(want string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var all strings.Builder
	for {
		u, err := s.next(ctx)
		if err != nil {
			s.t.Fatalf("%s: got %v after\n%s\nwant %s", s.name, err, all.String(), want)
		}
		text := u.Body
		if u.Kind == client.KindControl {
			if text, err = contracts.EncodeFrame(u.Control); err != nil {
				s.t.Fatal(err)
			}
		}
		all.Write(text)
		all.WriteByte('\n')
		if strings.Contains(string(text), want) {
			return all.String()
		}
	}
}

// TestPipeAndSocketShareOneSession drives one session from standard input and
// from a WebSocket in turn; each takes over from the other.
func TestPipeAndSocketShareOneSession(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	local := program(t, "headless", "--listen", "127.0.0.1:0", "--ready-file", path)
	in, err := local.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe := screenful{t, "pipe", linesOf(t, local)}
	pipe.until(`"type":"ready"`)
	var ready readiness
	if text, err := os.ReadFile(path); err != nil || json.Unmarshal(text, &ready) != nil {
		t.Fatalf("got ready file %s, %v", text, err)
	}
	remote := (&running{t: t, ready: ready}).attach(client.WithRole(contracts.RoleController), client.WithTakeover(contracts.TakeoverLater))
	socket := screenful{t, "socket", remote.Next}
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(in, text+"\n"); err != nil {
			t.Fatal(err)
		}
	}

	say(`{"type":"init","approval_mode":"auto"}`)
	say(`{"type":"prompt","content":"echo from the pipe"}`)
	for _, s := range []screenful{pipe, socket} {
		if got := s.until(`"response_end"`); !strings.Contains(got, `from the pipe\n`) {
			t.Errorf("%s: got %s, want the output of the command", s.name, got)
		}
	}
	if _, err := remote.Prompt(t.Context(), "echo refused"); err == nil {
		t.Error("the socket could drive without control")
	}

	if _, err := remote.TakeControl(t.Context()); err != nil {
		t.Fatal(err)
	}
	pipe.until(`"controller_connection_id":"` + remote.Attached().ConnectionID + `"`)
	say(`{"type":"prompt","content":"echo refused"}`)
	pipe.until(`currently held by another connection`)
	if _, err := remote.Prompt(t.Context(), "echo from the socket"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []screenful{pipe, socket} {
		if got := s.until(`"response_end"`); !strings.Contains(got, `from the socket\n`) || strings.Contains(got, `refused\n`) {
			t.Errorf("%s: got %s, want the output of the socket's command alone", s.name, got)
		}
	}

	say(`{"type":"ws.take_control","id":"t1"}`)
	pipe.until(`"id":"t1"`)
	socket.until(`"reason":"taken_over"`)
	say(`{"type":"prompt","content":"echo back at the pipe"}`)
	for _, s := range []screenful{pipe, socket} {
		if got := s.until(`"response_end"`); !strings.Contains(got, `back at the pipe\n`) {
			t.Errorf("%s: got %s, want the output of the command", s.name, got)
		}
	}

	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for err = error(nil); err == nil; {
		_, err = pipe.next(t.Context())
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the output", err)
	}
	if err := local.Wait(); err != nil {
		t.Errorf("got %v, want a normal end", err)
	}
}

// linesOf starts a server and returns a function that returns each line of its output
// as an update, and io.EOF at the end.
func linesOf(t *testing.T, cmd *exec.Cmd) func(context.Context) (client.Update, error) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, done := make(chan []byte), make(chan struct{})
	t.Cleanup(func() {
		close(done)
		_ = cmd.Process.Kill() // it has ended unless the test failed
		_ = cmd.Wait()
	})
	go func() {
		defer close(lines)
		for in := line.NewReader(out, contracts.MaxLineBytes); ; {
			text, err := in.Next()
			if err != nil {
				return
			}
			select {
			case lines <- bytes.Clone(text):
			case <-done:
				return
			}
		}
	}()
	return func(ctx context.Context) (client.Update, error) {
		select {
		case text, ok := <-lines:
			if !ok {
				return client.Update{}, io.EOF
			}
			return client.Update{Kind: client.KindEvent, Body: text}, nil
		case <-ctx.Done():
			return client.Update{}, context.Cause(ctx)
		}
	}
}
