package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// A tenure is how far a command or a watch has come, as one client sees it.
type tenure int

const (
	unheard tenure = iota // begun before the client came, or never
	onPipes               // of commands
	onTerminal
	watching // of watches
	over
)

// utility checks one message about a command or a watch: R84, R99, 2.2 and 5.1.
func (w *watch) utility(p *Peer, f *Frame) {
	id := f.str("command_id")
	if id == "" {
		id = "watch " + f.str("watch_id")
	}
	was := w.tenures[id]
	running := was != unheard && was != over
	switch f.Type {
	case "utility_command_started":
		if running {
			p.s.fail("R83", "%s: %s starts while it is running", p.name, id)
		}
		w.tenures[id] = onPipes
		if f.at("terminal_mode") == string(contracts.TerminalPTY) {
			w.tenures[id] = onTerminal
		}
	case "utility_file_watch_started":
		if running {
			p.s.fail("5.4", "%s: %s starts while it is active", p.name, id)
		}
		w.tenures[id] = watching
	case "utility_command_output", "utility_command_resized", "utility_command_exited", "utility_file_watch_event", "utility_file_watch_stopped":
		if was == over || was == unheard && w.complete && !w.joined {
			p.s.fail(ruleOf(f.Type), "%s: %s comes before %s started or after it ended: %s", p.name, f.Type, id, f.said())
		}
		w.utilityEvent(p, f, id, was)
	}
}

// ruleOf is the rule that keeps a message within the life of what it is about.
func ruleOf(kind string) string {
	if kind == "utility_file_watch_event" || kind == "utility_file_watch_stopped" {
		return "R99"
	}
	return "R84"
}

// utilityEvent checks what lies within the life of a command or a watch, and ends
// it.
func (w *watch) utilityEvent(p *Peer, f *Frame, id string, was tenure) {
	switch f.Type {
	case "utility_command_output":
		if was == onTerminal && f.str("stream") != "stdout" {
			p.s.fail("2.2", "%s: a terminal has no stream but stdout, got %s", p.name, f.said())
		}
		if n := len(f.str("content")); n > contracts.MaxTextBytes {
			p.s.advise("5.1:pieces", "%s: expected at most %d bytes of output in a message, got %d", p.name, contracts.MaxTextBytes, n)
		}
	case "utility_command_resized":
		if was == onPipes {
			p.s.fail("R90", "%s: a pipe has no size, got %s", p.name, f.said())
		}
	case "utility_command_exited", "utility_file_watch_stopped":
		w.tenures[id] = over
	}
}
