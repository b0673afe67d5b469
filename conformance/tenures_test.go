package conformance

import (
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// said is a message as a client receives it; keys and values in turn.
func said(kind string, pairs ...string) *Frame {
	f := &Frame{Kind: "message", Type: kind, Fields: map[string]any{"type": kind}}
	for i := 0; i < len(pairs); i += 2 {
		f.Fields[pairs[i]] = pairs[i+1]
	}
	return f
}

func TestUtilitiesSayNothingOutsideTheirLives(t *testing.T) {
	started := func(mode string) *Frame {
		return said("utility_command_started", "command_id", "c", "terminal_mode", mode)
	}
	output := func(stream, text string) *Frame {
		return said("utility_command_output", "command_id", "c", "stream", stream, "content", text)
	}
	exited, resized := said("utility_command_exited", "command_id", "c"), said("utility_command_resized", "command_id", "c")
	watching, stopped := said("utility_file_watch_started", "watch_id", "c"), said("utility_file_watch_stopped", "watch_id", "c")
	event := said("utility_file_watch_event", "watch_id", "c")
	for _, tt := range []struct {
		name   string
		frames []*Frame
		rule   string // that is broken; empty is none
	}{
		{"a whole life, twice", []*Frame{started("pipe"), output("stderr", "x"), exited, started("pty"), resized, output("stdout", "x"), exited}, ""},
		{"output before the start", []*Frame{output("stdout", "x")}, "R84"},
		{"output after the exit", []*Frame{started("pipe"), exited, output("stdout", "x")}, "R84"},
		{"two exits", []*Frame{started("pipe"), exited, exited}, "R84"},
		{"two starts", []*Frame{started("pipe"), started("pipe")}, "R83"},
		{"a pipe with a size", []*Frame{started("pipe"), resized}, "R90"},
		{"stderr of a terminal", []*Frame{started("pty"), output("stderr", "x")}, "2.2"},
		{"too much at once", []*Frame{started("pipe"), output("stdout", strings.Repeat("x", contracts.MaxTextBytes+1))}, "5.1"},
		{"a watch with the id of a command", []*Frame{watching, started("pipe"), event, exited, event, stopped}, ""},
		{"an event before the start", []*Frame{event, watching}, "R99"},
		{"an event after the stop", []*Frame{watching, stopped, event}, "R99"},
		{"two watches", []*Frame{watching, watching}, "5.4"},
	} {
		s := newSession(t.Context(), &Config{Target: "stdio:none"}, Scenario{})
		p := &Peer{s: s, name: "alice"}
		p.watch.init()
		p.watch.complete = true
		done := make(chan struct{})
		go func() { // ends after the last message, or with the failure
			defer close(done)
			for _, f := range tt.frames {
				p.watch.utility(p, f)
			}
		}()
		<-done
		rule := ""
		if s.failure != nil {
			rule = s.failure.Rule
		}
		if rule != tt.rule {
			t.Errorf("%s: got rule %q, want %q", tt.name, rule, tt.rule)
		}
	}
}
