package conformance

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// utilities judges what clients run beside the agent: A12, A29, A66, A77 to A79, and R81 to
// R101 in part.
func utilities() []Scenario {
	exec := Needs{Operation: contracts.OperationCommandExec}
	shared := Needs{Transport: Socket, Operation: contracts.OperationCommandExec}
	overHTTP := func(op contracts.UtilityOperation) Needs { return Needs{Transport: HTTP, Operation: op} }
	return []Scenario{
		Needs{}.scenario("utility/needs-capability", "R81 A79", "An operation that was not negotiated is refused", func(s *Session) {
			p := s.join("alice", &contracts.Hello{Role: contracts.RoleController})
			for op, cmd := range oneOfEach {
				p.refused(p.command(cmd), refusal{rule: "R81", text: cmd.CommandType() + " requires " + string(op) + " capability",
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
		exec.using("utility/command", "R84 R85", "A command reports its start, both its outputs, and its end", func(u *user) {
			j := u.sh("R84", "echo out; echo err >&2")
			j.exits("R85", fields{"success": true, "exit_code": 0, "signal": nil}).prints("R85", "out\n")
			u.s.equal("R85", "stderr", j.output("stderr"), "err\n")
			u.still("R84", len(u.log), anyOf(message("utility_command_output"), message("utility_command_exited")))
		}),
		exec.using("utility/duplicate-id", "R83", "The id of a running command is taken, that of an ended one free", func(u *user) {
			j := u.sh("R83", "exec sleep 600")
			again := &contracts.UtilityCommandStart{CommandID: j.id, Command: "true"}
			u.denied(again, refusal{rule: "R83", text: "Utility command already exists: " + j.id})
			j.end()
			u.start("R83", again).exits("R83", fields{"success": true})
		}),
		exec.using("utility/terminate", "R86", "A terminated command says so", terminated(contracts.TerminalPipe)),
		exec.using("utility/interrupt-ends-commands", "R67", "interrupt terminates commands", func(u *user) {
			j := u.sh("R67", "exec sleep 600")
			u.try(&contracts.Interrupt{})
			j.exits("R67", fields{"success": false, "reason": "Interrupted while utility command was still running"})
		}),
		exec.using("utility/no-stdin", "R88", "Without allow_stdin a command sees EOF and takes no input", noStdin),
		exec.using("utility/pipe-has-no-size", "R90", "Columns and rows need a terminal", func(u *user) {
			u.denied(&contracts.UtilityCommandStart{CommandID: "flat", Command: "true", Columns: new(int64(80))},
				refusal{rule: "R90", text: "Utility command columns and rows require terminal_mode=pty"})
			u.still("R90", 0, message("utility_command_started"))
		}),
		shared.user("utility/owned", "A29 R101", "A command belongs to the connection that started it", func(s *Session, alice *user) {
			hers := alice.start("R84", &contracts.UtilityCommandStart{CommandID: "hers", Command: "sleep 600"})
			s.equal("A29", "owner_connection_id", hers.started.str("owner_connection_id"), alice.connection)
			bob := s.second()
			bob.denied(&contracts.UtilityCommandTerminate{CommandID: "hers"},
				refusal{rule: "A29", text: "Headless command hers is owned by another connection", code: contracts.CodeAccessDenied})
			from := len(bob.log)
			alice.send([]byte(`{"type":"ws.bye"}`))
			bob.await("R101", from, message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
		}),
		shared.user("utility/in-snapshot", "A66", "A running command is in the snapshot with its owner", func(s *Session, alice *user) {
			seen := alice.sh("R84", "sleep 600")
			list := listOf(alice.state(), "state.active_utility_commands")
			s.failIf(len(list) != 1 || list[0]["command_id"] != seen.id || list[0]["owner_connection_id"] != alice.connection,
				"A66", "expected the running command and its owner in the snapshot, got %s", show(list))
			seen.end()
		}),
		Needs{Operation: contracts.OperationFileRead}.scenario("utility/read-outside", "R94 R97 A77", "A read outside the workspace is refused and names its request", func(s *Session) {
			p := s.operator()
			for _, path := range []string{"../../../../../../../../etc/hostname", "/etc/hostname"} {
				id := p.command(&contracts.UtilityFileRead{ReadID: "out", Path: path})
				if s.socket() {
					p.expect("A77", anyOf(control("ws.error").with("id", id), message("error")).
						where("saying outside", func(f *Frame) bool { return strings.Contains(string(f.Raw), "outside") }))
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
			s.equal("R95", "the number of results for a blank query", len(listOf(f, "results")), 0)
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
		Needs{Transport: HTTP}.scenario("tool/needs-capability", "A79", "An operation that the sender did not negotiate is refused", func(s *Session) {
			s.negotiateOperations(contracts.OperationCommandExec, contracts.OperationFileSearch, contracts.OperationFileRead, contracts.OperationFileWatch)
			alice := s.caller("alice", contracts.RoleController)
			alice.connected(fields{"capabilities": leftOut})
			bob := s.takeFrom("bob") // negotiates everything, which is of no use to alice
			bob.disconnect(nil).ok("A15")
			for op, cmd := range oneOfEach {
				alice.post(cmd).refused("A79", contracts.CodeUnsupportedCapability, cmd.CommandType()+" requires "+string(op)+" capability")
			}
		}),
		overHTTP(contracts.OperationCommandExec).scenario("tool/command-listed", "A66", "The answer to a start lists the command with its owner", toolCommandListed),
		overHTTP(contracts.OperationCommandExec).scenario("tool/command", "R84 R85", "A command reports its start, its output in one piece, and its end", toolCommand),
		overHTTP(contracts.OperationCommandExec).scenario("tool/owned", "A29 1.5", "A new controller cannot touch another's commands and watches, but interrupt ends them", func(s *Session) {
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
		overHTTP(contracts.OperationCommandExec).scenario("tool/ends-with-connection", "A12", "With a connection its commands and watches end, and nobody else's", func(s *Session) {
			alice, _ := s.toolUser(contracts.OperationFileWatch)
			vera := s.onlooker("vera")
			alice.start("A12", "hers", "sleep 600")
			alice.posted("A12", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			bob := s.takeFrom("bob")
			bob.start("A12", "his", "sleep 600")
			alice.disconnect(nil).ok("A12")
			at := vera.expect("A12", message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
			vera.await("A12", 0, message("utility_file_watch_stopped").with("watch_id", "hers").
				with("reason", "Owning connection closed while file watch was still running"))
			f := s.stateWith("A12", "no watch", func(f *Frame) bool { return len(listOf(f, "state.active_file_watches")) == 0 })
			s.failIf(active(f, "his") == nil,
				"A12", "expected the other's command to go on after %d, got %s", at.Cursor, show(f.at("state.active_utility_commands")))
			bob.disconnect(nil).ok("A12")
			vera.expect("A12", message("utility_command_exited").with("command_id", "his"))
		}),
		overHTTP(contracts.OperationCommandExec).scenario("tool/ends-with-subscription", "A12 A10", "With its last subscription a connection's commands end", func(s *Session) {
			alice, _ := s.toolUser()
			vera := s.onlooker("vera")
			alice.start("A12", "hers", "sleep 600")
			alice.unsubscribe(alice.subscription).ok("A10")
			vera.expect("A12", message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
		}),
		overHTTP(contracts.OperationFileRead).settled("tool/read", "R96", "A file is read in lines, and what is left is said", func(u *user) {
			u.shell("printf 'alpha\\nbeta\\ngamma\\n' > " + u.rel + "/f")
			u.s.shows("R96", u.read("R96", u.lines("f", 1, 2)), fields{"relative_path": u.rel + "/f", "content": "alpha\nbeta",
				"start_line": 1, "end_line": 2, "total_lines": 3, "truncated": true})
		}),
		overHTTP(contracts.OperationFileRead).scenario("tool/read-outside", "A77 R94", "A file outside the workspace is refused, saying so", func(s *Session) {
			alice, p := s.toolUser()
			for _, path := range []string{"/etc/hostname", "../../../../../../../../etc/hostname"} {
				alice.post(&contracts.UtilityFileRead{ReadID: "out", Path: path}).outside()
			}
			p.still("R94", 0, message("utility_file_read_result"))
		}),
		overHTTP(contracts.OperationFileRead).settled("tool/read-through-link", "A78", "No link leads out of the workspace, not even to what is missing", func(u *user) {
			u.shell("ln -s / " + u.rel + "/all")
			for _, path := range []string{"/all/etc/hostname", "/all/no/such/file"} {
				u.caller.post(&contracts.UtilityFileRead{ReadID: "out", Path: u.rel + path}).refused("A78", contracts.CodeWorkspaceViolation, "")
			}
		}),
		overHTTP(contracts.OperationFileRead).scenario("tool/read-missing", "1.12", "A missing file is not found", func(s *Session) {
			alice, _ := s.toolUser()
			alice.post(&contracts.UtilityFileRead{ReadID: "none", Path: "conformance-no-such-file.txt"}).refused("1.12", contracts.CodeNotFound, "")
		}),
		overHTTP(contracts.OperationFileSearch).settled("tool/search", "R95", "A search finds a file by its name", func(u *user) {
			u.files("notes.txt")
			u.findsBelow("R95", nil, u.rel+"/notes.txt", u.root, func(got []string) bool {
				return len(got) > 0 && strings.HasSuffix(got[0], " "+u.rel+"/notes.txt")
			})
		}),
		overHTTP(contracts.OperationFileWatch).scenario("tool/watch", "A66 R100", "A watch is listed with its owner, and stops once", func(s *Session) {
			alice, p := s.toolUser()
			alice.watches(&contracts.UtilityFileWatchStart{WatchID: "w"})
			alice.endsWatch("R100", "w")
			p.expect("R100", message("utility_file_watch_stopped").with("watch_id", "w").with("reason", "Stopped by controller"))
			p.still("R100", p.pos, message("utility_file_watch_stopped"))
		}),
		overHTTP(contracts.OperationFileRead).scenario("tool/searches-and-reads-are-one-time", "R96", "Reads and searches leave nothing in the state", settled(func(u *user) {
			u.files("f")
			u.reads("R96", u.all("f"), window{"text", 1, 1, 1, false})
			u.search("R95", "f", nil)
			checkIdle(u.s, "R96", u.state())
		}, contracts.OperationFileSearch)),
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

// toolUser returns a controller of a server that offers the operations, with
// its stream, or skips.
func (s *Session) toolUser(also ...contracts.UtilityOperation) (*Caller, *Peer) {
	s.negotiateOperations(also...)
	alice, p := s.attached()
	alice.hello(s.hello(contracts.RoleController)).ok("1.12")
	s.skipUnlessOffered(p.expect("A60", message("hello_ok")))
	return alice, p
}

func (c *Caller) start(rule, id, command string) *Answer {
	return c.posted(rule, &contracts.UtilityCommandStart{CommandID: id, Command: command})
}

func (c *Caller) watches(cmd *contracts.UtilityFileWatchStart) {
	list := listOf(c.posted("A66", cmd).effect(), "state.active_file_watches")
	c.s.failIf(len(list) != 1 || list[0]["watch_id"] != cmd.WatchID || list[0]["owner_connection_id"] != c.connection,
		"A66", "expected the watch with its owner %s in the answer, got %s", c.connection, show(list))
}

// endsWatch ends the only watch, which the answer must list no more.
func (c *Caller) endsWatch(rule, id string) {
	left := listOf(c.posted(rule, &contracts.UtilityFileWatchStop{WatchID: id}).effect(), "state.active_file_watches")
	c.s.failIf(len(left) != 0, "A66", "expected no watch in the answer to its end, got %s", show(left))
}

// outside fails unless a read was refused for a path outside the workspace.
func (a *Answer) outside() {
	a.refused("A77", contracts.CodeWorkspaceViolation, "")
	a.s.failIf(!strings.Contains(a.str("error"), "outside"), "A77", "expected the refusal to say outside, got %q", a.str("error"))
}

func active(f *Frame, id string) map[string]any {
	return entryWith(f, "state.active_utility_commands", "command_id", id)
}

func toolCommandListed(s *Session) {
	alice, p := s.toolUser()
	e := active(alice.start("A66", "listed", "sleep 600").effect(), "listed")
	s.failIf(e == nil || e["owner_connection_id"] != alice.connection || e["command"] != "sleep 600",
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
	s.failIf(out.str("content") != "one\ntwo\n" || out.str("stream") != "stdout",
		"R85", "expected the output in one piece, got %s", abridge(out.Raw, maxTraceText))
	p.expect("R85", message("utility_command_exited").with("command_id", "direct").with("success", true).with("exit_code", 0))
}

var oneOfEach = map[contracts.UtilityOperation]contracts.Command{
	contracts.OperationCommandExec: &contracts.UtilityCommandStart{CommandID: "c", Command: "true"},
	contracts.OperationFileSearch:  &contracts.UtilityFileSearch{SearchID: "s", Query: "x"},
	contracts.OperationFileRead:    &contracts.UtilityFileRead{ReadID: "r", Path: "x"},
	contracts.OperationFileWatch:   &contracts.UtilityFileWatchStart{WatchID: "w"},
}

// audiences judges who may use utilities and who sees what they do: 3.6, 3.7,
// R28, R29, R79, A79.
func audiences() []Scenario {
	return []Scenario{
		Needs{Operation: contracts.OperationCommandExec}.scenario("audience/opt-outs", "3.7", "Utility events cannot be opted out of", func(s *Session) {
			u := &user{Peer: s.join("alice", s.optingOut(contracts.RoleController, contracts.Notifications()...))}
			s.skipUnlessOffered(u.last(message("hello_ok")))
			u.sh("3.7", "echo seen").prints("3.7", "seen\n")
		}),
		Needs{Operation: contracts.OperationCommandExec}.user("audience/later-hello", "R29 R81 R82", "A later hello takes capabilities away, and what runs goes on", func(_ *Session, u *user) {
			j := u.reading("R29", "cat; "+lasting)
			u.hello(&contracts.Hello{Role: contracts.RoleController, Capabilities: &contracts.Capabilities{
				UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}}})
			u.await("R22", j.from, message("hello_ok"))
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandStart{CommandID: "second", Command: "true"}, &contracts.UtilityCommandStdin{CommandID: j.id, Content: "x"}} {
				u.denied(cmd, refusal{rule: "R81", text: cmd.CommandType() + " requires command_exec capability", code: contracts.CodeUnsupportedCapability})
			}
			u.none("R81", 0, about("second"))
			j.end()
		}),
		sharedCommands.user("audience/own-capabilities", "A79 3.6", "The capabilities of the sender count, not those of another", func(s *Session, alice *user) {
			hers := alice.sleeper("hers")
			h := &contracts.Hello{Role: contracts.RoleController, Capabilities: &contracts.Capabilities{UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}}}
			bob := &user{Peer: s.attach("bob", entry{role: contracts.RoleController, take: "1", hello: h})}
			bob.denied(&contracts.UtilityCommandStart{CommandID: "his", Command: "true"},
				refusal{rule: "A79", text: "utility_command_start requires command_exec capability", code: contracts.CodeUnsupportedCapability})
			bob.denied(&contracts.UtilityFileSearch{SearchID: "his", Query: "x"},
				refusal{rule: "A79", text: "utility_file_search requires file_search capability", code: contracts.CodeUnsupportedCapability})
			alice.still("A79", hers.from, about("his"))
		}),
		sharedCommands.user("audience/viewer", "R28 A37", "A viewer sees what commands do, and can do nothing to them", func(s *Session, alice *user) {
			vera := s.viewer("vera")
			j := alice.reading("A37", "echo shown; cat >/dev/null; "+lasting)
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "w"})
			vera.await("A37", 0, message("utility_command_started").with("command_id", j.id))
			vera.await("A37", 0, message("utility_command_output").with("command_id", j.id).with("content", "shown\n"))
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandStart{CommandID: "hers", Command: "true"}, &contracts.UtilityCommandTerminate{CommandID: j.id, Force: true},
				&contracts.UtilityCommandStdin{CommandID: j.id, EOF: true}, &contracts.UtilityFileRead{ReadID: "r", Path: "x"}} {
				vera.refused(vera.command(cmd), refusal{rule: "R28", text: textViewer, code: contracts.CodeAccessDenied})
			}
			alice.still("R28", j.from, anyOf(message("utility_command_exited"), about("hers"), toolError))
			j.end()
			vera.await("A37", 0, message("utility_command_exited").with("command_id", j.id))
		}, contracts.OperationFileWatch),
		sharedCommands.scenario("audience/same-for-all", "A48 2.5", "Everybody sees the same of commands and watches", func(s *Session) {
			alice := s.user(contracts.OperationFileWatch, contracts.OperationFileSearch, contracts.OperationFileRead)
			vera := s.viewer("vera")
			joined := vera.last(message("hello_ok")).Cursor
			alice.busy()
			alice.prompt("the end")
			endTogether(vera, alice.Peer)
			sameSequence(s, "A48", joined, alice.Peer, vera)
		}),
		sharedCommands.user("audience/late", "A49 A66", "Who comes later learns of what runs, and sees its end", func(s *Session, alice *user) {
			j := alice.reading("A66", "echo before; read x; echo after; exit 5").says("A66", "before\n")
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "w"})
			vera := s.viewer("vera")
			if e := active(vera.last(control("snapshot")), j.id); e == nil || e["output"] != "before\n" || !same(e["pid"], int(number(j.started.at("pid")))) {
				s.fail("A66", "expected the command with what it wrote, got %s", show(e))
			}
			j.write("A66", "\n", false)
			vera.await("A49", 0, message("utility_command_output").with("command_id", j.id).with("content", "after\n"))
			vera.await("A49", 0, message("utility_command_exited").with("command_id", j.id).with("exit_code", 5))
			alice.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "w"})
			vera.await("A49", 0, message("utility_file_watch_stopped").with("watch_id", "w"))
		}, contracts.OperationFileWatch),
		sharedCommands.user("audience/returning", "A43", "Output that was missed is seen on return", func(s *Session, alice *user) {
			j := alice.reading("A43", "read x; seq 1 20000; read x; exit 6")
			vera := s.viewer("vera")
			vera.fence()
			cursor := vera.watch.cursor
			vera.close()
			j.write("A43", "\n", false)
			j.says("A43", "\n20000\n")
			victor := s.back("victor", cursor, vera.epoch).replays("A43")
			j.write("A43", "\n", false)
			seen := &job{u: &user{Peer: victor}, id: j.id}
			seen.exits("A43", fields{"exit_code": 6})
			seen.whole("A43", "stdout", counted(20_000))
		}),
		sharedCommands.user("audience/slow", "A51 D5", "A viewer that stops reading delays no command, and gets the output whole or a reset", func(s *Session, alice *user) {
			sloth := s.slowly("sloth")
			j := alice.sh("A51", "seq 1 300000").exits("A51", fields{"success": true})
			j.whole("A51", "stdout", counted(300_000))
			alice.prompt("the end")
			sloth.resumeReading()
			if sloth.catchesUp("A51") {
				(&job{u: &user{Peer: sloth}, id: j.id}).whole("D5", "stdout", counted(300_000))
			}
		}),
		sharedCommands.user("audience/replay", "R79 4.2", "Utility events give the state that a snapshot has", func(s *Session, u *user) {
			m := &pilot{s: s, mirror: mirror{p: u.Peer}}
			u.terminal("R79", "exec sleep 600").resizes(99, 33)
			wordy := u.reading("R79", "echo some; echo more >&2; read x; i=0; while [ $i -lt 5000 ]; do echo 'wörter wörter'; i=$((i+1)); done; echo done; "+lasting)
			wordy.says("R79", "more\n")
			u.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "one", IncludePatterns: []string{"none/**"}})
			u.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "two", ExcludePatterns: []string{"**"}, DebounceMS: new(int64(1))})
			m.compare("R79")
			wordy.write("R79", "\n", false)
			wordy.says("R79", "done\n")
			u.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "one"})
			u.sh("R79", "true").exits("R79", fields{"success": true})
			m.compare("R79")
			wordy.end()
			m.compare("R79")
			m.do(&contracts.Interrupt{})
			u.await("R67", 0, message("utility_file_watch_stopped").with("watch_id", "two"))
			m.compare("R79")
		}, contracts.OperationFileWatch),
		anywhere(contracts.OperationFileRead).scenario("audience/reads-in-parallel", "1.7", "Reads and searches are answered, each under its id", settled(manyReads, contracts.OperationFileSearch)),
	}
}

func (u *user) busy() {
	u.settle()
	defer u.leave()
	l := u.watch("A48", contracts.UtilityFileWatchStart{DebounceMS: new(int64(10))})
	u.files("f")
	l.reports("A48", contracts.FileCreated, "f")
	j := u.terminal("A48", "read x; stty size")
	j.resizes(100, 30)
	j.write("A48", "\n", false)
	j.says("A48", "30 100")
	u.sh("A48", "seq 1 5000; echo oops >&2; exit 3").exits("A48", fields{"exit_code": 3})
	u.search("A48", "f", nil)
	u.reads("A48", u.all("f"), window{"text", 1, 1, 1, false})
	l.stop()
}

func manyReads(u *user) {
	names := strings.Fields("a b c d e f g h")
	for _, name := range names {
		u.shell("echo " + name + " > " + u.rel + "/" + name)
	}
	from := len(u.log)
	for _, name := range names {
		u.try(&contracts.UtilityFileRead{ReadID: "read " + name, Path: u.rel + "/" + name})
		u.try(&contracts.UtilityFileSearch{SearchID: "search " + name, Query: "nothing-" + name, Cwd: &u.rel})
	}
	for _, name := range names {
		u.await("1.7", from, message("utility_file_read_result").with("read_id", "read "+name).with("content", name))
		u.await("1.7", from, message("utility_file_search_results").with("search_id", "search "+name).with("query", "nothing-"+name))
	}
}

// sharedCommands are the needs of scenarios about the commands of several clients.
var sharedCommands = Needs{Transport: Socket, Operation: contracts.OperationCommandExec}

// possessions judges whose commands and watches are: 3.9, A12, A29, R101.
func possessions() []Scenario {
	return []Scenario{
		sharedCommands.user("owner/commands", "A29 R101", "Nobody else can end, feed or resize a command", func(s *Session, alice *user) {
			hers := alice.sleeper("hers")
			bob := s.second()
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandTerminate{CommandID: "hers"}, &contracts.UtilityCommandTerminate{CommandID: "hers", Force: true},
				&contracts.UtilityCommandStdin{CommandID: "hers", Content: "x"}, &contracts.UtilityCommandResize{CommandID: "hers", Columns: 90, Rows: 30}} {
				bob.denied(cmd, refusal{rule: "A29", text: "Headless command hers is owned by another connection", code: contracts.CodeAccessDenied})
			}
			bob.still("A29", 0, anyOf(message("utility_command_resized"), message("utility_command_exited")))
			bob.do("R67", &contracts.Interrupt{})
			hers.exits("A29", fields{"success": false, "reason": "Interrupted while utility command was still running"})
		}),
		sharedCommands.user("owner/watches", "A29 R101", "Nobody else can stop a watch", func(s *Session, alice *user) {
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			bob := s.second()
			bob.denied(&contracts.UtilityFileWatchStop{WatchID: "hers"},
				refusal{rule: "A29", text: "Headless file watch hers is owned by another connection", code: contracts.CodeAccessDenied})
			bob.still("A29", 0, message("utility_file_watch_stopped"))
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/ids-are-shared", "R83", "An id is taken for everybody in the session", func(s *Session, alice *user) {
			alice.sleeper("one")
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "one"})
			bob := s.second()
			bob.denied(&contracts.UtilityCommandStart{CommandID: "one", Command: "true"}, refusal{rule: "R83", text: "Utility command already exists: one"})
			bob.denied(&contracts.UtilityFileWatchStart{WatchID: "one"}, refusal{rule: "5.4", text: "Utility file watch already exists: one"})
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/leaves", "R101 A12", "With a connection its commands and watches end, and nobody else's", func(s *Session, alice *user) {
			alice.sleeper("hers")
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			bob := s.second()
			his := bob.sleeper("his")
			bob.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "his"})
			from := len(bob.log)
			alice.send([]byte(`{"type":"ws.bye"}`))
			bob.await("R101", from, message("utility_command_exited").with("command_id", "hers").
				with("reason", "Owning connection closed while utility command was still running"))
			bob.await("R101", from, message("utility_file_watch_stopped").with("watch_id", "hers").
				with("reason", "Owning connection closed while file watch was still running"))
			f := bob.state()
			if list := listOf(f, "state.active_file_watches"); active(f, "his") == nil || len(list) != 1 || list[0]["watch_id"] != "his" {
				s.fail("R101", "expected what is his to go on, got %s and %s", show(f.at("state.active_utility_commands")), show(list))
			}
			bob.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "his"})
			bob.await("R101", from, message("utility_file_watch_stopped").with("watch_id", "his").with("reason", "Stopped by controller"))
			his.end()
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/comes-back", "R101 9.3", "A connection that comes back in time has its commands and watches still", func(s *Session, alice *user) {
			j := alice.reading("R101", "echo before; read x; echo after; "+lasting).says("R101", "before\n")
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			alice.fence()
			how := returning(alice.Peer, alice.token)
			alice.close() // the network drops
			again := &user{Peer: s.attach("alice", how)}
			again.isAgain(alice.Peer)
			hers := &job{u: again, id: j.id}
			hers.write("R101", "\n", false)
			hers.says("R101", "after\n")
			again.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "hers"})
			again.await("5.4", 0, message("utility_file_watch_stopped").with("watch_id", "hers").with("reason", "Stopped by controller"))
			hers.end()
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/other-session", "R64", "Another session has the same ids for its own", func(s *Session, alice *user) {
			hers := alice.sleeper("same")
			carol := &user{Peer: s.attach("carol", entry{session: s.ID + "-other", create: true, role: contracts.RoleController})}
			carol.sleeper("same").end()
			alice.still("R64", hers.from, message("utility_command_exited"))
			hers.end()
		}),
	}
}

func (s *Session) second() *user {
	return &user{Peer: s.attach("bob", entry{role: contracts.RoleController, take: "1"})}
}

// sleeper starts a command that takes input and has a terminal.
func (u *user) sleeper(id string) *job {
	return u.start("R84", &contracts.UtilityCommandStart{CommandID: id, Command: "exec sleep 600", AllowStdin: true, TerminalMode: contracts.TerminalPTY})
}
