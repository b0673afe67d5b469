package conformance

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// utilities judges what clients run beside the agent: R81 to R101 in part.
func utilities() []Scenario {
	exec := Needs{Operation: contracts.OperationCommandExec}
	shared := Needs{Transport: Socket, Operation: contracts.OperationCommandExec}
	return []Scenario{
		Needs{}.scenario("utility/needs-capability", "R81 A79", "An operation that was not negotiated is refused", func(s *Session) {
			p := s.join("alice", &contracts.Hello{Role: contracts.RoleController})
			for _, c := range []struct {
				op  string
				cmd contracts.Command
			}{
				{"command_exec", &contracts.UtilityCommandStart{CommandID: "c", Command: "echo no"}},
				{"file_search", &contracts.UtilityFileSearch{SearchID: "s", Query: "x"}},
				{"file_read", &contracts.UtilityFileRead{ReadID: "r", Path: "x"}},
				{"file_watch", &contracts.UtilityFileWatchStart{WatchID: "w"}},
			} {
				p.refused(p.command(c.cmd), refusal{rule: "R81", text: c.cmd.CommandType() + " requires " + c.op + " capability",
					kind: contracts.ErrorTool, code: contracts.CodeUnsupportedCapability})
			}
			p.still("R81", 0, anyOf(message("utility_command_started"), message("utility_file_watch_started")))
		}),
		Needs{}.scenario("utility/unknown-ids", "R82", "Ending what does not exist needs no capability and says nothing", func(s *Session) {
			p := s.join("alice", &contracts.Hello{Role: contracts.RoleController})
			from := len(p.log)
			p.accepted("R82", p.command(&contracts.UtilityCommandTerminate{CommandID: "ghost"}))
			p.accepted("R82", p.command(&contracts.UtilityFileWatchStop{WatchID: "ghost"}))
			p.still("R82", from, anyOf(message("utility_command_exited"), message("utility_file_watch_stopped"),
				message("error").where("about ghost", func(f *Frame) bool { return strings.Contains(f.str("message"), "ghost") })))
		}),
		exec.scenario("utility/command", "R84 R85", "A command reports its start, both its outputs, and its end", func(s *Session) {
			p := s.operator()
			p.run("c1", "echo out; echo err >&2")
			end := p.expect("R84", message("utility_command_exited").with("command_id", "c1"))
			if end.at("success") != true || !same(end.at("exit_code"), 0) || end.at("signal") != nil {
				s.fail("R85", "expected success with exit code 0, got %s", end.Raw)
			}
			for stream, want := range map[string]string{"stdout": "out\n", "stderr": "err\n"} {
				var got strings.Builder
				for _, f := range p.log {
					if f.Type == "utility_command_output" && f.str("stream") == stream {
						got.WriteString(f.str("content"))
					}
				}
				if got.String() != want {
					s.fail("R85", "expected %q on %s, got %q", want, stream, got.String())
				}
			}
			p.still("R84", p.pos, anyOf(message("utility_command_output"), message("utility_command_exited")))
		}),
		exec.scenario("utility/duplicate-id", "R83", "The id of a running command is taken, that of an ended one free", func(s *Session) {
			p := s.operator()
			p.run("twin", "sleep 60")
			p.refused(p.command(&contracts.UtilityCommandStart{CommandID: "twin", Command: "echo no"}),
				refusal{rule: "R83", text: "Utility command already exists: twin", kind: contracts.ErrorTool})
			p.command(&contracts.UtilityCommandTerminate{CommandID: "twin", Force: true})
			p.expect("R84", message("utility_command_exited").with("command_id", "twin"))
			p.run("twin", "true")
			p.expect("R84", message("utility_command_exited").with("command_id", "twin").with("success", true))
		}),
		exec.scenario("utility/terminate", "R86", "A terminated command says so", func(s *Session) {
			p := s.operator()
			for _, c := range []struct {
				id             string
				force          bool
				signal, reason string
			}{
				{"gently", false, "SIGTERM", "Terminated by controller"},
				{"at-once", true, "SIGKILL", "Force terminated by controller"},
			} {
				p.run(c.id, "exec sleep 60")
				p.command(&contracts.UtilityCommandTerminate{CommandID: c.id, Force: c.force})
				p.expect("R86", message("utility_command_exited").with("command_id", c.id).with("success", false).
					with("exit_code", nil).with("signal", c.signal).with("reason", c.reason))
			}
		}),
		exec.scenario("utility/interrupt-ends-commands", "R67", "interrupt terminates commands", func(s *Session) {
			p := s.operator()
			p.run("cut", "exec sleep 60")
			p.command(&contracts.Interrupt{})
			p.expect("R67", message("utility_command_exited").with("command_id", "cut").with("success", false).
				with("reason", "Interrupted while utility command was still running"))
		}),
		exec.scenario("utility/no-stdin", "R88", "Without allow_stdin a command sees EOF and takes no input", func(s *Session) {
			p := s.operator()
			p.run("cat", "cat; exec sleep 60")
			p.refused(p.command(&contracts.UtilityCommandStdin{CommandID: "cat", Content: "x"}),
				refusal{rule: "R88", text: "Utility command stdin is not enabled: cat", kind: contracts.ErrorTool})
			p.run("eof", "cat")
			p.expect("R88", message("utility_command_exited").with("command_id", "eof").with("success", true))
			p.command(&contracts.UtilityCommandTerminate{CommandID: "cat", Force: true})
			p.expect("R84", message("utility_command_exited").with("command_id", "cat"))
		}),
		exec.scenario("utility/pipe-has-no-size", "R90", "Columns and rows need a terminal", func(s *Session) {
			p := s.operator()
			width := int64(80)
			p.refused(p.command(&contracts.UtilityCommandStart{CommandID: "flat", Command: "true", Columns: &width}),
				refusal{rule: "R90", text: "Utility command columns and rows require terminal_mode=pty", kind: contracts.ErrorTool})
			p.still("R90", 0, message("utility_command_started"))
		}),
		shared.scenario("utility/owned", "A29 R101", "A command belongs to the connection that started it", func(s *Session) {
			alice := s.operator()
			started := alice.run("hers", "sleep 60")
			s.equal("A29", started.str("owner_connection_id"), alice.connection,
				"owner_connection_id %q", alice.connection)
			bob := s.attach("bob", entry{role: contracts.RoleController, take: "1"})
			bob.refused(bob.command(&contracts.UtilityCommandTerminate{CommandID: "hers"}),
				refusal{rule: "A29", text: "Headless command hers is owned by another connection", code: contracts.CodeAccessDenied})
			from := len(bob.log)
			alice.send([]byte(`{"type":"ws.bye"}`))
			bob.await("R101", from, message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
		}),
		shared.scenario("utility/in-snapshot", "A66", "A running command is in the snapshot with its owner", func(s *Session) {
			alice := s.operator()
			alice.run("seen", "sleep 60")
			list := listOf(s.viewer("vera").last(control("snapshot")), "state.active_utility_commands")
			s.require(len(list) == 1 && list[0]["command_id"] == "seen" && list[0]["owner_connection_id"] == alice.connection,
				"A66", "expected the running command and its owner in the snapshot, got %s", show(list))
			alice.command(&contracts.UtilityCommandTerminate{CommandID: "seen", Force: true})
			alice.expect("R84", message("utility_command_exited").with("command_id", "seen"))
		}),
		Needs{Operation: contracts.OperationFileRead}.scenario("utility/read-outside", "R94 R97 A77", "A read outside the workspace is refused and names its request", func(s *Session) {
			p := s.operator()
			for _, path := range []string{"../../../../../../../../etc/hostname", "/etc/hostname"} {
				id := p.command(&contracts.UtilityFileRead{ReadID: "out", Path: path})
				if s.socket() {
					p.notAcceptedOrError("A77", id, "outside")
					continue
				}
				p.expect("R97", message("error").with("request_id", "out").with("error_type", "tool").with("fatal", false).
					where("saying outside or traversal", func(f *Frame) bool {
						return strings.Contains(f.str("message"), "outside workspace root") || strings.Contains(f.str("message"), "Path traversal detected")
					}))
			}
			p.still("R94", 0, message("utility_file_read_result"))
		}),
		Needs{Operation: contracts.OperationFileSearch}.scenario("utility/blank-search", "R95", "A blank query finds nothing", func(s *Session) {
			p := s.operator()
			p.accepted("R95", p.command(&contracts.UtilityFileSearch{SearchID: "blank", Query: "  "}))
			f := p.expect("R95", message("utility_file_search_results").with("search_id", "blank").with("query", "").with("truncated", false))
			s.equal("R95", len(listOf(f, "results")), 0, "no results for a blank query")
		}),
		Needs{Operation: contracts.OperationFileWatch}.scenario("utility/watch", "R100 5.4", "A watch starts and stops once", func(s *Session) {
			p := s.operator()
			p.accepted("5.4", p.command(&contracts.UtilityFileWatchStart{WatchID: "w"}))
			p.expect("5.4", message("utility_file_watch_started").with("watch_id", "w"))
			p.refused(p.command(&contracts.UtilityFileWatchStart{WatchID: "w"}),
				refusal{rule: "5.4", text: "Utility file watch already exists: w", kind: contracts.ErrorTool})
			p.accepted("5.4", p.command(&contracts.UtilityFileWatchStop{WatchID: "w"}))
			p.expect("5.4", message("utility_file_watch_stopped").with("watch_id", "w").with("reason", "Stopped by controller"))
			p.still("R99", p.pos, anyOf(message("utility_file_watch_event"), message("utility_file_watch_stopped")))
		}),
	}
}

// operator returns a controller of a server that offers the operation the
// scenario needs and those given, or skips.
func (s *Session) operator(also ...contracts.UtilityOperation) *Peer {
	s.negotiateOperations(also...)
	p := s.controller()
	s.skipUnlessOffered(p.last(message("hello_ok")))
	return p
}

// skipUnlessOffered skips a scenario unless a hello_ok lists what was negotiated.
func (s *Session) skipUnlessOffered(ok *Frame) {
	list, known := ok.at("server_capabilities.utility_operations").([]any)
	if !known { // it may still say what of an offer it keeps
		list, known = ok.at("capabilities.utility_operations").([]any)
	}
	for _, op := range s.operations {
		if known && !slices.Contains(list, any(string(op))) {
			s.skipOperation(op)
		}
	}
}

// run starts a command and waits until it has.
func (p *Peer) run(id, command string) *Frame {
	p.accepted("R84", p.command(&contracts.UtilityCommandStart{CommandID: id, Command: command}))
	return p.expect("R84", message("utility_command_started").with("command_id", id))
}

// notAcceptedOrError expects a ws.error for a frame, or an error message about
// it: an operation may fail after it was accepted.
func (p *Peer) notAcceptedOrError(rule, id, text string) {
	p.expect(rule, anyOf(control("ws.error").with("id", id), message("error")).
		where("saying "+text, func(f *Frame) bool { return strings.Contains(string(f.Raw), text) }))
}
