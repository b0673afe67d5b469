package conformance

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
)

// tools judges what clients run beside the agent, over HTTP: A12, A29, A66,
// A77 to A79.
func tools() []Scenario {
	exec := Needs{Transport: HTTP, Operation: contracts.OperationCommandExec}
	read := Needs{Transport: HTTP, Operation: contracts.OperationFileRead}
	return []Scenario{
		Needs{Transport: HTTP}.scenario("tool/needs-capability", "A79", "An operation that the sender did not negotiate is refused", func(s *Session) {
			s.negotiateOperations(contracts.OperationCommandExec, contracts.OperationFileSearch, contracts.OperationFileRead, contracts.OperationFileWatch)
			alice := s.caller("alice", contracts.RoleController)
			alice.connected(fields{"capabilities": leftOut})
			bob := s.takeFrom("bob") // negotiates everything, which is of no use to alice
			bob.disconnect(nil).ok("A15")
			for op, cmd := range map[string]contracts.Command{
				"command_exec": &contracts.UtilityCommandStart{CommandID: "c", Command: "true"},
				"file_search":  &contracts.UtilityFileSearch{SearchID: "s", Query: "x"},
				"file_read":    &contracts.UtilityFileRead{ReadID: "r", Path: "x"},
				"file_watch":   &contracts.UtilityFileWatchStart{WatchID: "w"},
			} {
				alice.post(cmd).refused("A79", contracts.CodeUnsupportedCapability, cmd.CommandType()+" requires "+op+" capability")
			}
		}),
		exec.scenario("tool/command-listed", "A66", "The answer to a start lists the command with its owner", toolCommandListed),
		exec.scenario("tool/command", "R84 R85", "A command reports its start, its output in one piece, and its end", toolCommand),
		exec.scenario("tool/owned", "A29 1.5", "A new controller cannot touch another's commands and watches, but interrupt ends them", func(s *Session) {
			alice, p := s.toolUser(contracts.OperationFileWatch)
			alice.posted("A29", &contracts.UtilityCommandStart{CommandID: "hers", Command: "cat", AllowStdin: true})
			alice.posted("A29", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			bob := s.takeFrom("bob")
			const text = "Headless command hers is owned by another connection"
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandTerminate{CommandID: "hers"}, &contracts.UtilityCommandStdin{CommandID: "hers", Content: "x"},
				&contracts.UtilityCommandResize{CommandID: "hers", Columns: 80, Rows: 24}} {
				bob.post(cmd).refused("A29", contracts.CodeAccessDenied, text)
			}
			bob.post(&contracts.UtilityFileWatchStop{WatchID: "hers"}).
				refused("A29", contracts.CodeAccessDenied, "Headless file watch hers is owned by another connection")
			bob.posted("3.4", &contracts.Interrupt{})
			p.expect("3.4", message("utility_command_exited").with("command_id", "hers").
				with("reason", "Interrupted while utility command was still running"))
		}),
		exec.scenario("tool/ends-with-connection", "A12", "With a connection its commands and watches end, and nobody else's", func(s *Session) {
			alice, _ := s.toolUser(contracts.OperationFileWatch)
			vera := s.follow("vera", follow{})
			vera.begins("A42")
			alice.start("A12", "hers", "sleep 60")
			alice.posted("A12", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			bob := s.takeFrom("bob")
			bob.start("A12", "his", "sleep 60")
			alice.disconnect(nil).ok("A12")
			at := vera.expect("A12", message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
			vera.await("A12", 0, message("utility_file_watch_stopped").with("watch_id", "hers").
				with("reason", "Owning connection closed while file watch was still running"))
			if f := s.stateWith("A12", "no watch", func(f *Frame) bool { return len(listOf(f, "state.active_file_watches")) == 0 }); active(f, "his") == nil {
				s.fail("A12", "expected the other's command to go on after %d, got %s", at.Cursor, show(f.at("state.active_utility_commands")))
			}
			bob.disconnect(nil).ok("A12")
			vera.expect("A12", message("utility_command_exited").with("command_id", "his"))
		}),
		exec.scenario("tool/ends-with-subscription", "A12 A10", "With its last subscription a connection's commands end", func(s *Session) {
			alice, _ := s.toolUser()
			vera := s.follow("vera", follow{})
			vera.begins("A42")
			alice.start("A12", "hers", "sleep 60")
			alice.unsubscribe(alice.subscription).ok("A10")
			vera.expect("A12", message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
		}),
		read.scenario("tool/read", "R96", "A file is read in lines, and what is left is said", func(s *Session) {
			alice, p := s.toolUser(contracts.OperationCommandExec)
			name, remove := alice.notes(p)
			two := int64(2)
			alice.posted("R96", &contracts.UtilityFileRead{ReadID: "r", Path: name, Limit: &two})
			p.expect("R96", message("utility_file_read_result").with("read_id", "r").with("relative_path", name).with("content", "alpha\nbeta").
				with("start_line", 1).with("end_line", 2).with("total_lines", 3).with("truncated", true))
			remove()
		}),
		read.scenario("tool/read-outside", "A77 R94", "A file outside the workspace is refused, saying so", func(s *Session) {
			alice, p := s.toolUser()
			for _, path := range []string{"/etc/hostname", "../../../../../../../../etc/hostname"} {
				a := alice.post(&contracts.UtilityFileRead{ReadID: "out", Path: path}).refused("A77", contracts.CodeWorkspaceViolation, "")
				s.require(strings.Contains(a.str("error"), "outside"),
					"A77", "expected the refusal to say outside, got %q", a.str("error"))
			}
			p.still("R94", 0, message("utility_file_read_result"))
		}),
		read.scenario("tool/read-through-link", "A78", "No link leads out of the workspace, not even to what is missing", func(s *Session) {
			alice, p := s.toolUser(contracts.OperationCommandExec)
			name := "conformance-" + uuid.NewString()[:8]
			alice.shell(p, "ln -s / "+name)
			for _, path := range []string{name + "/etc/hostname", name + "/no/such/file"} {
				alice.post(&contracts.UtilityFileRead{ReadID: "out", Path: path}).refused("A78", contracts.CodeWorkspaceViolation, "")
			}
			alice.shell(p, "rm -f "+name)
		}),
		read.scenario("tool/read-missing", "1.12", "A missing file is not found", func(s *Session) {
			alice, _ := s.toolUser()
			alice.post(&contracts.UtilityFileRead{ReadID: "none", Path: "conformance-no-such-file.txt"}).refused("1.12", contracts.CodeNotFound, "")
		}),
		Needs{Transport: HTTP, Operation: contracts.OperationFileSearch}.scenario("tool/search", "R95", "A search finds a file by its name", func(s *Session) {
			alice, p := s.toolUser(contracts.OperationCommandExec)
			name, remove := alice.notes(p)
			for deadline := time.Now().Add(s.config.Patience); ; { // the file was made just now
				alice.posted("R95", &contracts.UtilityFileSearch{SearchID: "s", Query: name})
				f := p.expect("R95", message("utility_file_search_results").with("search_id", "s").with("query", name))
				results := listOf(f, "results")
				if len(results) > 0 && strings.HasSuffix(textOf(results[0], "path"), name) {
					break
				}
				s.require(!time.Now().After(deadline),
					"R95", "expected %s to be found first, got %s", name, show(f.at("results")))
				s.pause("R95", 50*time.Millisecond)
			}
			remove()
		}),
		Needs{Transport: HTTP, Operation: contracts.OperationFileWatch}.scenario("tool/watch", "A66 R100", "A watch is listed with its owner, and stops once", func(s *Session) {
			alice, p := s.toolUser()
			f := alice.posted("A66", &contracts.UtilityFileWatchStart{WatchID: "w"}).effect()
			list := listOf(f, "state.active_file_watches")
			s.require(len(list) == 1 && list[0]["watch_id"] == "w" && list[0]["owner_connection_id"] == alice.connection,
				"A66", "expected the watch with its owner %s in the answer, got %s", alice.connection, show(list))
			a := alice.posted("R100", &contracts.UtilityFileWatchStop{WatchID: "w"})
			left := listOf(a.effect(), "state.active_file_watches")
			s.require(len(left) == 0, "A66", "expected no watch in the answer to its end, got %s", show(left))
			p.expect("R100", message("utility_file_watch_stopped").with("watch_id", "w").with("reason", "Stopped by controller"))
			p.still("R100", p.pos, message("utility_file_watch_stopped"))
		}),
		read.scenario("tool/searches-and-reads-are-one-time", "R96", "Reads and searches leave nothing in the state", func(s *Session) {
			alice, p := s.toolUser(contracts.OperationCommandExec, contracts.OperationFileSearch)
			name, remove := alice.notes(p)
			alice.posted("R96", &contracts.UtilityFileRead{ReadID: "r", Path: name})
			alice.posted("R95", &contracts.UtilityFileSearch{SearchID: "s", Query: name})
			p.await("R96", 0, message("utility_file_read_result").with("content", "alpha\nbeta\ngamma").with("truncated", false))
			p.await("R95", 0, message("utility_file_search_results").with("search_id", "s"))
			checkIdle(s, "R96", s.state())
			remove()
		}),
	}
}

// toolUser returns a controller of a server that offers the operations, with
// its stream, or skips.
func (s *Session) toolUser(also ...contracts.UtilityOperation) (*Caller, *Peer) {
	s.negotiateOperations(also...)
	alice, p := s.attached()
	alice.hello(s.hello(contracts.RoleController)).ok("1.12")
	s.skipUnlessOffered(p.expect("A60", message("hello_ok")))
	return alice, p
}

// start starts a command and returns the answer, which must list it.
func (c *Caller) start(rule, id, command string) *Answer {
	a := c.posted(rule, &contracts.UtilityCommandStart{CommandID: id, Command: command})
	return a
}

// active returns the entry of a command in a snapshot, or nil.
func active(f *Frame, id string) map[string]any {
	for _, e := range listOf(f, "state.active_utility_commands") {
		if e["command_id"] == id {
			return e
		}
	}
	return nil
}

func toolCommandListed(s *Session) {
	alice, p := s.toolUser()
	e := active(alice.start("A66", "listed", "sleep 60").effect(), "listed")
	s.require(e != nil && e["owner_connection_id"] == alice.connection && e["command"] == "sleep 60",
		"A66", "expected the command with its owner %s in the answer, got %s", alice.connection, show(e))
	alice.posted("R86", &contracts.UtilityCommandTerminate{CommandID: "listed", Force: true})
	p.expect("R86", message("utility_command_exited").with("command_id", "listed").with("success", false).with("reason", "Force terminated by controller"))
	s.stateWith("R86", "no command", func(f *Frame) bool { return active(f, "listed") == nil })
}

func toolCommand(s *Session) {
	alice, p := s.toolUser()
	alice.posted("R84", &contracts.UtilityCommandStart{CommandID: "direct", Command: `'printf' 'one\ntwo\n'`, ShellMode: "direct"})
	p.expect("R84", message("utility_command_started").with("command_id", "direct").with("owner_connection_id", alice.connection))
	out := p.expect("R85", message("utility_command_output").with("command_id", "direct"))
	s.require(out.str("content") == "one\ntwo\n" && out.str("stream") == "stdout",
		"R85", "expected the output in one piece, got %s", abridge(out.Raw, maxTraceText))
	p.expect("R85", message("utility_command_exited").with("command_id", "direct").with("success", true).with("exit_code", 0))
}

// notes has a command write a file of three lines, and the function that
// removes it.
func (c *Caller) notes(p *Peer) (name string, remove func()) {
	name = "conformance-" + uuid.NewString()[:8] + ".txt"
	c.shell(p, `printf 'alpha\nbeta\ngamma\n' > `+name)
	return name, func() { c.shell(p, "rm -f "+name) }
}

// shell runs a command to its end.
func (c *Caller) shell(p *Peer, command string) {
	c.s.ids++
	id := "sh-" + uuid.NewString()[:8]
	c.start("R84", id, command)
	p.expect("R84", message("utility_command_exited").with("command_id", id).with("success", true))
}
