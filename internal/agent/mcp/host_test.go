package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// A testHost says when a question is open, as the hub does.
type testHost struct{ *hosttest.Host }

// Ask implements [contracts.Host].
func (h testHost) Ask(ctx context.Context, req *contracts.ServerRequest, o contracts.AskOptions) (contracts.Outcome, error) {
	opened := make(chan struct{})
	go func() { // ends once the question was shown
		defer close(opened)
		h.Await(func(ev contracts.Event) bool {
			shown, ok := ev.(*contracts.ServerRequest)
			return ok && shown.RequestID == req.RequestID
		})
		if o.Opened != nil {
			o.Opened()
		}
	}()
	defer func() { <-opened }()
	return h.Host.Ask(ctx, req, o)
}

// newHost returns a host that leaves questions open.
func newHost(t *testing.T) *hosttest.Host {
	h := hosttest.New(t)
	h.Answer = nil
	return h
}

// statuses returns what was said in the open of single servers.
func statuses(h *hosttest.Host) string {
	var b strings.Builder
	for _, s := range hosttest.As[*contracts.Status](h) {
		if strings.HasPrefix(s.Message, "MCP server \"") {
			b.WriteString(s.Message + "\n")
		}
	}
	return b.String()
}

// awaitStatus returns once something with part in it was said in the open.
func awaitStatus(t *testing.T, h *hosttest.Host, part string) {
	t.Helper()
	h.Await(func(ev contracts.Event) bool {
		s, ok := ev.(*contracts.Status)
		return ok && strings.Contains(s.Message, part)
	})
}

// open opens servers that are closed with the test, and returns when each was
// reached or not.
func open(t *testing.T, h *hosttest.Host, o Options, servers ...Server) *Set {
	t.Helper()
	o.Servers = servers
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if h == nil {
		h = newHost(t)
	}
	o.Host = testHost{h}
	s := Open(o)
	t.Cleanup(s.Close)
	reach(t, s)
	return s
}

// reach waits for the attempt of each server that is under way.
func reach(t *testing.T, s *Set) {
	t.Helper()
	for _, l := range s.links {
		if attempt, _, ok := l.awaited(); ok {
			select {
			case <-attempt:
			case <-time.After(hosttest.Patience):
				t.Fatal("got no end of an attempt, want one")
			}
		}
	}
}

// testProgram returns this program as a server of some kind.
func testProgram(t *testing.T, name, kind string, more ...string) Server {
	t.Helper()
	server := Server{Name: name, Command: testBinary(t), Env: map[string]string{kindVariable: kind}}
	for i := 0; i < len(more); i += 2 {
		server.Env[more[i]] = more[i+1]
	}
	return server
}

// must calls a tool that has to answer.
func must(t *testing.T, s *Set, tool, args string) Result {
	t.Helper()
	res, err := s.Call(t.Context(), tool, json.RawMessage(args), nil)
	if err != nil {
		t.Fatalf("%s: got %v, want a result", tool, err)
	}
	return res
}

// says fails the test if the result is not this text, and no error.
func says(t *testing.T, res Result, want string) {
	t.Helper()
	if res.IsError || res.Text != want {
		t.Errorf("got %q, error %v; want %q", res.Text, res.IsError, want)
	}
}
